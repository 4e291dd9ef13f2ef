//! When a list drops its finished entries: in batches, so that finishing an entry costs its owner no message and no
//! lock.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::lock::lock;

/// Counts the finished entries of a list, and says when to sweep them out: once they are half as many as the entries
/// that the last sweep kept, or [`LEAST`](SweepMark::LEAST). The owner of the list asks when a new entry comes. If none
/// comes, the owner is woken when all kept entries have finished, but not for fewer than
/// [`PATIENCE`](SweepMark::PATIENCE) times `LEAST`.
#[derive(Debug)]
pub(crate) struct SweepMark {
    finished: AtomicUsize,
    mark: AtomicUsize,
}

impl Default for SweepMark {
    fn default() -> Self {
        Self { finished: AtomicUsize::new(0), mark: AtomicUsize::new(Self::LEAST) }
    }
}

impl SweepMark {
    /// Fewest finished entries worth a sweep. A finished entry holds little more than its ids.
    pub(crate) const LEAST: usize = 16;

    /// Multiple of `LEAST` from which on the owner is woken.
    pub(crate) const PATIENCE: usize = 4;

    /// Whether a list of `len` entries has far more capacity than it needs.
    pub(crate) fn is_roomy(capacity: usize, len: usize) -> bool {
        capacity > 512.max(8 * len)
    }

    /// Counts a finished entry; true if the owner of the list has to be woken.
    pub(crate) fn finish(&self) -> bool {
        let finished = self.finished.fetch_add(1, Ordering::AcqRel) + 1;
        let mark = self.mark.load(Ordering::Acquire);
        // At most the number of entries that were kept: no others may follow.
        finished == mark.saturating_mul(2).max(Self::PATIENCE * Self::LEAST)
    }

    /// Whether the list has to be swept.
    pub(crate) fn is_due(&self) -> bool {
        self.finished.load(Ordering::Acquire) >= self.mark.load(Ordering::Acquire)
    }

    /// A sweep begins. Entries that finish from here on count for the next one.
    pub(crate) fn begin(&self) {
        // Out of reach, so that nobody wakes the owner meanwhile: `end` looks at what has finished.
        self.mark.store(usize::MAX, Ordering::Release);
        self.finished.swap(0, Ordering::AcqRel);
    }

    /// A sweep ends, and kept this many entries; true if the next sweep is due already.
    pub(crate) fn end(&self, kept: usize) -> bool {
        let mark = Self::LEAST.max(kept / 2);
        self.mark.store(mark, Ordering::Release);
        self.finished.load(Ordering::Acquire) >= mark
    }
}

/// A [`SweepMark`], and how to wake the owner of the list.
#[derive(Default)]
pub(crate) struct SweepBell {
    mark: SweepMark,
    wake: Mutex<Option<Box<dyn Fn() + Send>>>,
}

impl SweepBell {
    pub(super) fn mark(&self) -> &SweepMark {
        &self.mark
    }

    /// Sets or removes the owner's waker.
    pub(super) fn set_wake(&self, wake: Option<Box<dyn Fn() + Send>>) {
        *lock(&self.wake) = wake;
    }

    /// Counts a finished entry, and wakes the owner if it has to be woken.
    pub(super) fn finish(&self) {
        if self.mark.finish()
            && let Some(wake) = &*lock(&self.wake)
        {
            wake();
        }
    }
}

impl fmt::Debug for SweepBell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SweepBell").field("mark", &self.mark).finish_non_exhaustive()
    }
}
