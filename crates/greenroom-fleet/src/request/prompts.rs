//! Requests about prompts that wait.

use std::time::Duration;

use uuid::Uuid;

use super::refused::Refused;
use crate::id::{Name, PromptId, Timestamp};
use crate::limits::{QueueBounds, Quota};
use crate::record::label::Labels;
use crate::record::{PromptContent, PromptRecord};

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
    /// The quota of the tenant, if the backend has none for it.
    pub quota: Quota,
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
