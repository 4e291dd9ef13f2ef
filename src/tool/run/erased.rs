//! Handlers without their types: what a server stores and runs.

use std::any::Any;
use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;
use serde_json::value::RawValue;

use super::context::CallContext;
use crate::blocking::caught::panic_text;
use crate::tool::error::ToolError;
use crate::wire::{CallToolResult, RpcError};

/// A server's state.
pub(crate) type AnyState = Arc<dyn Any + Send + Sync>;

/// The arguments of a tool call, unparsed.
pub(crate) type Arguments = Option<Box<RawValue>>;

pub(crate) type AsyncRun =
    Arc<dyn Fn(AnyState, Arc<CallContext>, Arguments) -> BoxFuture<'static, CallEnd> + Send + Sync>;
type BlockingRun = Arc<dyn Fn(AnyState, Arc<CallContext>, Arguments) -> CallEnd + Send + Sync>;

/// A tool's handler, and where it runs.
#[derive(Clone)]
pub(crate) enum ToolRunner {
    /// On a task of the runtime.
    Async(AsyncRun),
    /// On a thread of the runtime's blocking pool.
    Blocking(BlockingRun),
}

/// The end of a tool call.
#[derive(Debug)]
pub(crate) enum CallEnd {
    /// The handler returned a result or an error.
    Returned(CallToolResult),
    /// The handler returned an error with a cause for the log.
    Failed { result: CallToolResult, cause: String },
    /// The arguments did not fit, so the handler was not called.
    BadArguments(CallToolResult),
    /// The handler panicked with this text.
    Panicked(String),
    /// The call was cancelled while it waited for a permit, so the handler was not called.
    NotBegun,
}

impl CallEnd {
    /// The result that the model reads.
    pub(crate) fn result(self, tool: &str) -> CallToolResult {
        match self {
            CallEnd::Returned(result)
            | CallEnd::Failed { result, cause: _ }
            | CallEnd::BadArguments(result) => result,
            CallEnd::Panicked(text) => CallToolResult::error(format!("tool '{tool}' panicked: {text}")),
            CallEnd::NotBegun => {
                CallToolResult::error(format!("tool '{tool}' was cancelled before it began"))
            }
        }
    }
}

/// A failure of a handler that its actor tells the application.
#[derive(Debug)]
pub(crate) enum CallFailure {
    /// The handler panicked with this text.
    Panicked(String),
    /// The handler returned an error with a cause for the log; the model reads the message.
    Failed { message: String, cause: String },
}

/// The result of a handler that is not a tool's.
pub(crate) type HandlerResult = Result<Value, RpcError>;

/// A handler that is not a tool's, for requests with these parameters.
pub(crate) type HandlerFn<P> =
    Arc<dyn Fn(AnyState, Arc<CallContext>, P) -> BoxFuture<'static, HandlerResult> + Send + Sync>;

/// Starts a handler that is not a tool's. Starting may panic, and so may the future.
pub(crate) type StartHandler =
    Box<dyn FnOnce(AnyState, Arc<CallContext>) -> BoxFuture<'static, HandlerResult> + Send>;

/// Runs a handler that is not a tool's; `Err` is the text of its panic.
pub(crate) async fn run_caught(
    start: StartHandler,
    state: AnyState,
    call: Arc<CallContext>,
) -> Result<HandlerResult, String> {
    AssertUnwindSafe(async move { start(state, call).await })
        .catch_unwind()
        .await
        .map_err(|panic| panic_text(&*panic))
}

/// The answer for a panicked handler that is not a tool's.
pub(crate) fn panicked(label: &str, text: &str) -> RpcError {
    RpcError::internal(format!("the handler of '{label}' panicked: {text}"))
}

/// The state as the type that a handler wants. `ToolServer` binds each handler to a state of its type, so the error is
/// not reachable through it.
pub(crate) fn typed_state<S: Send + Sync + 'static>(state: AnyState) -> Result<Arc<S>, RpcError> {
    state
        .downcast::<S>()
        .map_err(|_| RpcError::internal("the server's state has another type than this handler's context"))
}

/// The error of a handler as JSON-RPC: an [`RpcError`] unchanged, any other as an internal error with its text.
pub(crate) fn rpc_error<E: Display + 'static>(error: E) -> RpcError {
    if let Some(cause) = ToolError::logged(&error) {
        tracing::warn!(error = %error, cause, "a handler failed");
    }
    match (&error as &dyn Any).downcast_ref::<RpcError>() {
        Some(error) => error.clone(),
        // The alternate form prints the whole chain of causes of an `anyhow::Error`.
        None => RpcError::internal(format!("{error:#}")),
    }
}
