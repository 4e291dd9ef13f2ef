//! Facts about names, prompts, questions and nodes, as a backend keeps them.
//!
//! ```text
//! A name                                     claim
//!                                  ┌───────────────────┐ by the next owner: the term grows
//!            accept        claim   ▼                   │
//!  (no row) ───────► Free ───────► Owned ──────────────┘
//!                     ▲ ▲            │ release, recover
//!                     │ └────────────┤
//!         unquarantine│              ▼ too many failures or losses, or `quarantine`
//!                     └──────── Quarantined
//!  any ── delete ──► Deleting ── deleted ──► (no row)
//!  Free, Quarantined ── depart ──► Departing ── departed ──► (no row; the name is in another backend)
//!
//! A prompt
//!             accept
//!               ▼    withdraw, expiry, delete
//!  ┌────────► Queued ─────────────────────────────► Ended (unsent; interrupted, if it had begun)
//!  │      begin │ ▲ reject, if nothing has run
//!  │            ▼ │  finish, reject
//!  │          Begun ──────────────────────────────► Ended
//!  │            │ park       withdraw, delete
//!  │            ├──► Parked ──────────────────────► Ended (interrupted)
//!  ├────────────│──────┘ its question is decided: the turn goes on with the call
//!  │            │ claim by a later term, recover: as `park` if its question is open, or decided and not handed over; else
//!  │            ├── without a continuation ───────► Ended (interrupted: owner lost)
//!  └────────────┘ with a continuation, which is sent in place of the prompt
//!
//!  A turn that the CLI has begun by itself is Begun from its first row on, and never Queued.
//! ```
//!
//! A turn is parked while a person decides on one of its tool calls and no CLI waits for the decision. Nothing of its name runs meanwhile.

mod cause;
mod command;
mod hold;
pub(crate) mod label;
mod node;
mod outcome;
mod quarantine;
mod question;
pub(crate) mod usage;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::id::{AttemptId, Name, NodeId, PromptId, QuestionId, Term, Timestamp};
use crate::record::label::Labels;
use crate::record::usage::Usage;

pub use cause::Cause;
pub use command::{CommandKind, CommandRecord, CommandResult, CommandState};
pub use hold::{Credential, Hold, InvalidCredential, PromptHold, Trying};
pub use node::{NodeRecord, NodeState, ProcessRecord};
pub use outcome::{InterruptedBy, PromptOutcome, Unsent};
pub use quarantine::{Quarantine, QuarantineKind};
pub use question::{Decision, QuestionRecord};

/// A named session. A node of an older version drops the fields that it does not know. A later fact that has to survive such a node needs a
/// row of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NameRecord {
    /// The name.
    pub name: Name,
    /// The profile that builds its session, fixed by the first prompt.
    pub profile: String,
    /// The host to which the session is bound by its files. `None`: any host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The id of the conversation, chosen before its first start.
    pub conversation: Uuid,
    /// When the name was first used.
    pub created_at: Timestamp,
    /// The term of the last owner; 0 before the first.
    pub term: Term,
    /// The state.
    pub state: NameState,
    /// Prompts that wait, reminders included.
    pub queued: u32,
    /// Reminders among them.
    pub reminders: u32,
    /// Reminders that have become ready. Counted so that the record changes when a reminder joins the queue: commits expect the record,
    /// and not the range of the queue.
    pub(crate) ripened: u64,
    /// Its place in the list of names that can run: the order of its first prompt that may begin. `None`: it cannot run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) listed: Option<u64>,
    /// It stands in the list of stuck names.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) stuck: bool,
    /// The order of its newest prompt.
    pub(crate) last_order: u64,
    /// The prompt that a CLI has begun with and not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<PromptId>,
    /// The turn that the session's CLI has begun by itself and not ended. A prompt that was sent as the turn began runs beside it: the CLI
    /// does one after the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cli_turn: Option<PromptId>,
    /// The prompt that goes on before all that wait: with its continuation after its owner was lost, or with the tool call on which a person
    /// has decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<PromptId>,
    /// The prompt whose turn is parked: a person has to decide on a tool call before it goes on. Nothing else of the name runs meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<PromptId>,
    /// Moments of the latest failed activations; empty after a turn that completed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Timestamp>,
    /// Owners that were lost with a turn running, since the last turn that completed.
    pub losses: u32,
    /// The reason for which the name is quarantined as soon as its owner gives it up or is lost, such as a gap in the
    /// transcript; of a name that moves to another backend, the reason for which it was quarantined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Quarantine>,
    /// The cause for which the session could not be started last, or for which a node has held it back, in words: 1 KiB at most. `None`
    /// once a prompt has begun since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<String>,
    /// The credential for which a node has found its prompts waiting last. `None` once a prompt has begun since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) held_by: Option<Credential>,
    /// Its labels.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}

