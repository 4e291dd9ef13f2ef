//! The lease of the node.

use std::sync::PoisonError;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::steps::KeeperContext;
use crate::actor::context::FleetShared;
use crate::error::{BackendError, BackendErrorKind};
use crate::request::Renewed;

/// The longest wait for the answer to a renewal.
const ATTEMPT: Duration = Duration::from_secs(2);

/// The node holds its lease: the backend has taken a request that was sent at `sent`. The node gives the lease up when four
/// fifths of it have passed since then, before others may take its names.
pub(crate) fn hold_lease(shared: &FleetShared, sent: Instant) {
    let fence = sent + shared.limits.lease * 4 / 5;
    let mut fence_at = shared.fence_at.lock().unwrap_or_else(PoisonError::into_inner);
    *fence_at = fence.max(*fence_at);
}

impl KeeperContext {
    pub(super) async fn renew(&self) -> Result<Instant, BackendError> {
        let shared = &self.shared;
        let lease = shared.limits.lease;
        let sent = Instant::now();
        let renewal = shared.backend.renew(shared.node, lease, shared.draining.is_cancelled());
        let limit = ATTEMPT.min(lease / 6);
        let renewed = timeout(limit, renewal).await.unwrap_or_else(|_| {
            let text = format!("the backend has not renewed the lease within {limit:?}");
            Err(BackendError::new(BackendErrorKind::Unavailable, text))
        });
        if renewed.is_err() {
            self.watch_again();
        }
        match renewed? {
            Renewed::Kept(_) => hold_lease(shared, sent),
            Renewed::Dead => {
                tracing::error!(node = %shared.node, "the backend counts this node as dead");
                shared.lost.cancel();
            }
        }
        Ok(sent + lease / 6)
    }
}
