//! Requests of a fleet to its backend, and the answers.
//!
//! Each request is one atomic step. The caller makes the ids, so a request whose reply was lost is repeated as it was: the
//! backend finds its own id and gives the same answer again.

#![allow(clippy::large_enum_variant, reason = "an answer is moved once, and a box would cost an allocation")]

use std::time::Duration;

use serde_json::Value;
use uuid::Uuid;

use crate::id::{AttemptId, Name, NodeId, PromptId, QuestionId, Term, Timestamp};
use crate::record::{NameRecord, NodeRecord, PromptContent, PromptOutcome, PromptRecord, QuestionRecord};

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

/// The ownership of a name, as a claim gives it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ownership {
    /// The name.
    pub name: Name,
    /// The owner's node.
    pub node: NodeId,
    /// The owner's term.
    pub term: Term,
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
}

/// Bounds for prompts that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueBounds {
    /// For each name.
    pub name: u32,
    /// For each tenant.
    pub tenant: u32,
    /// For the whole fleet.
    pub fleet: u32,
}

/// A prompt to be accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct Accept {
    /// The id, chosen by the caller.
    pub prompt: PromptId,
    /// The session. It is created if there is none of the name.
    pub name: Name,
    /// The profile. Another one than that of the known name is refused.
    pub profile: String,
    /// The tenant. Another one than that of the known name is refused.
    pub tenant: String,
    /// The id of the conversation, if the session is created.
    pub conversation: Uuid,
    /// The host to which a session that is created is bound.
    pub host: Option<String>,
    /// The application's key for this prompt, unique in its session.
    pub key: Option<String>,
    /// The content.
    pub content: PromptContent,
    /// How often the continuation may be sent.
    pub continuations: u32,
    /// The earliest moment at which the prompt may begin.
    pub not_before: Option<Timestamp>,
    /// How long the prompt may wait, from the moment at which it may begin.
    pub wait: Duration,
    /// The bounds for prompts that wait.
    pub bounds: QueueBounds,
}

/// The answer to [`Accept`].
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Accepted {
    /// The prompt is kept, and will end with one outcome.
    New(PromptRecord),
    /// The key was used before, with the same content: this is the prompt that exists.
    Duplicate(PromptRecord),
    /// The prompt was not accepted.
    Refused(Refused),
}

/// The reason why a prompt was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// Too many prompts wait.
    #[error("{bound} prompts already wait {of}: try again when some have run, or raise the bound")]
    QueueFull {
        /// The owner of the queue, in words, such as `for the session`.
        of: &'static str,
        /// Its bound.
        bound: u32,
    },
    /// The name belongs to another profile.
    #[error(
        "the session has the profile '{known}', and the prompt names another one: use that profile or another name"
    )]
    ProfileMismatch {
        /// The session's profile.
        known: String,
    },
    /// The name belongs to another tenant.
    #[error("the session belongs to another tenant than the prompt: use another name")]
    TenantMismatch,
    /// The key was used before for another content.
    #[error("the key was used before for another prompt, {prompt}: give each prompt a key of its own")]
    KeyReused {
        /// The prompt that has the key.
        prompt: PromptId,
    },
    /// The session is being deleted.
    #[error("the session is being deleted: try again when that is done")]
    Deleting,
}

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
    /// The node owns the name.
    Won {
        /// The name's record, with the new term.
        record: NameRecord,
        /// A prompt that the last owner had begun and that goes on with its continuation. Begin it before all that
        /// wait.
        continues: Option<PromptId>,
    },
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

/// The start of a prompt, written down before its first byte is sent to a CLI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begin {
    /// The owner.
    pub owner: Ownership,
    /// The prompt.
    pub prompt: PromptId,
    /// The id of this attempt.
    pub attempt: AttemptId,
    /// The money to reserve. `None`: the tenant has no budget.
    pub reserve: Option<Reserve>,
}

