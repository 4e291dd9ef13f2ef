//! The lease of the node.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::duty::{Duty, NextMoment};
use super::watch::{NodeWatch, counts_as_dead};
use crate::actor::context::FleetShared;
use crate::backend::Requests;
use crate::error::{BackendError, BackendErrorKind};
use crate::request::Owned;

/// The longest wait for the answer to a renewal.
const ATTEMPT: Duration = Duration::from_secs(2);

/// Renews the lease, and tells the watch over the other nodes whether the backend has answered.
pub(super) async fn renew(shared: &FleetShared, watch: &NodeWatch) -> NextMoment {
    let lease = shared.limits.lease;
    let sent = shared.fence.now();
    let began = Instant::now();
    let renewal = shared.backend.renew(shared.node, lease, shared.draining.is_cancelled());
    let limit = ATTEMPT.min(lease / 6);
    let renewed = timeout(limit, renewal).await.unwrap_or_else(|_| {
        let text = format!("the backend has not renewed the lease within {limit:?}");
        Err(BackendError::new(BackendErrorKind::Unavailable, text))
    });
    watch.renewed(renewed.is_ok(), shared);
    match renewed? {
        Owned::Done(node) => {
            if let Err(error) = shared.fence.hold(sent).await {
                // The guardian ends the sessions at the fence before, and so does this node, unless the next try succeeds.
                tracing::error!(%error, "the lease was renewed, but counts only with a guardian that knows it");
                return Ok(Instant::now() + Duty::Renew.pause_after_failure());
            }
            if node.asked_to_drain && !shared.asked_to_drain.is_cancelled() {
                tracing::info!(node = %shared.node, "an operator has asked this node to drain");
                shared.asked_to_drain.cancel();
            }
        }
        Owned::Fenced => counts_as_dead(shared),
    }
    Ok(began + lease / 6)
}
