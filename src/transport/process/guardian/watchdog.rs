//! Watchdogs: deadlines after which the guardian ends the CLIs of some sessions.
//!
//! ```text
//! Waiting ──extend, acknowledged──► Holding ──the deadline passes──► Passed
//!    │                                 ▲                               │
//!    └─ no CLI may start               └──────── extend, acknowledged ─┘ the guardian kills; no CLI may start
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::boot_time::BootTime;
use super::host;
use crate::error::{Error, ErrorKind, Result};
use crate::transport::process::start::spawner::aside;

/// Ends the CLIs of its sessions at a deadline, also while this process is stopped and cannot end them itself.
///
/// Give a watchdog to sessions with [`SessionBuilder::watchdog`](crate::SessionBuilder::watchdog), and
/// [`extend`](Self::extend) its deadline while they may act. When the deadline passes, the guardian kills their CLIs and everything
/// that the CLIs have started. Other sessions of the process go on. A session whose deadline has passed starts no CLI.
///
/// A fleet on several machines uses a watchdog for its lease: a node that hangs, or that was stopped by a signal, leaves
/// no CLI behind that acts on a conversation which belongs to another node by then.
///
/// A clone is another handle to the watchdog. With the last handle and the last session the deadline goes.
///
/// ```no_run
/// use std::time::Duration;
///
/// use greenroom::Session;
/// use greenroom::guardian::{self, BootTime, Watchdog};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     // First, before the runtime starts:
///     guardian::init();
///     let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
///     Ok(runtime.block_on(serve())?)
/// }
///
/// async fn serve() -> greenroom::Result<()> {
///     let watchdog = Watchdog::new()?;
///     watchdog.extend(BootTime::now() + Duration::from_secs(24)).await?;
///     let session = Session::builder().watchdog(&watchdog).start().await?;
/// #   session.stop().await
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Watchdog(Arc<State>);

#[derive(Debug)]
struct State {
    /// Counted from 1 within the process.
    number: u64,
    /// The latest deadline that the guardian has acknowledged, in nanoseconds.
    acknowledged: AtomicU64,
}

impl Drop for State {
    fn drop(&mut self) {
        host::drop_watchdog(self.number);
    }
}

impl Watchdog {
    /// A watchdog without a deadline: its sessions start after the first [`extend`](Self::extend).
    ///
    /// # Errors
    /// [`ErrorKind::Spawn`] if the process has no guardian program: call [`init`](super::init) first in `main`.
    pub fn new() -> Result<Self> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);

        if host::program().is_none() {
            let help = "call `greenroom::guardian::init()` first in `main`, or name a program that does so with \
                        `greenroom::guardian::use_program`; both work on Linux alone";
            return Err(Error::new(ErrorKind::Spawn, "a watchdog needs a guardian program").with_help(help));
        }
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Ok(Self(Arc::new(State { number, acknowledged: AtomicU64::new(0) })))
    }

    /// Moves the deadline to a later moment. Returns when the guardian has acknowledged it. A guardian that does not
    /// acknowledge in 750 ms is replaced once.
    ///
    /// An earlier moment than that of the deadline changes nothing. If the future is dropped, the deadline may have been moved.
    ///
    /// # Errors
    /// [`ErrorKind::Spawn`] if no guardian acknowledges. The deadline is then the one before, or this one.
    pub async fn extend(&self, until: BootTime) -> Result<()> {
        // The thread keeps the watchdog: its end must not come before the deadline.
        let state = self.0.clone();
        let extended = aside(move || host::extend(state.number, until)).await?;
        extended.map_err(|error| {
            Error::new(
                ErrorKind::Spawn,
                format!("the guardian did not take the deadline of a watchdog: {error}"),
            )
            .with_help("sessions with this watchdog end at the deadline before: extend it again")
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
        Self(Arc::new(State { number: u64::MAX, acknowledged: AtomicU64::new(0) }))
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

    #[test]
    fn without_a_program_there_is_no_watchdog() {
        let error = Watchdog::new().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Spawn);
        assert!(error.help().is_some_and(|help| help.contains("guardian::init()")), "{error}");
    }
}
