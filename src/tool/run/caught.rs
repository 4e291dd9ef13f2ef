//! Runs and drops code of the application so that its panic harms nothing else.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;

use super::context::CallContext;
use super::erased::{AnyState, HandlerResult, StartHandler};
use crate::blocking::in_background;
use crate::wire::RpcError;

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

/// Drops a state or a handler on a thread of the blocking pool: the application's drop may block and panic.
pub(crate) fn drop_elsewhere(held: impl Send + 'static) {
    in_background(move || drop_quietly(held));
}

/// Drops a state or a handler, and logs a panic.
pub(super) fn drop_quietly(held: impl Send) {
    if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(move || drop(held))) {
        tracing::warn!(
            message = panic_text(&*panic),
            "a state or a handler of a tool server panicked when it was dropped"
        );
    }
}

/// The text of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a text".to_owned())
}
