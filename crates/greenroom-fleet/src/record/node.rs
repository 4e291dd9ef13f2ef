//! Nodes and the processes that they run.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{Name, NodeId, Term, Timestamp};

/// A process that runs sessions of the fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeRecord {
    /// The id of this start of the process.
    pub id: NodeId,
    /// The name of the host, stable over restarts.
    pub host: String,
    /// The state.
    pub state: NodeState,
    /// Renewals so far. A node whose counter stands still for a lease is dead.
    pub renewals: u64,
    /// When the node joined or last renewed its lease, on the backend's clock.
    pub renewed_at: Timestamp,
    /// The end of the lease on the backend's clock.
    pub lease_until: Timestamp,
    /// Names that the node owns.
    pub owns: u32,
    /// Sessions that the node can have live at a time: its `limits.live`.
    pub capacity: u32,
    /// An operator has asked the node to drain.
    pub asked_to_drain: bool,
}

impl NodeRecord {
    pub(crate) fn is_alive(&self) -> bool {
        self.state != NodeState::Dead
    }
}

/// A process group that runs the session of a name, kept for the case that its owner is lost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProcessRecord {
    /// The name.
    pub name: Name,
    /// The term of the owner that runs the process.
    pub term: Term,
    /// The owner's node.
    pub node: NodeId,
    /// The node's host, on which the process runs.
    pub host: String,
    /// The identity of the process group, as the owner gave it.
    pub process: Value,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NodeState {
    /// The node takes names.
    Up,
    /// The node gives its names back and takes no others.
    Draining,
    /// The node has ended, or lost its lease. This is final: a process that comes back joins with a new id.
    Dead,
}
