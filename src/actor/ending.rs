//! The end of a session: asked for, under way, and over.
//!
//! ```text
//!   (runs) ── refuse_prompts ──► stops, in order or failed ──► gone
//!      └────── kill, at any moment ──► killed ─────────────────┘
//! ```

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

use super::base::left::LeftProcesses;
use crate::error::{Error, ErrorKind};

/// The end of a session, as all its actors see it.
pub(crate) struct Ending {
    /// Set when a stop is asked for, before the conversation hears of it.
    refuses_prompts: AtomicBool,
    /// Set when the session begins to stop, also after a failure.
    begun: AtomicBool,
    /// The error with which the session has failed.
    failed: OnceLock<Error>,
    /// Cancelled when the session is killed. Every part that waits for something of its own watches it.
    pub(crate) killed: CancellationToken,
    /// Cancelled when the supervisor has ended: nothing happens in this session after that.
    pub(crate) gone: CancellationToken,
    /// Processes that had not ended in time.
    pub(crate) left: LeftProcesses,
}

impl Ending {
    pub(crate) fn new(killed: CancellationToken, gone: CancellationToken) -> Self {
        Self {
            refuses_prompts: AtomicBool::new(false),
            begun: AtomicBool::new(false),
            failed: OnceLock::new(),
            killed,
            gone,
            left: LeftProcesses::default(),
        }
    }

    /// Has the conversation refuse prompts from now on.
    pub(crate) fn refuse_prompts(&self) {
        self.refuses_prompts.store(true, Ordering::Release);
    }

    pub(crate) fn refuses_prompts(&self) -> bool {
        self.refuses_prompts.load(Ordering::Acquire)
    }

    /// The session begins to stop. A session that stops does not fail again.
    pub(crate) fn begin(&self, failed: Option<&Error>) {
        if let Some(error) = failed {
            // Set once.
            self.failed.set(error.clone()).ok();
        }
        self.begun.store(true, Ordering::Release);
        self.refuse_prompts();
    }

    /// The error with which the session has failed.
    pub(crate) fn failed(&self) -> Option<&Error> {
        self.failed.get()
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.killed.is_cancelled()
    }

    /// The error for a caller when the session has ended.
    pub(crate) fn error(&self) -> Error {
        match self.failed.get() {
            Some(error) => Error::new(ErrorKind::SessionFailed, format!("the session has failed: {error}")),
            None if self.begun.load(Ordering::Acquire) => {
                Error::new(ErrorKind::Stopped, "the session has stopped")
            }
            None => Error::new(
                ErrorKind::SessionFailed,
                "the session was torn down: its actor was killed, or its runtime ended",
            ),
        }
    }
}
