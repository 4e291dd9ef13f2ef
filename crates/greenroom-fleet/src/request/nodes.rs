//! Requests about nodes.

use std::time::Duration;

use crate::id::NodeId;

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
