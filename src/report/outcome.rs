//! How a turn ended.

use std::sync::Arc;

use serde::Serialize;

use super::cause::ExitCause;
use crate::error::{Error, Result};
use crate::wire::ResultMessage;

/// How a turn ended. Every accepted prompt ends with exactly one.
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
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// The CLI finished it.
    Completed {
        /// What the CLI says of it: the answer, its cost, its usage.
        result: Arc<ResultMessage>,
    },
    /// The prompt was appended to the conversation without asking the model
    /// ([`Prompt::should_query`](crate::Prompt::should_query)), and the CLI gave no result for it.
    Appended,
    /// It was ended before its time.
    Interrupted {
        /// By whom.
        by: InterruptedBy,
        /// What the CLI says of it, if it still could.
        result: Option<Arc<ResultMessage>>,
    },
    /// It failed: the CLI says so, or its messages were not read and the bound was reached.
    Failed {
        /// Why.
        error: Error,
        /// What the CLI says of it, if it did.
        result: Option<Arc<ResultMessage>>,
    },
    /// No CLI has begun with it: the session stopped or failed while it waited, or it was written to a CLI that died at
    /// once. Here it is back.
    NotStarted {
        /// The content of the prompt.
        prompt: crate::Prompt,
    },
}

/// Who ended a turn before its time.
///
/// ```
/// assert_eq!(greenroom::InterruptedBy::User.to_string(), "the user");
/// ```
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "by", rename_all = "snake_case")]
#[non_exhaustive]
pub enum InterruptedBy {
    /// [`Session::interrupt`](crate::Session::interrupt) or a `deny` with `interrupt`.
    User,
    /// The CLI died.
    CliExit {
        /// Why.
        cause: ExitCause,
    },
    /// A limit of the options: [`Timeouts::turn`](crate::Timeouts::turn) or
    /// [`Timeouts::silence`](crate::Timeouts::silence).
    Limit {
        /// Which: `turn` or `silence`.
        limit: String,
        /// How long it is.
        #[serde(serialize_with = "crate::options::millis_serialize")]
        after: std::time::Duration,
    },
    /// The session was stopped.
    Stop,
}

impl std::fmt::Display for InterruptedBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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

    /// What the CLI says of the turn, if it did.
    pub fn result(&self) -> Option<&ResultMessage> {
        match self {
            Outcome::Completed { result } => Some(result),
            Outcome::Interrupted { result, .. } | Outcome::Failed { result, .. } => result.as_deref(),
            Outcome::NotStarted { .. } | Outcome::Appended => None,
        }
    }

    /// The model's answer, if the turn was completed with one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Outcome::Completed { result } => result.result.as_deref(),
            _ => None,
        }
    }

    /// The result of a completed turn, or else an error that says what happened instead.
    ///
    /// # Errors
    /// The error of a failed turn; [`Stopped`](crate::ErrorKind::Stopped),
    /// [`CliExited`](crate::ErrorKind::CliExited) or [`TurnFailed`](crate::ErrorKind::TurnFailed) for one that was
    /// interrupted or not started.
    pub fn into_result(self) -> Result<Arc<ResultMessage>> {
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

impl Serialize for Outcome {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(None)?;
        let name = match self {
            Outcome::Completed { .. } => "completed",
            Outcome::Appended => "appended",
            Outcome::Interrupted { .. } => "interrupted",
            Outcome::Failed { .. } => "failed",
            Outcome::NotStarted { .. } => "not_started",
        };
        map.serialize_entry("outcome", name)?;
        match self {
            Outcome::Interrupted { by, .. } => map.serialize_entry("interrupted", by)?,
            Outcome::Failed { error, .. } => map.serialize_entry("error", &error.to_string())?,
            Outcome::NotStarted { prompt } => map.serialize_entry("prompt", prompt)?,
            Outcome::Completed { .. } | Outcome::Appended => {}
        }
        if let Some(result) = self.result() {
            map.serialize_entry("result", result.raw())?;
        }
        map.end()
    }
}
