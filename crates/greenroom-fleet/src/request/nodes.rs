//! Requests about nodes.

use std::time::Duration;

use crate::id::NodeId;
use crate::record::NodeRecord;

/// A node that joins the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    /// The id of this start of the process.
    pub node: NodeId,
    /// The name of the host, stable over restarts.
    pub host: String,
    /// The length of the lease.
    pub lease: Duration,
    /// Sessions that the node can have live at a time.
    pub capacity: u32,
}

/// The answer to a renewal.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Renewed {
    /// The lease goes on.
    Kept(NodeRecord),
    /// The node counts as dead. It has to end its sessions, and joins again with a new id.
    Dead,
}
