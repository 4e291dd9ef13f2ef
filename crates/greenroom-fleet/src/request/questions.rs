//! Requests about questions that sessions ask people.

use std::time::Duration;

use serde_json::Value;

use super::Ownership;
use crate::id::{PromptId, QuestionId};
use crate::record::QuestionRecord;

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
    /// This answer decided the question, now or when it was given before.
    Decided(QuestionRecord),
    /// The question had been decided before, or its deadline has passed.
    TooLate(QuestionRecord),
    /// The question is not known, or ended undecided with its turn.
    Gone,
}
