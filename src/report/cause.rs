//! Why a CLI is gone.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::error::{Error, ErrorKind};
use crate::transport::Exit;

/// Why one incarnation of the CLI ended when it should not have.
///
/// ```
/// use greenroom::{ExitCause, transport::Exit};
///
/// let cause = ExitCause::Exited { exit: Exit::Signal(9), stderr: String::new() };
/// assert_eq!(cause.to_string(), "the CLI was ended by signal 9");
/// ```
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "cause", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ExitCause {
    /// The process ended.
    Exited {
        /// How.
        exit: Exit,
        /// The end of what it wrote to stderr.
        stderr: String,
    },
    /// It closed its stdout and went on running, so it was ended.
    StdoutClosed {
        /// The end of what it wrote to stderr.
        stderr: String,
    },
    /// It closed its stdin or did not read it for [`Timeouts::stdin_stall`](crate::Timeouts::stdin_stall), so it
    /// was ended.
    StdinBroken {
        /// What writing said.
        reason: String,
        /// The end of what it wrote to stderr.
        stderr: String,
    },
    /// It could not be started.
    NotStarted {
        /// Why.
        #[serde(serialize_with = "as_text")]
        error: Error,
    },
    /// It did not answer `initialize` in time, so it was ended.
    StartTimeout {
        /// The limit.
        #[serde(serialize_with = "crate::options::millis_serialize")]
        after: Duration,
        /// Lines it had written that were no frames.
        noise: u64,
        /// The end of what it wrote to stderr.
        stderr: String,
    },
    /// It ended before it answered `initialize`.
    ExitedAtStart {
        /// How.
        exit: Exit,
        /// What its error result said, if it wrote one.
        said: Option<String>,
        /// The end of what it wrote to stderr.
        stderr: String,
    },
    /// It answered `initialize` with an error, so it was ended.
    InitializeRefused {
        /// What it said.
        message: String,
    },
    /// It refused to resume the conversation.
    ResumeRefused {
        /// The conversation.
        session_id: String,
        /// Whether that is because there is no transcript of it.
        transcript_missing: bool,
        /// What it said.
        said: String,
        /// The end of what it wrote to stderr.
        stderr: String,
    },
    /// It did not do what it was told, so it was ended.
    Unresponsive {
        /// What it did not do.
        reason: String,
        /// The end of what it wrote to stderr.
        stderr: String,
    },
    /// The actor that owns it was killed or panicked.
    Port {
        /// What the actor system said.
        reason: String,
    },
}

fn as_text<S: serde::Serializer>(error: &Error, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(error)
}

impl ExitCause {
    /// The end of what the CLI wrote to stderr, where it was looked at.
    pub fn stderr(&self) -> Option<&str> {
        match self {
            ExitCause::Exited { stderr, .. }
            | ExitCause::StdoutClosed { stderr }
            | ExitCause::StdinBroken { stderr, .. }
            | ExitCause::ResumeRefused { stderr, .. }
            | ExitCause::Unresponsive { stderr, .. }
            | ExitCause::StartTimeout { stderr, .. }
            | ExitCause::ExitedAtStart { stderr, .. } => Some(stderr),
            _ => None,
        }
    }

    /// The same as an error, with advice.
    pub(crate) fn to_error(&self) -> Error {
        let (kind, help) = match self {
            ExitCause::NotStarted { error } => return error.clone(),
            ExitCause::StartTimeout { noise: 1.., .. } => (
                ErrorKind::NotTheProtocol,
                "check that `cli_path` names the claude CLI, and that no wrapper prints to its stdout",
            ),
            ExitCause::StartTimeout { .. } => (
                ErrorKind::StartTimeout,
                "check that `cli_path` names the claude CLI, or raise `timeouts.start`",
            ),
            ExitCause::InitializeRefused { .. } => {
                (ErrorKind::InitializeRefused, "check the options, or update the CLI")
            }
            ExitCause::ExitedAtStart { said: Some(said), .. } if is_not_there(said) => {
                (ErrorKind::SessionNotFound, "it may be of another directory or another configuration folder")
            }
            ExitCause::ResumeRefused { .. } => {
                (ErrorKind::CliExited, "`resume_ladder` may allow a fork of the conversation, or a fresh one")
            }
            ExitCause::ExitedAtStart { .. } => {
                (ErrorKind::CliExited, "run the CLI by hand with the same options to see what it needs")
            }
            _ => (ErrorKind::CliExited, ""),
        };
        let error = Error::new(kind, self.to_string());
        let error = if help.is_empty() { error } else { error.with_help(help) };
        error.with_stderr(self.stderr().unwrap_or_default())
    }
}

/// Whether this is what CLI 2.1.328 says, with the id, of a session or a message that it was told to resume and does not
/// have.
fn is_not_there(said: &str) -> bool {
    const SAYINGS: [&str; 3] = [
        "No conversation found with session ID",
        "No message found with message.uuid of",
        "is not a UUID and does not match any session title",
    ];
    SAYINGS.iter().any(|saying| said.contains(saying))
}

impl fmt::Display for ExitCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExitCause::Exited { exit, .. } => write!(f, "the CLI {exit}"),
            ExitCause::StdoutClosed { .. } => f.write_str("the CLI closed its stdout"),
            ExitCause::StdinBroken { reason, .. } => write!(f, "the CLI's stdin is broken: {reason}"),
            ExitCause::NotStarted { error } => write!(f, "{error}"),
            ExitCause::StartTimeout { after, noise: 0, .. } => {
                write!(f, "the CLI did not answer `initialize` within {after:?}")
            }
            ExitCause::StartTimeout { after, noise, .. } => write!(
                f,
                "what was started as the CLI does not speak its protocol: no answer to `initialize` within {after:?}, \
                 but {noise} lines that are no frames"
            ),
            ExitCause::ExitedAtStart { exit, said: Some(said), .. } => {
                write!(f, "the CLI {exit} before it answered `initialize`: {said}")
            }
            ExitCause::ExitedAtStart { exit, said: None, .. } => {
                write!(f, "the CLI {exit} before it answered `initialize`")
            }
            ExitCause::InitializeRefused { message } => write!(f, "the CLI refused `initialize`: {message}"),
            ExitCause::ResumeRefused { session_id, said, .. } => {
                write!(f, "the CLI refused to resume the conversation {session_id}: {said}")
            }
            ExitCause::Unresponsive { reason, .. } => write!(f, "the CLI was given up: {reason}"),
            ExitCause::Port { reason } => write!(f, "the actor that owns the CLI ended: {reason}"),
        }
    }
}

impl std::error::Error for ExitCause {}
