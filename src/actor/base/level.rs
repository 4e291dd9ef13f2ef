//! A count with a limit, and whether the application was told that the limit is reached.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Counts what is in flight or in a queue. The owner refuses what is over the limit.
pub(crate) struct Level {
    count: AtomicUsize,
    pub(crate) limit: usize,
    /// The application was told that the limit is reached.
    told: AtomicBool,
}

impl Level {
    pub(crate) fn new(limit: usize) -> Self {
        Self { count: AtomicUsize::new(0), limit, told: AtomicBool::new(false) }
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, n: usize) {
        self.count.fetch_add(n, Ordering::Relaxed);
    }

    /// Returns the count before.
    pub(crate) fn remove(&self, n: usize) -> usize {
        // Ordered with `recount`: either a waiter for room sees this count there, or this caller finds the waiter and wakes it.
        let before = self.count.fetch_sub(n, Ordering::SeqCst);
        if before - n <= self.limit / 2 && self.told.load(Ordering::Relaxed) {
            self.told.store(false, Ordering::Relaxed);
        }
        before
    }

    /// The count, for the second look of a waiter: see [`remove`](Level::remove).
    pub(crate) fn recount(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Whether a refusal is the first one since the count was down to half of the limit, and so worth an event.
    pub(crate) fn is_news(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }
}
