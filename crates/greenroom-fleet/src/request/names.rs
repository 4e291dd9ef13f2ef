//! Requests about names and their owners.

use std::time::Duration;

use super::Ownership;
use crate::id::{AttemptId, Name, NodeId};
use crate::record::NameRecord;

/// A request to own a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The name.
    pub name: Name,
    /// The node that asks.
    pub node: NodeId,
    /// The id of this attempt.
    pub attempt: AttemptId,
    /// Lost owners in a row after which the name is quarantined.
    pub losses: u32,
}

/// The answer to [`Claim`].
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Claimed {
    /// The node owns the name. The record has the new term. Begin the prompt that [`continues`](NameRecord::continues) before all that
    /// wait.
    Won(NameRecord),
    /// A living node owns the name.
    Elsewhere(NodeId),
    /// The name is bound to another host.
    OtherHost(String),
    /// The name is quarantined, perhaps by this claim: too many owners were lost in a row.
    Quarantined(String),
    /// The name is not known, or is being deleted.
    Gone,
    /// The node is draining or dead.
    NodeDown,
}

/// A failed activation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActivationFailed {
    /// The owner. It gives the name back by this.
    pub owner: Ownership,
    /// The cause, in words.
    pub why: String,
    /// The time in which failures are counted together.
    pub period: Duration,
    /// The number of failures in the period after which the name is quarantined.
    pub intensity: u32,
}

/// The answer to [`ActivationFailed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// The name is free, with this number of failures in the period.
    Free(u32),
    /// The name is quarantined.
    Quarantined,
}

/// The answer to a request to quarantine or to delete a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Marked {
    /// The name is quarantined, or it is marked as being deleted. Remove the files of the latter, then call `deleted` until it is
    /// done. Prompts of a long queue end by these calls.
    Done,
    /// A living node owns the name: have the node give the name back first.
    Owned(NodeId),
    /// The name is not known, or, to be quarantined, is being deleted.
    Gone,
}

/// The answer to a request that a name departs for another backend.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Departure {
    /// The name is marked.
    Marked(NameRecord),
    /// The name has an owner, a prompt that waits or runs, or a process that a lost owner has left, or is being deleted.
    NotAtRest,
    /// The name departs for another backend than this one.
    Elsewhere,
    /// The tenant has no such name.
    Gone,
}
