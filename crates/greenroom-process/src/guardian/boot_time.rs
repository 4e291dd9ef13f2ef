//! Moments on the clock that counts from the machine's start.

use std::ops::Add;
use std::time::Duration;

#[cfg(target_os = "linux")]
use rustix::time::Timespec;
use rustix::time::{ClockId, clock_gettime};

/// A moment on the clock that counts from the machine's start, time in suspend included (`CLOCK_BOOTTIME`).
///
/// [`Instant`](std::time::Instant) and tokio's clock stand still while a Linux machine is suspended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootTime(Duration);

impl BootTime {
    /// The moment now.
    pub fn now() -> Self {
        #[cfg(target_os = "linux")]
        let clock = ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let clock = ClockId::Monotonic;
        let now = clock_gettime(clock);
        let (seconds, nanos) =
            (u64::try_from(now.tv_sec).unwrap_or_default(), u32::try_from(now.tv_nsec).unwrap_or_default());
        Self(Duration::new(seconds, nanos))
    }

    /// The time from `earlier` until this moment; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    pub(super) fn from_nanos(nanos: u64) -> Self {
        Self(Duration::from_nanos(nanos))
    }

    /// Nanoseconds since the start: enough for 584 years.
    pub(super) fn nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }

    #[cfg(target_os = "linux")]
    pub(super) fn timespec(self) -> Timespec {
        Timespec {
            tv_sec: i64::try_from(self.0.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: self.0.subsec_nanos().into(),
        }
    }
}

impl Add<Duration> for BootTime {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }
}
