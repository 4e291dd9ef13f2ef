//! How fast the handlers of a tool are, which decides whether they share a task.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether the handlers of a tool are quick: the last one ended at its first poll, within [`Pace::QUICK`]. Quick handlers
/// run one after another on one task.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace(Arc<AtomicBool>);

impl Pace {
    pub(crate) const QUICK: Duration = Duration::from_micros(50);
    /// The time after which a task that runs quick handlers yields.
    pub(crate) const BATCH: Duration = Duration::from_micros(500);
    /// The time without progress after which a handler counts as one that blocks its thread.
    pub(crate) const STUCK: Duration = Duration::from_millis(5);

    pub(crate) fn is_quick(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Notes the first poll of a handler: whether the handler has ended, and how long the poll took.
    pub(crate) fn note(&self, has_ended: bool, took: Duration) {
        let is_quick = has_ended && took <= Self::QUICK;
        // Most handlers are like the last one: a store would take the cache line from other processors.
        if is_quick != self.is_quick() {
            self.0.store(is_quick, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_as_quick_as_its_last_handler() {
        let pace = Pace::default();
        assert!(!pace.is_quick(), "nothing is known of a new tool");
        pace.note(true, Pace::QUICK);
        assert!(pace.clone().is_quick());
        pace.note(true, Pace::QUICK + Duration::from_micros(1));
        assert!(!pace.is_quick());
        pace.note(true, Duration::ZERO);
        pace.note(false, Duration::ZERO);
        assert!(!pace.is_quick());
    }
}
