//! The clock of a backend.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use greenroom::guardian::BootTime;

use crate::id::Timestamp;
use crate::lock::locked;

/// A clock that follows another one gains or loses this part of the time that passes, until both show the same.
const SLEW: u32 = 10;

/// The clock of a backend: what it takes for now.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The system's clock, without its steps. Use this one where moments outlive the process.
    ///
    /// The clock begins at the system's moment now, and goes on with the time that passes, also while the machine is suspended. If somebody
    /// sets the system's clock, it goes a tenth faster or slower until both show the same moment. So a step ends no wait early: ten minutes
    /// take nine at least.
    pub fn system() -> Self {
        let start = BootTime::now();
        Self::following(Timestamp::now, move || BootTime::now().since(start))
    }

    /// A clock that follows the moments of `shown` without their steps. `passed`: the time since now that has passed.
    pub(crate) fn following(
        shown: impl Fn() -> Timestamp + Send + Sync + 'static,
        passed: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Self {
        let last = Mutex::new((shown(), passed()));
        Self::new(move || {
            let mut last = locked(&last);
            let (moment, at) = *last;
            let (shown, now) = (shown(), passed());
            let went = now.saturating_sub(at);
            let (least, most) = (moment.after(went - went / SLEW), moment.after(went + went / SLEW));
            if went >= Duration::from_millis(u64::from(SLEW)) {
                *last = (shown.clamp(least, most), now);
                return last.0;
            }
            // Too short for a part of it: a clock that is read all the time goes on with the time that passes.
            moment.after(went)
        })
    }

    /// A clock that follows tokio's, from the system's moment now. Under tokio's paused clock time passes only as the test lets
    /// it pass.
    ///
    /// # Panics
    /// Its users panic where tokio's clock does: a paused clock has to be read inside its runtime.
    pub fn tokio() -> Self {
        let (base, start) = (Timestamp::now(), tokio::time::Instant::now());
        Self::new(move || base.after(start.elapsed()))
    }

    /// A clock of your own.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The moment now.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A clock that the test sets, the time that passes, and the clock that follows.
    fn stepped() -> (Arc<AtomicU64>, Arc<AtomicU64>, Clock) {
        let (shown, passed) = (Arc::new(AtomicU64::new(1_000_000_000)), Arc::new(AtomicU64::new(0)));
        let (shows, passes) = (shown.clone(), passed.clone());
        let clock = Clock::following(
            move || Timestamp(shows.load(Ordering::Relaxed)),
            move || Duration::from_millis(passes.load(Ordering::Relaxed)),
        );
        (shown, passed, clock)
    }

    #[test]
    fn a_step_of_the_system_is_taken_in_slowly() {
        let (shown, passed, clock) = stepped();
        let pass = |millis: u64, step: i64| {
            let before = clock.now();
            passed.fetch_add(millis, Ordering::Relaxed);
            shown.fetch_add(millis.wrapping_add_signed(step), Ordering::Relaxed);
            clock.now().0 - before.0
        };
        assert_eq!(pass(60_000, 0), 60_000);
        assert_eq!(pass(0, 3_600_000), 0, "at the step");
        assert_eq!(pass(60_000, 0), 66_000, "a tenth faster");
        assert_eq!(pass(600_000, -3_600_000), 594_000, "only as far as the system's clock");
        assert_eq!(pass(60_000, -3_600_000), 54_000, "a tenth slower");
        assert_eq!(pass(60_000, 3_600_000), 66_000);
        assert_eq!(pass(60_000, 0), 60_000, "both show the same");
    }

    #[test]
    fn a_clock_that_is_read_all_the_time_goes_on() {
        let (shown, passed, clock) = stepped();
        shown.fetch_add(86_400_000, Ordering::Relaxed);
        let start = clock.now();
        for _ in 0..10_000 {
            passed.fetch_add(1, Ordering::Relaxed);
            shown.fetch_add(1, Ordering::Relaxed);
            clock.now();
        }
        let went = clock.now().since(start);
        assert!((Duration::from_secs(10)..=Duration::from_secs(11)).contains(&went), "{went:?}");
    }
}
