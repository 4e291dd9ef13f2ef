//! Locks a mutex.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a panic under its lock: no code of the fleet panics half way through a change.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
