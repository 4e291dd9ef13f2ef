//! Requests about prompts that wait.

use std::time::Duration;

use uuid::Uuid;

use super::turns::Reserve;
use crate::id::{Name, PromptId, Timestamp};
use crate::label::Labels;
use crate::record::{PromptContent, PromptRecord};

/// Bounds for prompts that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueBounds {
    /// For each name.
    pub name: u32,
    /// For each tenant. Prompts of several sessions that are accepted at the same moment may be over it together.
    pub tenant: u32,
    /// For the whole fleet, in the same way.
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
    /// The id of the conversation, if the session is created.
    pub conversation: Uuid,
    /// The host to which a session that is created is bound.
    pub host: Option<String>,
    /// The application's key for this prompt, unique in its session.
    pub key: Option<String>,
    /// The labels of the prompt.
    pub labels: Labels,
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
    /// The tenant's budget and what is set aside for a turn. `None`: the tenant has no budget.
    pub budget: Option<Reserve>,
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
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
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
    /// The tenant has spent its budget of this period: what is left is less than what is set aside for a turn.
    #[error("the tenant has spent its budget of this period: try again in the next one, or raise the budget")]
    OverBudget,
    /// The name belongs to another profile.
    #[error(
        "the session has the profile '{known}', and the prompt names another one: use that profile or another name"
    )]
    ProfileMismatch {
        /// The session's profile.
        known: String,
    },
    /// The key was used before for another content.
    #[error("the key was used before for another prompt, {prompt}: give each prompt a key of its own")]
    KeyReused {
        /// The prompt that has the key.
        prompt: PromptId,
    },
    /// The session is quarantined. A prompt that is sent again with its key is found nevertheless.
    #[error(
        "the session is quarantined: {why}; mend the cause and call `unquarantine`, then send the prompt again"
    )]
    Quarantined {
        /// The reason for the quarantine.
        why: String,
    },
    /// The session is being deleted.
    #[error("the session is being deleted: try again when that is done")]
    Deleting,
    /// The session moves to another backend.
    #[error("the session moves to another backend: try again there when that is done")]
    Moving,
}

/// The answer to a request to withdraw a prompt.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Withdrawn {
    /// The prompt had not begun, and ends as unsent.
    Unsent,
    /// A lost owner had begun with the prompt, which waited to go on with its continuation: the turn ends as interrupted by
    /// the user.
    Interrupted,
    /// The prompt runs or has ended.
    TooLate(PromptRecord),
    /// The prompt is not known.
    Gone,
}
