//! Counts the restarts of a child, and decides whether it may restart again.

use std::collections::VecDeque;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;

use crate::options::Restart;

/// The restarts of one child within the period.
pub(crate) struct RestartWindow {
    limits: Restart,
    restarts: VecDeque<Instant>,
    random: Rng,
}

/// Whether a child restarts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Yes, after this wait; it is restart number `attempt` of the period.
    After { delay: Duration, attempt: u32 },
    /// No: it was restarted `intensity` times within the period already.
    GiveUp,
}

impl RestartWindow {
    pub(crate) fn new(limits: Restart, random: Rng) -> Self {
        Self { limits, restarts: VecDeque::new(), random }
    }

    /// Forgets what was counted.
    pub(crate) fn clear(&mut self) {
        self.restarts.clear();
    }

    /// Counts one more restart.
    pub(crate) fn record(&mut self, now: Instant) -> Verdict {
        while self.restarts.front().is_some_and(|first| now.duration_since(*first) >= self.limits.period) {
            self.restarts.pop_front();
        }
        if self.restarts.len() >= usize::try_from(self.limits.intensity).unwrap_or(usize::MAX) {
            return Verdict::GiveUp;
        }
        self.restarts.push_back(now);
        let attempt = u32::try_from(self.restarts.len()).unwrap_or(u32::MAX);
        Verdict::After { delay: self.delay(attempt), attempt }
    }

    /// The wait before restart number `attempt`: doubling from the least to the most, half of it random.
    pub(crate) fn delay(&mut self, attempt: u32) -> Duration {
        let doubled = self.limits.backoff_min.saturating_mul(1 << attempt.saturating_sub(1).min(20));
        let whole = doubled.min(self.limits.backoff_max.max(self.limits.backoff_min));
        if whole.is_zero() {
            return whole;
        }
        whole.mul_f64(0.5 + self.random.f64() / 2.0)
    }
}

// Guards: resumed
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn window(intensity: u32, min: u64, max: u64) -> RestartWindow {
        let limits = Restart {
            intensity,
            period: Duration::from_secs(10),
            backoff_min: Duration::from_millis(min),
            backoff_max: Duration::from_millis(max),
        };
        RestartWindow::new(limits, fastrand::Rng::with_seed(7))
    }

    #[test]
    fn more_than_intensity_within_the_period_is_given_up() {
        let mut window = window(2, 0, 0);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(window.record(at(0)), Verdict::After { delay: Duration::ZERO, attempt: 1 });
        assert_eq!(window.record(at(5)), Verdict::After { delay: Duration::ZERO, attempt: 2 });
        assert_eq!(window.record(at(9)), Verdict::GiveUp);
        assert_eq!(window.record(at(10)), Verdict::After { delay: Duration::ZERO, attempt: 2 });
    }

    #[test]
    fn intensity_zero_never_restarts() {
        assert_eq!(window(0, 0, 0).record(Instant::now()), Verdict::GiveUp);
    }

    proptest! {
        #[test]
        fn the_wait_doubles_up_to_the_most_and_half_of_it_is_random(attempt in 1u32..40, min in 0u64..1000, more in 0u64..10_000) {
            let mut window = window(100, min, min + more);
            let whole = Duration::from_millis(min).saturating_mul(1 << (attempt - 1).min(20)).min(Duration::from_millis(min + more));
            let delay = window.delay(attempt);
            prop_assert!(delay <= whole && delay >= whole / 2 - Duration::from_nanos(1).min(whole / 2), "{delay:?} of {whole:?}");
        }
    }
}
