//! Reads of the backend for a reader of a turn.

use std::time::Duration;

use backon::Retryable;

use crate::actor::context::FleetShared;
use crate::actor::retry::pauses;
use crate::backend::Reply;
use crate::error::{BackendError, FleetError};

/// The time that a backend has for its answer to a reader when the fleet has ended.
const LAST_ANSWER: Duration = Duration::from_secs(2);

/// Reads from the backend, and waits while it is unavailable and the fleet runs.
pub(super) async fn read<'a, T>(
    shared: &'a FleetShared,
    mut request: impl FnMut() -> Reply<'a, T>,
) -> Result<T, FleetError> {
    let tell = |error: &BackendError, _| tracing::debug!(%error, "a reader waits for the backend");
    tokio::select! {
        biased;
        () = shared.ended.cancelled() => {}
        answer = (|| request()).retry(pauses()).when(BackendError::is_unavailable).notify(tell) => return Ok(answer?),
    }
    // The backend may hang for ever: that may be the reason why the fleet has ended.
    match tokio::time::timeout(LAST_ANSWER, request()).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(FleetError::Ended),
    }
}
