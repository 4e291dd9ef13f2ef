//! Requests about turns that run, and about the questions that they ask people.

use std::time::Duration;

use serde_json::Value;

use super::Ownership;
use crate::id::{AttemptId, Name, PromptId, QuestionId, Tenant};
use crate::limits::Quota;
use crate::record::usage::Usage;
use crate::record::{Credential, PromptOutcome, QuestionRecord};

/// The start of a prompt, written down before its first byte is sent to a CLI.
#[derive(Clone, Debug, PartialEq)]
pub struct Begin {
    /// The owner.
    pub owner: Ownership,
    /// The prompt.
    pub prompt: PromptId,
    /// The id of this attempt.
    pub attempt: AttemptId,
    /// The quota of the tenant, if the backend has none for it. Money is set aside for the turn if it has a budget.
    pub quota: Quota,
    /// The credential of the session. `None`: it is not known, and no hold keeps the prompt from beginning.
    pub credential: Option<UsedCredential>,
}

/// The credential of a session whose prompt begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedCredential {
    /// The credential.
    pub credential: Credential,
    /// The node knows that the credential is held, and ends the try of this attempt. Otherwise a begin is refused while it is held.
    pub may_try: bool,
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

/// A turn whose CLI has ended while a person decides on a tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct Park {
    /// The owner.
    pub owner: Ownership,
    /// The prompt.
    pub prompt: PromptId,
    /// The attempt that began it.
    pub attempt: AttemptId,
    /// The cost of the turn so far, in micro-dollars. `None`: it is not known, and the turn costs what was set aside for it.
    pub cost: Option<u64>,
    /// The usage of the turn so far. `None`: it is not known.
    pub usage: Option<Usage>,
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
    /// The cost of the turn, in micro-dollars. `None`: its CLI has not told it, and the turn costs what was set aside for it.
    pub cost: Option<u64>,
    /// The usage of the turn. `None`: its CLI has not reported it.
    pub usage: Option<Usage>,
    /// The reason to quarantine the name as soon as the owner gives it up or is lost. `None`: there is no new reason.
    pub quarantine: Option<String>,
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
    /// The id of the tool call that it is about, if the turn may be parked until it is decided.
    pub call: Option<String>,
    /// The question: its kind and its fields.
    pub body: Value,
}

/// The open questions to be listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuestionsOf {
    /// Those of all tenants.
    All,
    /// Those of a tenant.
    Tenant(Tenant),
    /// Those of a name.
    Session(Name),
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
