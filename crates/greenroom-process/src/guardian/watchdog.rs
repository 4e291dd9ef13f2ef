//! Watchdogs: deadlines after which the guardian ends some children.
//!
//! ```text
//! Waiting ──extend, acknowledged──► Holding ──the deadline passes──► Passed
//!    │                                 ▲                               │
//!    └─ no child may start             └──────── extend, acknowledged ─┘ the guardian kills; no child may start
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::boot_time::BootTime;
use super::host;
use crate::aside::aside;
use crate::error::{Error, ErrorKind, Result};

/// Ends its children at a deadline, also while this process is stopped and cannot end them itself.
///
/// Give a watchdog to children with [`Command::watchdog`](crate::Command::watchdog), and [`extend`](Self::extend) its deadline while
/// they may act. When the deadline passes, the guardian kills them and everything that they have started. Other children of the
/// process go on. A child whose deadline has passed is not started.
///
/// A service on several machines uses a watchdog for its lease: a host that hangs, or that was stopped by a signal, leaves
/// no child behind that acts on what belongs to another host by then.
///
/// A clone is another handle to the watchdog. With the last handle and the last child the deadline goes.
///
/// ```no_run
/// use std::time::Duration;
///
/// use greenroom_process::guardian::{self, BootTime, Watchdog};
/// use greenroom_process::{Command, Error, spawn};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     // First, before the runtime starts:
///     guardian::init();
///     let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
///     Ok(runtime.block_on(serve())?)
/// }
///
/// async fn serve() -> Result<(), Error> {
///     let watchdog = Watchdog::new()?;
///     watchdog.extend(BootTime::now() + Duration::from_secs(24)).await?;
///     let mut command = Command::new("/usr/bin/worker");
///     command.watchdog = Some(watchdog.clone());
///     let child = spawn(|| Ok::<_, Error>(command)).await?;
/// #   drop(child);
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Watchdog(Arc<WatchdogState>);

#[derive(Debug)]
struct WatchdogState {
    /// Counted from 1 within the process.
    number: u64,
    /// The latest deadline that the guardian has acknowledged, in nanoseconds.
    acknowledged: AtomicU64,
}

impl Drop for WatchdogState {
    fn drop(&mut self) {
        host::drop_watchdog(self.number);
    }
}

impl Watchdog {
    /// A watchdog without a deadline: its children start after the first [`extend`](Self::extend).
    ///
    /// # Errors
    /// [`ErrorKind::Spawn`] if the process has no guardian program: call [`init`](super::init) first in `main`.
    pub fn new() -> Result<Self> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);

        if host::program().is_none() {
            let help = "call `guardian::init()` first in `main`, or name a program that does so with \
                        `guardian::use_program`; both work on Linux alone";
            return Err(Error::new(ErrorKind::Spawn, "a watchdog needs a guardian program").with_help(help));
        }
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Ok(Self(Arc::new(WatchdogState { number, acknowledged: AtomicU64::new(0) })))
    }

    /// Moves the deadline to a later moment. Returns when the guardian has acknowledged it. A guardian that does not
    /// acknowledge in 750 ms is replaced once.
    ///
    /// An earlier moment than that of the deadline changes nothing. If the future is dropped, the deadline may have been moved.
    ///
    /// # Errors
    /// [`ErrorKind::NoGuardian`] if no guardian acknowledges. The deadline is then the one before, or this one.
    pub async fn extend(&self, until: BootTime) -> Result<()> {
        // The thread keeps the watchdog: its end must not come before the deadline.
        let state = self.0.clone();
        let extended = aside(move || host::extend(state.number, until)).await?;
        extended.map_err(|error| {
            Error::new(
                ErrorKind::NoGuardian,
                format!("the guardian did not take the deadline of a watchdog: {error}"),
            )
            .with_help("children with this watchdog end at the deadline before: extend it again")
            .with_source(error)
        })?;
        self.0.acknowledged.fetch_max(until.nanos(), Ordering::SeqCst);
        Ok(())
    }

    /// True while the deadline that the guardian has acknowledged last lies ahead.
    pub fn holds(&self) -> bool {
        BootTime::now() < BootTime::from_nanos(self.0.acknowledged.load(Ordering::SeqCst))
    }

    /// A watchdog without a guardian.
    #[cfg(any(test, feature = "__internals"))]
    #[doc(hidden)]
    pub fn without_deadline() -> Self {
        Self(Arc::new(WatchdogState { number: u64::MAX, acknowledged: AtomicU64::new(0) }))
    }

    /// A watchdog whose deadline no guardian knows.
    #[cfg(test)]
    pub(crate) fn acknowledged(until: BootTime) -> Self {
        let watchdog = Self::without_deadline();
        watchdog.0.acknowledged.store(until.nanos(), Ordering::SeqCst);
        watchdog
    }

    pub(crate) fn number(&self) -> u64 {
        self.0.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_child_keeps_its_watchdog() {
        let watchdog = Watchdog::acknowledged(BootTime::now() + std::time::Duration::from_secs(600));
        let state = Arc::downgrade(&watchdog.0);
        let mut command = crate::Command::new("/bin/sleep").arg("1000");
        command.watchdog = Some(watchdog);
        let child = crate::tests::in_time(crate::spawn(|| Ok::<_, Error>(command))).await.unwrap();
        assert!(state.upgrade().is_some());
        drop(child);
        assert!(state.upgrade().is_none());
    }

    #[test]
    fn without_a_program_there_is_no_watchdog() {
        let error = Watchdog::new().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Spawn);
        assert!(error.help().is_some_and(|help| help.contains("guardian::init()")), "{error}");
    }
}
