//! A spawned task that ends when its owner does, and answers to callers.

use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

/// A task that is aborted when its owner drops it.
pub(crate) type Task<T = ()> = AbortOnDropHandle<T>;

/// Spawns a task for an owner.
pub(crate) fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> Task<T> {
    #[allow(clippy::disallowed_methods, reason = "the handle is the owner that the rule asks for")]
    AbortOnDropHandle::new(tokio::spawn(future))
}

/// Answers a caller.
pub(crate) fn answer<T>(caller: oneshot::Sender<T>, answer: T) {
    // An error: the caller waits no more.
    caller.send(answer).ok();
}

/// The text of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without a text")
}
