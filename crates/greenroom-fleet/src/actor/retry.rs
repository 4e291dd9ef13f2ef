//! Repeats a request to the backend while the backend is unavailable.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};

use super::context::FleetShared;
use crate::backend::Reply;
use crate::error::{BackendError, BackendErrorKind, FleetError};
use crate::event::FleetEvent;
use crate::request::Owned;

/// Bytes up to which a request is repeated without end. A backend may never be able to carry a larger one out in the time that it has for a
/// request.
const LARGE: usize = 1 << 20;

/// The reason why an owner's request was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotDone {
    /// The owner has lost the name, or the node its lease: the session is to be killed, and nothing is written.
    #[error("the fleet has lost its lease, or has ended: open it again")]
    Fenced,
    /// The backend refuses the request for good, or did not carry a large one out in time.
    #[error("{0}")]
    Error(BackendError),
}

impl From<NotDone> for FleetError {
    fn from(not_done: NotDone) -> Self {
        match not_done {
            NotDone::Fenced => FleetError::Ended,
            NotDone::Error(error) => FleetError::Backend(error),
        }
    }
}

/// The pauses between attempts: 50 ms, doubled each time up to 2 s, and to each of them up to its own length by chance.
pub(crate) fn pauses() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(50))
        .with_max_delay(Duration::from_secs(2))
        .without_max_times()
        .with_jitter()
}

/// True for an error after which an owner writes something shorter: the backend cannot keep what the request has.
pub(crate) fn cannot_keep(error: &BackendError) -> bool {
    matches!(error.kind(), BackendErrorKind::Invalid | BackendErrorKind::Unavailable)
}

/// Repeats a request while the backend is unavailable. Ends with `Fenced` when the node has lost its lease.
pub(crate) async fn repeat<'a, T>(
    shared: &'a FleetShared,
    request: impl FnMut() -> Reply<'a, T>,
) -> Result<T, NotDone> {
    repeat_with(shared, pauses(), request).await
}

/// [`repeat`] for a request of an owner.
pub(crate) async fn repeat_owned<'a, T>(
    shared: &'a FleetShared,
    request: impl FnMut() -> Reply<'a, Owned<T>>,
) -> Result<T, NotDone> {
    repeat_sized(shared, 0, request).await
}

/// [`repeat_owned`] for a request that may be large. A large one is given up with the backend's error after pauses of a lease in all: the
/// node renews its lease meanwhile, so the backend carries other requests out. A backend of this process alone, such as a file on a full disk,
/// has no such limit.
pub(crate) async fn repeat_sized<'a, T>(
    shared: &'a FleetShared,
    bytes: usize,
    request: impl FnMut() -> Reply<'a, Owned<T>>,
) -> Result<T, NotDone> {
    let is_bounded = bytes > LARGE && !shared.backend.is_exclusive();
    let pauses = pauses().with_total_delay(is_bounded.then_some(shared.limits.lease));
    repeat_with(shared, pauses, request).await?.done().ok_or(NotDone::Fenced)
}

async fn repeat_with<'a, T>(
    shared: &'a FleetShared,
    pauses: ExponentialBuilder,
    request: impl FnMut() -> Reply<'a, T>,
) -> Result<T, NotDone> {
    let tell = |error: &BackendError, _| {
        shared.tell(FleetEvent::BackendUnavailable { why: error.to_string() });
    };
    tokio::select! {
        biased;
        () = shared.lost.cancelled() => Err(NotDone::Fenced),
        answer = request.retry(pauses).when(BackendError::is_unavailable).notify(tell) => answer.map_err(NotDone::Error),
    }
}
