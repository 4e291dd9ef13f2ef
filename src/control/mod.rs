//! What the CLI asks of the application besides tool calls, typed: permissions, hooks, elicitations, dialogs.
//!
//! A handler is an async closure. It runs as a task of its own under the session's callbacks actor, with the same
//! promises as a tool call: a panic is answered for, a limit is kept, a withdrawal reaches it.

pub(crate) mod dialog;
pub(crate) mod hook;
pub(crate) mod permission;

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub use dialog::{DialogAnswer, ElicitationAnswer};
pub use hook::{Hook, HookInput, HookOutput, OnFailure};
pub use permission::{PermissionDecision, PermissionRequest};

/// What a callback gets beside its input.
///
/// ```
/// use greenroom::{CallbackContext, PermissionDecision, PermissionRequest};
///
/// async fn ask(request: PermissionRequest, cx: CallbackContext) -> PermissionDecision {
///     tokio::select! {
///         () = cx.cancelled() => PermissionDecision::deny("nobody waits any more"),
///         () = std::future::ready(()) => PermissionDecision::allow(),
///     }
/// }
/// # let _ = ask;
/// ```
#[derive(Clone, Debug)]
pub struct CallbackContext {
    pub(crate) request_id: String,
    pub(crate) cancel: CancellationToken,
}

impl CallbackContext {
    /// A context without a session, to call a handler directly in a unit test.
    pub fn detached() -> Self {
        Self { request_id: "detached".into(), cancel: CancellationToken::new() }
    }

    /// The id of the control request.
    pub fn request_id(&self) -> &str {
        &self.request_id
    }

    /// The token that is cancelled when nobody waits for the answer any more.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Resolves when nobody waits for the answer any more.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }
}

/// A handler, its types forgotten.
pub(crate) type Handler<I, O> = Arc<dyn Fn(I, CallbackContext) -> BoxFuture<'static, O> + Send + Sync>;

/// All handlers of a session.
#[derive(Clone, Default)]
pub(crate) struct Handlers {
    pub(crate) permission: Option<Handler<PermissionRequest, PermissionDecision>>,
    pub(crate) hooks: Vec<Hook>,
    pub(crate) elicitation: Option<Handler<Value, ElicitationAnswer>>,
    pub(crate) dialog: Option<Handler<Value, DialogAnswer>>,
    pub(crate) dialog_kinds: Vec<String>,
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handlers").field("hooks", &self.hooks.len()).finish_non_exhaustive()
    }
}

/// Forgets the types of a handler.
pub(crate) fn erase<I, O, Fut>(
    handler: impl Fn(I, CallbackContext) -> Fut + Send + Sync + 'static,
) -> Handler<I, O>
where
    I: Send + 'static,
    Fut: Future<Output = O> + Send + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |input, cx| {
        let handler = handler.clone();
        // The handler itself runs inside the future too, so that its panic is the future's.
        Box::pin(async move { handler(input, cx).await })
    })
}
