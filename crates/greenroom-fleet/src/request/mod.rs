//! Requests of a fleet to its backend, and the answers.
//!
//! Each request is one atomic step. The caller makes the ids, so a request whose reply was lost is repeated as it was: the
//! backend finds its own id and gives the same answer again.

#![allow(clippy::large_enum_variant, reason = "an answer is moved once, and a box would cost an allocation")]

mod between;
mod holds;
mod names;
mod prompts;
mod refused;
mod transcripts;
mod turns;

use serde::{Deserialize, Serialize};

use crate::id::{CommandId, Name, NodeId, PromptId, QuestionId, Tenant};
use crate::record::Credential;

pub use crate::id::Ownership;
pub use crate::limits::Pause;
pub use crate::limits::QueueBounds;
pub use between::NodeMessage;
pub(crate) use between::{NodeNews, Piece};
pub use holds::Reject;
pub use names::{
    ActivationFailed, Claim, Claimed, CommandPut, Counted, Departure, Erasure, FilesLeft, ForgottenFiles,
    HostMove, Join, Marked, WaitingCursor, WaitingNames, WaitingPage,
};
pub use prompts::{Accept, Accepted, Withdrawn};
pub use refused::Refused;
pub use transcripts::{AppendEntries, StoredTranscript, TranscriptsOf};
pub use turns::{Answered, Append, Ask, Begin, Finish, Park, QuestionsOf, UsedCredential};

/// The answer to a request of an owner.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "an owner that was fenced has to end its session at once"]
pub enum Owned<T> {
    /// The request was carried out.
    Done(T),
    /// The term is not the name's last one, or its node is dead: nothing was written, and nothing may be written any more.
    Fenced,
}

impl<T> Owned<T> {
    /// The answer, if the owner was not fenced.
    pub fn done(self) -> Option<T> {
        match self {
            Owned::Done(answer) => Some(answer),
            Owned::Fenced => None,
        }
    }
}

/// A change that was made durable. A hint: a reader that missed changes reads the records again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Change {
    /// A prompt waits that did not wait before.
    Queued(Name),
    /// A name was given back, left by its owner, or lost by a dead node while its prompts wait or run.
    Freed(Name),
    /// A turn has further messages.
    Messages(PromptId),
    /// A prompt has its outcome.
    Ended(PromptId),
    /// A question was asked in a turn, or the turn is parked for it.
    Asked(PromptId, QuestionId),
    /// A question of a turn was decided, or ended with the turn.
    Decided(PromptId, QuestionId),
    /// A name is being deleted, or a host has removed its files of a deleted name.
    Deleting(Name),
    /// A command waits for a node.
    Commanded(NodeId),
    /// A command has its result.
    CommandEnded(CommandId),
    /// The quota of a tenant was set.
    QuotaSet(Tenant),
    /// A credential is held, or held no more, or a prompt tries it.
    Held(Credential),
    /// Changes of other nodes may have been missed: read the records again.
    Missed,
}

/// A message of a turn, or an entry of a transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredText {
    /// Its number in the turn or in the transcript, from 1.
    pub number: u64,
    /// Its JSON.
    pub json: String,
}

/// A page of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Names after this one, in the order of their bytes.
    pub after: Option<Name>,
    /// The length of the page: no more are given, and never more than [`Page::MOST`]. The last page is an empty one.
    pub limit: usize,
}

impl Page {
    /// The length of the longest page.
    pub const MOST: usize = 1024;
}