/// Money to be reserved for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// The start of the budget period.
    pub period: Timestamp,
    /// The budget of the period, in micro-dollars.
    pub budget: u64,
    /// The money to reserve for this turn, in micro-dollars.
    pub amount: u64,
}

/// The answer to [`Begin`].
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Begun {
    /// The prompt may be sent, now and never again.
    Send(Value),
    /// The prompt does not wait any more: it ended, or another attempt began with it.
    NotQueued(PromptRecord),
    /// The prompt waited for too long, and has ended as unsent.
    Expired,
    /// The prompt is a reminder, and may not begin before this moment.
    NotDue(Timestamp),
    /// Another prompt of the name was begun by a lost owner and goes on with its continuation first: begin that one.
    NotItsTurn(PromptId),
    /// Another prompt of the name runs.
    Busy(PromptId),
    /// The budget of the tenant has no room for the turn.
    OverBudget {
        /// Money left, in micro-dollars.
        left: u64,
    },
    /// The prompt is not known.
    Gone,
}

/// Messages of a running turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Append {
    /// The owner.
    pub owner: Ownership,
    /// The prompt.
    pub prompt: PromptId,
    /// The number of the first of the messages. Messages that are there already are passed over.
    pub first_seq: u64,
    /// The messages, as JSON.
    pub messages: Vec<String>,
    /// The bound for the messages that are kept of a turn, in bytes. Messages past it are counted and dropped.
    pub bound: u64,
}

/// The end of a turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Finish {
    /// The owner.
    pub owner: Ownership,
    /// The prompt.
    pub prompt: PromptId,
    /// The attempt that began it.
    pub attempt: AttemptId,
    /// The outcome.
    pub outcome: PromptOutcome,
    /// The cost of the turn, in micro-dollars.
    pub cost: u64,
}

/// The answer to [`Finish`].
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Finished {
    /// The prompt has this outcome now, or had it already from this attempt.
    Ended,
    /// The prompt does not run by this attempt: it waits, runs by another attempt, or has ended with another outcome.
    NotBegun(PromptRecord),
    /// The prompt is not known.
    Gone,
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

/// The answer to a request to withdraw a prompt.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Withdrawn {
    /// The prompt had not begun, and ends as unsent.
    Unsent,
    /// The prompt has begun or ended.
    TooLate(PromptRecord),
    /// The prompt is not known.
    Gone,
}

/// The answer to a request to delete a session.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Deletion {
    /// The name is marked. Remove its files, then call `deleted`.
    Marked(NameRecord),
    /// A living node owns the name: have the node give the name back first.
    Owned(NodeId),
    /// The name is not known.
    Gone,
}

/// A question to be asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// The owner.
    pub owner: Ownership,
    /// The id, chosen by the caller.
    pub question: QuestionId,
    /// The turn in which it is asked. It has to be running.
    pub prompt: PromptId,
    /// The time until it counts as denied.
    pub wait: Duration,
    /// The question: its kind and its fields.
    pub body: Value,
}

/// The answer to an answer.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Answered {
    /// This answer decided the question.
    Decided(QuestionRecord),
    /// The question had been decided before, or its deadline has passed.
    TooLate(QuestionRecord),
    /// The question is not known, or ended with its turn.
    Gone,
}

/// A message of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMessage {
    /// Its number in the turn, from 1.
    pub seq: u64,
    /// Its JSON.
    pub json: String,
}

/// A change that was made durable. A hint: a reader that missed changes reads the records again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// A prompt waits that did not wait before.
    Queued(Name),
    /// A name was given back, or left by its owner.
    Freed(Name),
    /// A turn has further messages.
    Messages(PromptId),
    /// A prompt has its outcome.
    Ended(PromptId),
    /// A question was asked.
    Asked(QuestionId),
    /// A question was decided, or ended with its turn.
    Decided(QuestionId),
}

/// A page of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Names after this one, in the order of their bytes.
    pub after: Option<Name>,
    /// The length of the page.
    pub limit: usize,
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
