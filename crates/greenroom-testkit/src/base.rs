//! Tasks and locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::task::AbortOnDropHandle;

/// Spawns a task that is aborted when its handle is dropped.
pub(crate) fn spawn<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> AbortOnDropHandle<T> {
    #[allow(clippy::disallowed_methods, reason = "the handle is the owner that the rule asks for")]
    AbortOnDropHandle::new(tokio::spawn(future))
}

/// Locks a mutex, also after a panic under its lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
