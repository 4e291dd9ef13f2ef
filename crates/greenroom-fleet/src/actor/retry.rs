//! Repeats a request to the backend while the backend is unavailable.

use std::time::Duration;

use super::context::FleetShared;
use crate::backend::Reply;
use crate::error::{BackendError, BackendErrorKind};
use crate::event::FleetEvent;
use crate::request::Owned;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);

/// The reason why an owner's request was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotDone {
    /// The owner has lost the name, or the node its lease: the session is to be killed, and nothing is written.
    #[error("the fleet has lost its lease, or has ended: open it again")]
    Fenced,
    /// The backend refuses the request for good.
    #[error("{0}")]
    Error(BackendError),
}

/// Repeats a request until the backend answers. Ends with `Fenced` when the node has lost its lease.
pub(crate) async fn repeat<'a, T>(
    shared: &'a FleetShared,
    mut request: impl FnMut() -> Reply<'a, T>,
) -> Result<T, NotDone> {
    let mut pause = FIRST;
    loop {
        let answer = tokio::select! {
            biased;
            () = shared.lost.cancelled() => return Err(NotDone::Fenced),
            answer = request() => answer,
        };
        match answer {
            Ok(answer) => return Ok(answer),
            Err(error) if error.kind() == BackendErrorKind::Unavailable => {
                shared.tell(FleetEvent::BackendUnavailable { why: error.to_string() });
            }
            Err(error) => return Err(NotDone::Error(error)),
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST),
            () = shared.lost.cancelled() => return Err(NotDone::Fenced),
        }
    }
}

/// [`repeat`] for a request of an owner.
pub(crate) async fn repeat_owned<'a, T>(
    shared: &'a FleetShared,
    request: impl FnMut() -> Reply<'a, Owned<T>>,
) -> Result<T, NotDone> {
    match repeat(shared, request).await? {
        Owned::Done(answer) => Ok(answer),
        Owned::Fenced => Err(NotDone::Fenced),
    }
}
