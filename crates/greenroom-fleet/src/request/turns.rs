//! Requests about turns that run.

use serde_json::Value;

use super::Ownership;
use crate::id::{AttemptId, PromptId, Timestamp};
use crate::record::{PromptOutcome, PromptRecord};

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
    /// The number of the first of the messages, at most one more than that of the last one. Messages that are there already are
    /// passed over.
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
    /// The reason to quarantine the name as soon as the owner gives it up or is lost. `None`: there is no new reason.
    pub quarantine: Option<String>,
}
