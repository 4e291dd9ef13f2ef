//! The health of a node, as a snapshot tells it.

use serde::Serialize;

use crate::id::{Tenant, Timestamp};
use crate::record::{Cause, Credential};

/// The health of a node, in a [`FleetSnapshot`](crate::FleetSnapshot).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "is", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Health {
    /// No cause keeps sessions from starting on this node.
    Healthy,
    /// Sessions cannot start on this node. It tries again, one session at a time.
    Degraded {
        /// The causes, the oldest first; at most 1,024, and 16,384 credentials.
        causes: Vec<Degradation>,
    },
}

/// A cause that keeps sessions of a node from starting.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Degradation {
    /// The cause.
    pub cause: Cause,
    /// The profile whose sessions it holds back. `None`: every profile.
    pub profile: Option<String>,
    /// The tenant whose sessions it holds back. `None`: every tenant.
    pub tenant: Option<Tenant>,
    /// The credential whose sessions it holds back, on all nodes. `None`: the sessions of this node, whatever their credential.
    pub credential: Option<Credential>,
    /// The error of the first session that has failed by it; with a credential, of the last one.
    pub why: String,
    /// When that session failed; with a credential, when the first one did.
    pub since: Timestamp,
    /// When one prompt tries the credential again, on the backend's clock. `None` without a credential.
    pub until: Option<Timestamp>,
    /// Sessions that have failed by it: the first one, and each one that has tried since.
    pub tries: u32,
}
