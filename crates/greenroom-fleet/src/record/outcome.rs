//! Outcomes of prompts.

use std::sync::Arc;

use greenroom::Message;
use greenroom::message::{ResultMessage, Typed};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::Term;

/// The outcome of a prompt. Each accepted prompt ends with exactly one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
#[non_exhaustive]
pub enum PromptOutcome {
    /// The CLI finished the turn.
    Completed {
        /// The CLI's `result` message; `null` if the prompt was appended to the conversation without asking the model.
        result: Value,
        /// The transcript in the backend did not get all entries of the turn, so the conversation may not remember it. The name is
        /// quarantined.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        transcript_lost: bool,
    },
    /// The turn began and was ended early.
    Interrupted {
        /// Who ended the turn.
        by: InterruptedBy,
        /// The CLI's `result` message, if it could still send one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<Value>,
    },
    /// The turn failed.
    Failed {
        /// The kind of the error, in snake case.
        kind: String,
        /// The error's text.
        message: String,
        /// The CLI's `result` message, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<Value>,
    },
    /// No CLI began with the prompt.
    Unsent {
        /// The reason.
        why: Unsent,
    },
}

impl PromptOutcome {
    /// The outcome in one word: `completed`, `interrupted`, `failed` or `unsent`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Completed { .. } => "completed",
            Self::Interrupted { .. } => "interrupted",
            Self::Failed { .. } => "failed",
            Self::Unsent { .. } => "unsent",
        }
    }

    /// True if the CLI finished the turn.
    pub fn is_completed(&self) -> bool {
        matches!(self, PromptOutcome::Completed { .. })
    }

    /// The CLI's `result` message with its typed fields, if there is one: the answer, the usage, the reason of a failure.
    ///
    /// ```
    /// use greenroom_fleet::PromptOutcome;
    ///
    /// let outcome = PromptOutcome::Completed {
    ///     result: serde_json::json!({ "type": "result", "subtype": "success", "result": "Hello.", "num_turns": 1 }),
    ///     transcript_lost: false,
    /// };
    /// assert_eq!(outcome.text(), Some("Hello."));
    /// assert_eq!(outcome.result().unwrap().num_turns, 1);
    /// ```
    pub fn result(&self) -> Option<Arc<Typed<ResultMessage>>> {
        match Message::parse(&self.json()?.to_string()) {
            Ok(Message::Result(result)) => Some(result),
            _ => None,
        }
    }

    /// The model's answer, if the turn was completed.
    pub fn text(&self) -> Option<&str> {
        match self {
            PromptOutcome::Completed { result, .. } => result.get("result")?.as_str(),
            _ => None,
        }
    }

    pub(crate) fn json(&self) -> Option<&Value> {
        match self {
            PromptOutcome::Completed { result, .. } => Some(result),
            PromptOutcome::Interrupted { result, .. } | PromptOutcome::Failed { result, .. } => {
                result.as_ref()
            }
            PromptOutcome::Unsent { .. } => None,
        }
    }
}

/// Who ended a turn of a fleet early.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "who", rename_all = "snake_case")]
#[non_exhaustive]
pub enum InterruptedBy {
    /// The application: it interrupted the turn, or deleted the session before the turn went on with its continuation.
    User,
    /// The owner was lost: its process ended, or it could not keep its lease.
    OwnerLost {
        /// The term of the owner.
        term: Term,
    },
    /// The session: its CLI ended, a limit passed, or it was stopped.
    Session {
        /// The cause, in words.
        cause: String,
    },
}

/// The reason why a prompt was never sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Unsent {
    /// The prompt waited until its time had passed.
    Expired {
        /// The reason for which the session did not run last, in words: a failed activation, a cause that held back sessions of a node, or a
        /// quarantine. `None`: no failure is known, so others had the slots, or no node was there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<String>,
    },
    /// The application took the prompt back.
    Withdrawn,
    /// The session was deleted.
    Deleted,
    /// An operator has dropped the prompt.
    Dropped {
        /// The operator's reason.
        why: String,
    },
}
