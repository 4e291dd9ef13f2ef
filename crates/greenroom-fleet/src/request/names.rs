//! Requests about names, their owners, and the nodes that own them.

use std::time::Duration;

use uuid::Uuid;

use super::Ownership;
use crate::id::{AttemptId, Name, NodeId, Tenant};
use crate::limits::Quota;
use crate::record::{CommandRecord, NameRecord, PromptRecord, QuarantineKind};

/// A request to own a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The name.
    pub name: Name,
    /// The node that asks.
    pub node: NodeId,
    /// The id of this attempt.
    pub attempt: AttemptId,
    /// Lost owners in a row after which the name is quarantined.
    pub losses: u32,
    /// The quota of the tenant, if the backend has none for it.
    pub quota: Quota,
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
    /// The tenant has as many names with an owner as its quota allows: ask again when one of them is free.
    AtCap,
    /// A turn of the name is parked: nothing runs in it until the question is decided.
    Parked,
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
    /// The rule by which the failure is counted. `None`: it is no fault of the session, and is not counted.
    pub counted: Option<Counted>,
}

/// The rule by which failures of a name are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The kind of the quarantine that follows.
    pub kind: QuarantineKind,
    /// The time in which failures are counted together.
    pub period: Duration,
    /// The number of failures in the period after which the name is quarantined.
    pub intensity: u32,
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

/// The deletion of a name that goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Erasure {
    /// The conversation that the name had. A session of the same name that is made anew has another one.
    pub conversation: Uuid,
    /// The hosts that had files of the name when it was marked.
    pub hosts: Vec<String>,
}

/// Files of a deleted name on a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FilesLeft {
    /// The host.
    pub host: String,
    /// The conversation, whose id is the name of their folder.
    pub conversation: Uuid,
    /// The name. A session that was made anew may have it.
    pub name: Name,
}

/// Rows about a host that were dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForgottenFiles {
    /// Names with files on the host.
    pub files: usize,
    /// Processes that lost owners have left there.
    pub processes: usize,
}

/// The answer to a request to bind a name to another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum HostMove {
    /// The name is bound to the host.
    Done,
    /// A living node owns the name, or it is being deleted or moves to another backend.
    NotAtRest,
    /// The name is bound to no host.
    NotBound,
    /// No node of the host is alive.
    NoNode,
    /// The name is not known.
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
    /// The name is not known.
    Gone,
}

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

/// The answer to a command that is put.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum CommandPut {
    /// The command is kept, now or since it was put before.
    Put(CommandRecord),
    /// The node does not own the name under this term, or is dead, the turn to interrupt does not run, or the deadline has passed.
    Gone,
    /// The name has [`CommandRecord::NAME`] commands that have not ended, its tenant has [`CommandRecord::TENANT`] on
    /// the node, or the node has [`CommandRecord::NODE`].
    Full,
}

/// A page of names that can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingPage {
    /// The node that looks for work.
    pub node: NodeId,
    /// Only these names, at most [`Page::MOST`](super::Page::MOST). `None`: all.
    pub of: Option<Vec<Name>>,
    /// Tenants to leave out.
    pub without: Vec<Tenant>,
    /// Profiles of the names. Names of other profiles are passed over. `None`: any profile.
    pub profiles: Option<Vec<String>>,
    /// Names after this place. `None`: from the beginning.
    pub after: Option<WaitingCursor>,
    /// The length of the page: no more names are looked at, and never more than [`Page::MOST`](super::Page::MOST). A page may be
    /// shorter before the end, because names are passed over.
    pub limit: usize,
}

/// The answer to a [`WaitingPage`].
#[derive(Clone, Debug, PartialEq)]
pub struct WaitingNames {
    /// A prompt for each name: by tenants, in the order of their bytes, then in the order in which the names' first prompts that
    /// wait were accepted.
    pub prompts: Vec<PromptRecord>,
    /// A profile that the page leaves out, and of which a name could run otherwise.
    pub other_profile: Option<String>,
    /// The place at which the next page begins. `None`: this is the last page.
    pub next: Option<WaitingCursor>,
}

/// A place in the list of names that can run, as an answer gives it: the end of a row's key, or the beginning that several share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingCursor(pub(crate) Vec<u8>);
