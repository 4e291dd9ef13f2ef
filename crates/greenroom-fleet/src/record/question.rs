//! Questions for people, and the decisions on them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{AttemptId, Name, PromptId, QuestionId, Term, Timestamp};

/// A question that a session asks a person: a permission, a choice, an elicitation or a dialog.
///
/// Show its [`inquiry`](Self::inquiry), and give the answer to [`FleetTenant::answer`](crate::FleetTenant::answer).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct QuestionRecord {
    /// The id.
    pub id: QuestionId,
    /// The session that asks.
    pub name: Name,
    /// The turn in which it asks.
    pub prompt: PromptId,
    /// The term of the owner that asks.
    pub term: Term,
    /// When the question was asked.
    pub asked_at: Timestamp,
    /// When the question counts as denied.
    pub deadline: Timestamp,
    /// The id of the tool call that it is about, if it can be deferred: the turn may be parked until it is decided. `None`: a CLI has to wait
    /// for the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The turn is parked until the question is decided.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parked: bool,
    /// The term of the owner whose CLI gets the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) handed_to: Option<Term>,
    /// The question: its kind and its fields. See [`inquiry`](QuestionRecord::inquiry).
    pub body: Value,
    /// The decision, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
}

/// The decision on a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Decision {
    /// A person answered.
    Answered {
        /// The answer: see [`answer`](Decision::answer). `null` if the session took the question back, or its CLI could wait no longer.
        answer: Value,
        /// The attempt to answer that decided.
        attempt: AttemptId,
        /// When it was given.
        at: Timestamp,
    },
    /// The deadline passed: the question counts as denied.
    Expired {
        /// When it was noticed.
        at: Timestamp,
    },
}