impl NameRecord {
    /// True if somebody has to look at the name: it is quarantined, being deleted or moving away, or it has failed activations or lost
    /// owners since the last turn that completed.
    pub fn is_stuck(&self) -> bool {
        !matches!(self.state, NameState::Free | NameState::Owned { .. })
            || !self.failures.is_empty()
            || self.losses > 0
    }

    /// The turns that run, in the order in which the CLI does them.
    pub(crate) fn turns(&self) -> impl Iterator<Item = PromptId> + use<> {
        [self.cli_turn, self.running].into_iter().flatten()
    }

    /// The reason for which its prompts wait, as far as it is known.
    pub(crate) fn waits_because(&self) -> Option<String> {
        match &self.state {
            NameState::Quarantined { why, .. } => Some(format!("the session is quarantined: {why}")),
            _ if self.parked.is_some() => {
                Some("a turn of the session is parked: it waits for a person's answer".to_owned())
            }
            _ => self.last_failure.clone(),
        }
    }

    /// True if no turn of the name runs, and none is parked.
    pub(crate) fn is_between_turns(&self) -> bool {
        self.turns().next().is_none() && self.parked.is_none()
    }

    /// The order of its next prompt: now in milliseconds, or one more than the order of its last prompt if that is greater.
    pub(crate) fn next_order(&mut self, now: Timestamp) -> u64 {
        self.last_order = now.0.max(self.last_order + 1);
        self.last_order
    }
}

/// The state of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
#[non_exhaustive]
pub enum NameState {
    /// No node owns the name.
    Free,
    /// A node owns the name.
    Owned {
        /// The node.
        node: NodeId,
        /// The claim that made it the owner.
        claim: AttemptId,
        /// When it became the owner.
        since: Timestamp,
    },
    /// The name is not activated until somebody calls `unquarantine`. Its prompts wait.
    Quarantined {
        /// The kind of the reason.
        kind: QuarantineKind,
        /// The reason.
        why: String,
        /// When it was quarantined.
        since: Timestamp,
    },
    /// The name is being deleted: its files are removed, then its row.
    Deleting {
        /// Since when.
        since: Timestamp,
    },
    /// The name moves to another backend: nobody claims it, and it accepts no prompt.
    Departing {
        /// Since when.
        since: Timestamp,
        /// The id of the other backend.
        to: Uuid,
        /// The name is there, and its rows are removed here.
        arrived: bool,
    },
}

