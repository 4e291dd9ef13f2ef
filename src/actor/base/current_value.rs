//! A value that several actors look up.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// A shared value that readers look up and cannot await. Where a reader waits for the next value, use a
/// `tokio::sync::watch` channel; it takes ten times the memory.
pub(crate) struct CurrentValue<T>(RwLock<T>);

impl<T> CurrentValue<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(RwLock::new(value))
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, value: T) {
        let before = std::mem::replace(&mut *self.0.write().unwrap_or_else(PoisonError::into_inner), value);
        // Dropped outside the lock: the end of a span calls the application's tracing subscriber.
        drop(before);
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }
}
