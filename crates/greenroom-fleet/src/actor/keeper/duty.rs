//! The duties of the keeper, and the ends of their steps.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;

use crate::actor::task::panic_text;
use crate::error::BackendError;

/// Time after which a duty looks at everything, even without a hint.
pub(super) const LOOK: Duration = Duration::from_secs(5);
pub(super) const SECOND: Duration = Duration::from_secs(1);

/// The next moment of a duty, after a step.
pub(super) type NextMoment = Result<Instant, BackendError>;

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A duty of the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    Renew,
    Expire,
    Wake,
    Forget,
    Delete,
    Release,
    Watch,
    Command,
}

impl Duty {
    /// In the order of their numbers.
    pub(crate) const ALL: [Duty; 8] = [
        Duty::Renew,
        Duty::Expire,
        Duty::Wake,
        Duty::Forget,
        Duty::Delete,
        Duty::Release,
        Duty::Watch,
        Duty::Command,
    ];

    /// The shortest time from the beginning of a step to that of the next one.
    pub(super) fn pause_between_steps(self) -> Duration {
        match self {
            Duty::Wake => Duration::from_millis(1),
            Duty::Command => Duration::from_millis(10),
            // A prompt that was accepted just now expires much later.
            Duty::Expire => Duration::from_millis(100),
            Duty::Renew | Duty::Forget | Duty::Delete | Duty::Release | Duty::Watch => Duration::ZERO,
        }
    }

    /// The pause after a step that has failed.
    pub(super) fn pause_after_failure(self) -> Duration {
        match self {
            Duty::Renew => Duration::from_millis(250),
            _ => Duration::from_secs(1),
        }
    }
}

impl fmt::Display for Duty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Duty::Renew => "renew the lease",
            Duty::Expire => "expire prompts and questions",
            Duty::Wake => "wake names",
            Duty::Forget => "forget outcomes",
            Duty::Delete => "finish deletions",
            Duty::Release => "release strangers",
            Duty::Watch => "watch the nodes",
            Duty::Command => "carry out commands of other nodes",
        })
    }
}

/// The end of a step.
#[derive(Debug)]
pub(crate) enum DutyEnd {
    /// The duty's next moment.
    At(Instant),
    /// The backend could not carry out a request.
    Failed(BackendError),
    Panicked(String),
}

impl DutyEnd {
    /// Runs a step to its end.
    pub(super) async fn of(step: impl Future<Output = NextMoment>) -> Self {
        match AssertUnwindSafe(step).catch_unwind().await {
            Ok(Ok(at)) => Self::At(at),
            Ok(Err(error)) => Self::Failed(error),
            Err(panic) => Self::Panicked(panic_text(&*panic).to_owned()),
        }
    }
}
