//! The end of a deletion.

use serde::Serialize;

/// The end of a deletion: nothing of the session is kept but the files that are [`left`](Self::left).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Erased {
    /// The hosts with files of the session. Empty: nothing is left.
    pub left: Vec<LeftOn>,
}

/// A host on which files of a deleted session are left: its working directory, and its transcript if the fleet keeps transcripts in folders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LeftOn {
    /// The host.
    pub host: String,
    /// True if a node of the host is alive. It has not removed the files in time, and goes on with that; the session stays marked until
    /// then. False: the next node of the host that joins removes them.
    pub has_node: bool,
}
