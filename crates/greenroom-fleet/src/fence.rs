//! The fence: the moment at which a node gives its lease up, unless the lease is renewed before.
//!
//! ```text
//!        a renewal is sent             4/5 of the lease              the lease is over: others may
//! ────────────┬───────────────────────────────┬─────────────────────────────┬── take the node's names ──►
//!             └── the node may act ───────────┘ fenced: the node acts no more, and the guardian has killed its CLIs
//! ```
//!
//! The fence counts from the moment before the renewal was sent. It counts time in which the machine was suspended as well,
//! for which tokio's clock stands still.
//!
//! A node that is stopped cannot act on its fence. So the guardian gets each fence as the deadline of a watchdog first, and the
//! node holds the lease when the guardian has acknowledged that.

use std::sync::Mutex;
use std::time::Duration;

use greenroom::guardian::{BootTime, Watchdog};
use tokio::time::Instant;

use crate::error::FleetError;
use crate::lock::locked;

/// The fence of a node.
pub(crate) struct Fence {
    /// Time from a renewal to its fence.
    span: Duration,
    until: Mutex<Moment>,
    suspended: Box<dyn Fn() -> Duration + Send + Sync>,
    /// The watchdog of the node's sessions.
    pub(crate) watchdog: Option<Watchdog>,
}

/// A moment on the clocks of a fence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    at: Instant,
    /// The time for which the machine had been suspended by then.
    suspended: Duration,
    boot: BootTime,
}

impl Fence {
    /// The fence of a node whose lease begins now.
    pub(crate) fn new(lease: Duration, watchdog: Option<Watchdog>) -> Self {
        let (boot, since) = (BootTime::now(), std::time::Instant::now());
        Self::with(lease, watchdog, move || BootTime::now().since(boot).saturating_sub(since.elapsed()))
    }

    fn with(
        lease: Duration,
        watchdog: Option<Watchdog>,
        suspended: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Self {
        let span = lease * 4 / 5;
        let now = Moment { at: Instant::now(), suspended: suspended(), boot: BootTime::now() };
        let until = Mutex::new(Moment { at: now.at + span, ..now });
        Self { span, until, suspended: Box::new(suspended), watchdog }
    }

    /// The moment now, to be read before a renewal is sent.
    pub(crate) fn now(&self) -> Moment {
        Moment { at: Instant::now(), suspended: (self.suspended)(), boot: BootTime::now() }
    }

    /// The node holds its lease: the backend has taken a request that was sent at `sent`.
    ///
    /// # Errors
    /// If the guardian does not take the deadline. The fence stays where it was.
    pub(crate) async fn hold(&self, sent: Moment) -> greenroom::Result<()> {
        if let Some(watchdog) = &self.watchdog {
            watchdog.extend(sent.boot + self.span).await?;
        }
        let mut until = locked(&self.until);
        let next = Moment { at: sent.at + self.span, ..sent };
        if next.at + next.suspended > until.at + until.suspended {
            *until = next;
        }
        Ok(())
    }

    /// The moment of the fence on tokio's clock, as long as the machine is not suspended.
    pub(crate) fn at(&self) -> Instant {
        let until = *locked(&self.until);
        let suspended = (self.suspended)().saturating_sub(until.suspended);
        until.at.checked_sub(suspended).unwrap_or_else(Instant::now)
    }

    /// The time until the fence.
    pub(crate) fn left(&self) -> Duration {
        self.at().saturating_duration_since(Instant::now())
    }

    /// True while the fence lies ahead.
    pub(crate) fn is_ahead(&self) -> bool {
        Instant::now() < self.at()
    }
}

/// The shortest lease with a watchdog: the guardian has a fifth of it to end the CLIs.
const SHORTEST: Duration = Duration::from_secs(5);

/// The watchdog of a node whose backend other processes use.
pub(crate) fn watchdog(lease: Duration) -> Result<Watchdog, FleetError> {
    if lease < SHORTEST {
        return Err(FleetError::Invalid(format!(
            "`lease` is at least {SHORTEST:?} on a backend that several services share: the guardian has a fifth of it to end the CLIs \
             of a service that is stopped"
        )));
    }
    Watchdog::new().map_err(|error| {
        FleetError::Invalid(format!(
            "a fleet on a backend that several services share ends its CLIs by a guardian program, also if this service is stopped: \
             call `greenroom::guardian::init()` first in `main`, or `FleetBuilder::without_watchdog` if no session has a process \
             ({error})"
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    // Guards: one-owner
    #[tokio::test(start_paused = true)]
    async fn time_in_suspend_counts_against_the_lease() {
        let suspended = Arc::new(AtomicU64::new(0));
        let clock = suspended.clone();
        let fence = Fence::with(SECOND * 30, None, move || SECOND * clock.load(Ordering::Relaxed) as u32);
        tokio::time::advance(SECOND * 10).await;
        suspended.store(13, Ordering::Relaxed);
        assert!(fence.is_ahead(), "23 s");
        let sent = fence.now();
        suspended.store(14, Ordering::Relaxed);
        assert!(!fence.is_ahead(), "24 s");
        fence.hold(sent).await.unwrap();
        assert!(fence.is_ahead(), "1 s after the next renewal was sent");
        tokio::time::advance(SECOND * 20).await;
        assert!(fence.is_ahead());
        suspended.store(17, Ordering::Relaxed);
        assert!(!fence.is_ahead());
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_reply_moves_no_fence_back() {
        let fence = Fence::new(SECOND * 30, None);
        let early = fence.now();
        tokio::time::advance(SECOND * 5).await;
        fence.hold(fence.now()).await.unwrap();
        let at = fence.at();
        fence.hold(early).await.unwrap();
        assert!(fence.at() >= at - SECOND / 10 && fence.is_ahead());
    }
}
