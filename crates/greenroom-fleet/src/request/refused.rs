//! Refusals of prompts.

use std::time::Duration;

use crate::id::PromptId;

/// The time after which a refused prompt may be accepted, where nothing tells a better one.
const SOON: Duration = Duration::from_secs(1);
/// The time after which a prompt is worth another attempt where a person has to act, or time has to pass.
const LATER: Duration = Duration::from_secs(60);

/// The reason why a prompt was not accepted. Nothing of it is kept.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// Too many prompts wait.
    #[error("{bound} {what} already wait {of}: try again when some have run, or raise the bound")]
    QueueFull {
        /// `prompts` or `reminders`.
        what: &'static str,
        /// The owner of the queue, in words, such as `for the session`.
        of: &'static str,
        /// Its bound.
        bound: u32,
    },
    /// The prompt is too long.
    #[error(
        "the prompt has {bytes} bytes, and {bound} are the most: shorten it, or raise `QueueBounds::prompt_bytes`"
    )]
    TooLong {
        /// The bytes of the prompt and its continuation, as JSON.
        bytes: u64,
        /// The bound.
        bound: u64,
    },
    /// The prompts of the tenant that wait have too many bytes.
    #[error(
        "the tenant's prompts that wait would have more than {bound} bytes: try again when some have run"
    )]
    WaitingBytes {
        /// The bound, [`Quota::waiting_bytes`](crate::Quota::waiting_bytes).
        bound: u64,
    },
    /// The fleet keeps too many bytes of the tenant.
    #[error(
        "the fleet keeps {bound} bytes of the tenant's prompts, which is its bound: try again when some are forgotten, or raise it"
    )]
    KeptBytes {
        /// The bound, [`Quota::kept_bytes`](crate::Quota::kept_bytes).
        bound: u64,
    },
    /// The tenant has too many sessions.
    #[error("the tenant has {bound} sessions, which is its bound: delete some, or raise it")]
    TooManyNames {
        /// The bound, [`Quota::names`](crate::Quota::names).
        bound: u64,
    },
    /// The tenant sends prompts too fast.
    #[error("the tenant sends prompts faster than its quota allows: try again in {retry_after:?}")]
    TooFast {
        /// The time until the next prompt is accepted.
        retry_after: Duration,
    },
    /// The tenant has spent its budget of this period: what is left is less than what is set aside for a turn.
    #[error(
        "the tenant has spent its budget of this period: try again in {retry_after:?}, when the next one begins, or raise the budget"
    )]
    OverBudget {
        /// The time until the next period.
        retry_after: Duration,
    },
    /// The name belongs to another profile.
    #[error(
        "the session has the profile '{known}', and the prompt names another one: use that profile or another name"
    )]
    ProfileMismatch {
        /// The session's profile.
        known: String,
    },
    /// The fleet has no profile of this name.
    #[error("the fleet has no profile '{0}': add it to the builder")]
    UnknownProfile(String),
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
    /// The fleet has ended, or is draining and knows no other node that can run the session.
    #[error("the fleet is draining, or has ended: send the prompt to the fleet that takes over")]
    Draining,
    /// The prompt cannot be kept.
    #[error("{0}")]
    Invalid(String),
}

impl Refused {
    /// The reason in a word, such as `queue_full`.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::QueueFull { .. } => "queue_full",
            Self::TooLong { .. } => "too_long",
            Self::WaitingBytes { .. } => "waiting_bytes",
            Self::KeptBytes { .. } => "kept_bytes",
            Self::TooManyNames { .. } => "too_many_names",
            Self::TooFast { .. } => "too_fast",
            Self::OverBudget { .. } => "over_budget",
            Self::ProfileMismatch { .. } => "profile_mismatch",
            Self::UnknownProfile(_) => "unknown_profile",
            Self::KeyReused { .. } => "key_reused",
            Self::Quarantined { .. } => "quarantined",
            Self::Deleting => "deleting",
            Self::Moving => "moving",
            Self::Draining => "draining",
            Self::Invalid(_) => "invalid",
        }
    }

    /// The time after which the prompt may be accepted. `None`: change the prompt first.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::QueueFull { .. }
            | Self::WaitingBytes { .. }
            | Self::Deleting
            | Self::Moving
            | Self::Draining => Some(SOON),
            Self::KeptBytes { .. } | Self::Quarantined { .. } => Some(LATER),
            Self::TooFast { retry_after } | Self::OverBudget { retry_after } => Some(*retry_after),
            Self::TooLong { .. }
            | Self::TooManyNames { .. }
            | Self::ProfileMismatch { .. }
            | Self::UnknownProfile(_)
            | Self::KeyReused { .. }
            | Self::Invalid(_) => None,
        }
    }
}
