//! Nodes, as an operator sees them.

use std::time::Duration;

use serde::Serialize;

use crate::backend::Backend;
use crate::error::BackendError;
use crate::pages::all_nodes;
use crate::record::NodeRecord;

/// A node and its lease.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct NodeReport {
    /// The node's record: its host, its state, the names that it owns, and whether it was asked to drain.
    pub record: NodeRecord,
    /// The time since the node joined or last renewed its lease, on the backend's clock.
    pub lease_age: Duration,
    /// False if the lease is over on the backend's clock. Other nodes declare such a node dead soon.
    pub holds_lease: bool,
}

pub(super) async fn nodes(backend: &dyn Backend) -> Result<Vec<NodeReport>, BackendError> {
    let nodes = all_nodes(backend).await?;
    let now = backend.now();
    let report = |record: NodeRecord| NodeReport {
        lease_age: now.since(record.renewed_at),
        holds_lease: now < record.lease_until,
        record,
    };
    Ok(nodes.into_iter().map(report).collect())
}