/// A prompt, without its content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PromptRecord {
    /// The id.
    pub id: PromptId,
    /// The session.
    pub name: Name,
    /// The application's key, by which a repeated prompt is recognised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Its labels.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// When the prompt was accepted.
    pub accepted_at: Timestamp,
    /// The earliest moment at which the prompt may begin: `accepted_at`, or later for a reminder.
    pub due_at: Timestamp,
    /// When the prompt ends as unsent if no CLI has begun with it. It moves while the credential of the session is held.
    pub expires_at: Timestamp,
    /// Who has begun the turn.
    #[serde(default, skip_serializing_if = "PromptOrigin::is_application")]
    pub origin: PromptOrigin,
    /// The place of the prompt: it grows with each prompt of the session. Of two sessions, the one whose prompt has the lower place
    /// has waited longer.
    pub order: u64,
    /// The state.
    pub state: PromptState,
    /// How often a CLI began with the prompt or with its continuation.
    pub begins: u32,
    /// How often the prompt may still go on with its continuation after its owner was lost.
    pub continuations: u32,
    /// The money reserved for the running turn, in micro-dollars.
    pub reserved: u64,
    /// Bytes of its content and of its outcome, as far as they are kept.
    pub bytes: u64,
    /// Hash of the content, to detect a reused key.
    pub(crate) digest: Uuid,
    /// The number of the last message of the turn; 0 without messages. Messages are numbered from 1, over all its terms.
    pub last_seq: u64,
    /// Bytes of the messages that are kept.
    pub kept_bytes: u64,
    /// Messages that were not kept because the turn was over its bound.
    pub dropped: u64,
    /// Questions that were asked in the turn, over all its terms.
    pub(crate) asked: u32,
    /// Its time under limits of the API, and its rejections.
    #[serde(default, skip_serializing_if = "hold::Waited::is_nothing")]
    pub(crate) waited: hold::Waited,
    /// Questions about tool calls whose decisions no CLI has got. With one, the turn can be parked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) calls: Vec<QuestionId>,
    /// The attempt that was parked last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parked_by: Option<AttemptId>,
    /// The usage of its runs, as far as their CLIs reported it, also if the turn was interrupted or has failed.
    #[serde(default, skip_serializing_if = "Usage::is_nothing")]
    pub usage: Usage,
}

impl PromptRecord {
    /// True if the prompt had to wait for a moment when it was accepted.
    pub fn is_reminder(&self) -> bool {
        self.due_at > self.accepted_at
    }

    /// True if the turn goes on with the tool call for which it was parked.
    pub(crate) fn goes_on_with_call(&self) -> bool {
        self.parked_by.is_some() && !self.calls.is_empty()
    }

    /// True if the prompt may begin at this moment of the backend's clock. A prompt that is no reminder may begin at any moment,
    /// also if the clock was set back since it was accepted, and so may one that goes on with its continuation.
    pub fn is_due(&self, now: Timestamp) -> bool {
        !self.is_reminder() || self.begins > 0 || self.due_at <= now
    }
}

/// Who has begun a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PromptOrigin {
    /// The application has sent the prompt.
    #[default]
    Application,
    /// The session's CLI has begun the turn by itself: a background task has ended, or a schedule of the session's was due. The record
    /// stands for a prompt that nobody has sent; it has no content.
    Cli,
}

impl PromptOrigin {
    fn is_application(&self) -> bool {
        *self == Self::Application
    }
}

/// The state of a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
#[non_exhaustive]
pub enum PromptState {
    /// The prompt waits.
    Queued,
    /// A CLI may have begun with the prompt.
    Begun {
        /// The term of the owner.
        term: Term,
        /// The attempt.
        attempt: AttemptId,
        /// When it began.
        at: Timestamp,
    },
    /// A person has to decide on a tool call before the turn goes on. No CLI runs, and no slot is held.
    Parked {
        /// The question.
        question: QuestionId,
        /// When the turn was parked.
        at: Timestamp,
    },
    /// The prompt has its outcome.
    Ended {
        /// When it ended.
        at: Timestamp,
        /// The attempt that ended it; `None` if the backend did, or if no attempt was made.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt: Option<AttemptId>,
    },
}

/// The content of a prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PromptContent {
    /// The prompt, as [`greenroom::Prompt`](https://docs.rs/greenroom) is serialised.
    pub prompt: Value,
    /// The prompt that is sent instead when an owner was lost after it had begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continuation: Option<Value>,
}

/// The account of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TenantRecord {
    /// Prompts that wait, without reminders.
    pub queued: u32,
    /// Reminders that wait.
    pub reminders: u32,
    /// Sessions, awake or asleep.
    pub names: u64,
    /// Sessions that have an owner.
    pub live: u32,
    /// Turns that are parked.
    #[serde(default)]
    pub parked: u32,
    /// Bytes of the prompts that wait.
    pub waiting_bytes: u64,
    /// Bytes that are kept of its prompts.
    pub kept_bytes: u64,
    /// The start of the budget period that `spent` belongs to.
    pub period: Timestamp,
    /// Money spent in the period, in micro-dollars. A turn without a cost, such as that of a lost owner, counts as its reserve.
    pub spent: u64,
    /// Money reserved for running turns, in micro-dollars.
    pub reserved: u64,
}
