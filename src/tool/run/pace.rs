//! How fast the handlers of a tool are, which decides whether they share a task.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// The pace of a tool. The tool is quick if its last [`Pace::STREAK`] handlers ended at their first poll, within
/// [`Pace::QUICK`]. Quick handlers run one after another on one task.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace(Arc<AtomicU8>);

impl Pace {
    pub(crate) const STREAK: u8 = 16;
    pub(crate) const QUICK: Duration = Duration::from_micros(50);
    /// The time after which a task that runs quick handlers yields.
    pub(crate) const BATCH: Duration = Duration::from_micros(500);
    /// The time without progress after which a handler counts as one that blocks its thread.
    pub(crate) const STUCK: Duration = Duration::from_millis(5);

    pub(crate) fn is_quick(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= Self::STREAK
    }

    /// Notes the first poll of a handler: whether the handler has ended, and how long the poll took.
    pub(crate) fn note(&self, has_ended: bool, took: Duration) {
        let streak = self.0.load(Ordering::Relaxed);
        let next = if has_ended && took <= Self::QUICK { Self::STREAK.min(streak + 1) } else { 0 };
        // Most handlers are like the last ones: a store would take the cache line from other processors.
        if next != streak {
            self.0.store(next, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_quick_after_a_streak_of_quick_handlers() {
        let pace = Pace::default();
        for _ in 0..Pace::STREAK {
            assert!(!pace.is_quick());
            pace.note(true, Pace::QUICK);
        }
        assert!(pace.clone().is_quick());
        pace.note(true, Pace::QUICK);
        assert!(pace.is_quick());
        pace.note(true, Pace::QUICK + Duration::from_micros(1));
        assert!(!pace.is_quick());
        (0..Pace::STREAK).for_each(|_| pace.note(true, Duration::ZERO));
        assert!(pace.is_quick());
        pace.note(false, Duration::ZERO);
        assert!(!pace.is_quick());
    }
}
