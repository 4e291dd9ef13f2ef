//! The end of a turn.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::cause::{ExitCause, as_text};
use crate::error::{Error, Result};
use crate::message::Typed;
use crate::wire::ResultMessage;

/// The end of a turn. Every accepted prompt ends with exactly one outcome.
///
/// `Debug` writes no text of the model, and cuts a long prompt.
///
/// ```
/// use greenroom::Outcome;
///
/// fn report(outcome: &Outcome) -> String {
///     match outcome {
///         Outcome::Completed { result } => format!("{:?}", result.result),
///         Outcome::Interrupted { by, .. } => format!("interrupted: {by}"),
///         Outcome::NotStarted { prompt } => format!("never sent: {prompt:?}"),
///         other => format!("{other:?}"),
///     }
/// }
/// # let _ = report;
/// ```
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// The CLI finished the turn.
    Completed {
        /// The answer, its cost and its usage.
        result: Arc<Typed<ResultMessage>>,
    },
    /// The prompt was appended to the conversation without asking the model
    /// ([`Prompt::should_query`](crate::Prompt::should_query)), and the CLI gave no result for it.
    Appended,
    /// The turn was ended early.
    Interrupted {
        /// Who ended the turn.
        #[serde(rename = "interrupted")]
        by: InterruptedBy,
        /// The CLI's result, if it could still send one.
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<Arc<Typed<ResultMessage>>>,
    },
    /// The turn failed: the CLI says so, or too many of its messages were not read.
    Failed {
        /// The reason.
        #[serde(serialize_with = "as_text")]
        error: Error,
        /// The CLI's result, if there is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<Arc<Typed<ResultMessage>>>,
    },
    /// No CLI started the turn: the session stopped or failed while the prompt waited, or the CLI exited right after
    /// the prompt was written.
    NotStarted {
        /// The prompt, returned.
        prompt: crate::Prompt,
    },
}

/// Who ended a turn early.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "by", rename_all = "snake_case")]
#[non_exhaustive]
pub enum InterruptedBy {
    /// [`Session::interrupt`](crate::Session::interrupt) or a `deny` with `interrupt`.
    User,
    /// The CLI exited.
    CliExit {
        /// Cause of the exit.
        cause: ExitCause,
    },
    /// A limit of the options: [`Timeouts::turn`](crate::options::Timeouts::turn) or
    /// [`Timeouts::silence`](crate::options::Timeouts::silence).
    Limit {
        /// `turn` or `silence`.
        limit: String,
        /// The length of the limit.
        #[serde(serialize_with = "crate::options::millis_serialize")]
        after: std::time::Duration,
    },
    /// The session was stopped or killed.
    Stop,
}

impl fmt::Display for InterruptedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InterruptedBy::User => f.write_str("the user"),
            InterruptedBy::CliExit { cause } => write!(f, "the end of the CLI: {cause}"),
            InterruptedBy::Limit { limit, after } => write!(f, "its limit `timeouts.{limit}` of {after:?}"),
            InterruptedBy::Stop => f.write_str("the end of the session"),
        }
    }
}

impl Outcome {
    /// Whether the CLI finished the turn.
    pub fn is_completed(&self) -> bool {
        matches!(self, Outcome::Completed { .. })
    }

    /// The CLI's result, if there is one.
    pub fn result(&self) -> Option<&Typed<ResultMessage>> {
        match self {
            Outcome::Completed { result } => Some(result),
            Outcome::Interrupted { result, .. } | Outcome::Failed { result, .. } => result.as_deref(),
            Outcome::NotStarted { .. } | Outcome::Appended => None,
        }
    }

    /// The model's answer, if the turn was completed.
    pub fn text(&self) -> Option<&str> {
        match self {
            Outcome::Completed { result } => result.result.as_deref(),
            _ => None,
        }
    }

    /// The result of a completed turn; an error for every other outcome.
    ///
    /// # Errors
    /// The error of a failed turn; [`Stopped`](crate::ErrorKind::Stopped),
    /// [`CliExited`](crate::ErrorKind::CliExited), [`Timeout`](crate::ErrorKind::Timeout) or
    /// [`TurnFailed`](crate::ErrorKind::TurnFailed) for an interrupted turn or a turn that was not started.
    pub fn into_result(self) -> Result<Arc<Typed<ResultMessage>>> {
        use crate::ErrorKind;
        match self {
            Outcome::Completed { result } => Ok(result),
            Outcome::Failed { error, .. } => Err(error),
            Outcome::Interrupted { by: InterruptedBy::CliExit { cause }, .. } => Err(cause.to_error()),
            Outcome::Interrupted { by: by @ InterruptedBy::Limit { .. }, .. } => {
                Err(Error::new(ErrorKind::Timeout, format!("the turn was ended by {by}")))
            }
            Outcome::Interrupted { by: InterruptedBy::User, .. } => {
                Err(Error::new(ErrorKind::TurnFailed, "the turn was interrupted"))
            }
            Outcome::Interrupted { by: InterruptedBy::Stop, .. } => {
                Err(Error::new(ErrorKind::Stopped, "the session was stopped during the turn"))
            }
            Outcome::Appended => Err(Error::new(
                ErrorKind::TurnFailed,
                "the prompt was appended without asking the model, so there is no result",
            )),
            Outcome::NotStarted { .. } => {
                Err(Error::new(ErrorKind::Stopped, "the session ended before the prompt was sent"))
            }
        }
    }
}
