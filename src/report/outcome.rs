//! The end of a turn.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cause::{ExitCause, as_text};
use crate::error::{Error, Result};
use crate::message::{TurnUsage, Typed};
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
///         Outcome::Completed { result, .. } => format!("{:?}", result.result),
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
        /// The answer.
        result: Arc<Typed<ResultMessage>>,
        /// The money and the tokens of the turn.
        usage: Arc<TurnUsage>,
    },
    /// The prompt was appended to the conversation without asking the model
    /// ([`Prompt::should_query`](crate::Prompt::should_query)), and the CLI gave no result for it.
    Appended,
    /// The CLI had begun the turn by itself ([`Session::cli_turns`](crate::Session::cli_turns)) and took a prompt into it.
    /// The rest of the turn, its result and its cost are those of the prompt's turn.
    Joined {
        /// The uuid of the prompt.
        prompt_uuid: String,
    },
    /// The turn was ended early.
    Interrupted {
        /// Who ended the turn.
        #[serde(rename = "interrupted")]
        by: InterruptedBy,
        /// The CLI's result, if it could still send one.
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<Arc<Typed<ResultMessage>>>,
        /// The money and the tokens that the turn had used. Without a result: see [`TurnUsage::accounted`].
        usage: Arc<TurnUsage>,
    },
    /// The turn failed: the CLI says so, or too many of its messages were not read.
    Failed {
        /// The reason.
        #[serde(serialize_with = "as_text")]
        error: Error,
        /// The CLI's result, if there is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<Arc<Typed<ResultMessage>>>,
        /// The money and the tokens that the turn had used. Without a result: see [`TurnUsage::accounted`].
        usage: Arc<TurnUsage>,
    },
    /// The turn waits for a decision about a tool call ([`Session::defer`](crate::Session::defer)). Its session has
    /// ended. The turn goes on in a session that [resumes the call](crate::SessionBuilder::resume_call).
    Deferred {
        /// The call that waits.
        call: DeferredCall,
        /// The money and the tokens that the turn had used, as the CLI reported them before its end.
        usage: Arc<TurnUsage>,
    },
    /// No CLI started the turn: the session stopped or failed while the prompt waited, or the CLI exited right after
    /// the prompt was written.
    NotStarted {
        /// The prompt, returned.
        prompt: crate::Prompt,
    },
}

/// A tool call that waits for a decision while no CLI runs, in [`Outcome::Deferred`]. Store it, and give it to
/// [`SessionBuilder::resume_call`](crate::SessionBuilder::resume_call) when the decision is there.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeferredCall {
    /// The conversation.
    pub session_id: String,
    /// The call, under the id that the model gave it. The resumed CLI asks under the same id.
    pub tool_use_id: String,
    /// The name of the tool.
    pub tool_name: String,
    /// The arguments of the model.
    pub input: Value,
}

impl DeferredCall {
    /// The call with this id, as a question about it named it: for a conversation whose host was killed while the question was open.
    pub fn new(
        session_id: impl Into<String>,
        tool_use_id: impl Into<String>,
        tool_name: impl Into<String>,
        input: Value,
    ) -> Self {
        let (session_id, tool_use_id) = (session_id.into(), tool_use_id.into());
        Self { session_id, tool_use_id, tool_name: tool_name.into(), input }
    }
}

/// Without the arguments, which the model wrote.
impl fmt::Debug for DeferredCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { session_id, tool_use_id, tool_name, input: _ } = self;
        f.debug_struct("DeferredCall")
            .field("session_id", session_id)
            .field("tool_use_id", tool_use_id)
            .field("tool_name", tool_name)
            .finish_non_exhaustive()
    }
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
            Outcome::Completed { result, .. } => Some(result),
            Outcome::Interrupted { result, .. } | Outcome::Failed { result, .. } => result.as_deref(),
            Outcome::NotStarted { .. }
            | Outcome::Appended
            | Outcome::Joined { .. }
            | Outcome::Deferred { .. } => None,
        }
    }

    /// The money and the tokens of the turn. `None` if the model was not asked.
    ///
    /// All that was used since the turn before counts, so background work of the CLI between two turns belongs to the later one.
    /// The sum over all turns is what the conversation cost.
    pub fn usage(&self) -> Option<&TurnUsage> {
        match self {
            Outcome::Completed { usage, .. }
            | Outcome::Interrupted { usage, .. }
            | Outcome::Failed { usage, .. }
            | Outcome::Deferred { usage, .. } => Some(usage),
            Outcome::NotStarted { .. } | Outcome::Appended | Outcome::Joined { .. } => None,
        }
    }

    /// An interruption. The conversation enters the usage when it ends the turn.
    pub(crate) fn interrupted(by: InterruptedBy, result: Option<Arc<Typed<ResultMessage>>>) -> Self {
        Outcome::Interrupted { by, result, usage: Arc::default() }
    }

    /// A failure. The conversation enters the usage when it ends the turn.
    pub(crate) fn failed(error: Error, result: Option<Arc<Typed<ResultMessage>>>) -> Self {
        Outcome::Failed { error, result, usage: Arc::default() }
    }

    pub(crate) fn set_usage(&mut self, turn: TurnUsage) {
        if let Outcome::Completed { usage, .. }
        | Outcome::Interrupted { usage, .. }
        | Outcome::Failed { usage, .. }
        | Outcome::Deferred { usage, .. } = self
        {
            *usage = Arc::new(turn);
        }
    }

    /// The model's answer, if the turn was completed.
    pub fn text(&self) -> Option<&str> {
        match self {
            Outcome::Completed { result, .. } => result.result.as_deref(),
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
            Outcome::Completed { result, .. } => Ok(result),
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
            Outcome::Deferred { call, .. } => Err(Error::new(
                ErrorKind::TurnFailed,
                format!("the turn waits for a decision about the call {}", call.tool_use_id),
            )
            .with_help("resume it with `SessionBuilder::resume_call`")),
            Outcome::Appended => Err(Error::new(
                ErrorKind::TurnFailed,
                "the prompt was appended without asking the model, so there is no result",
            )),
            Outcome::Joined { prompt_uuid } => Err(Error::new(
                ErrorKind::TurnFailed,
                format!("the CLI took the prompt {prompt_uuid} into the turn, and the prompt has the result"),
            )),
            Outcome::NotStarted { .. } => {
                Err(Error::new(ErrorKind::Stopped, "the session ended before the prompt was sent"))
            }
        }
    }
}
