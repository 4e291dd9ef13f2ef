//! Causes of a CLI's exit.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::error::{Error, ErrorKind};
use crate::options::OLDEST_CLI;
use crate::transport::Exit;

/// Why a CLI exited without being asked. `Debug` prints the cause as [`Error`] does, with advice. The texts have no escape sequences and no control characters except line
/// breaks, and at most 4 KiB each: a longer text loses its middle. `stderr` is the end of what the CLI wrote there, of up to
/// [`Limits::stderr_tail_bytes`](crate::options::Limits::stderr_tail_bytes).
///
/// ```
/// use greenroom::report::ExitCause;
/// use greenroom::transport::Exit;
///
/// let cause = ExitCause::Exited { exit: Exit::Signal(9), stderr: String::new() };
/// assert_eq!(cause.to_string(), "the CLI was ended by signal 9");
/// ```
#[derive(Clone, Serialize, thiserror::Error)]
#[serde(tag = "cause", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the variant says what its fields are")]
#[non_exhaustive]
pub enum ExitCause {
    /// The process ended.
    #[error("the CLI {exit}")]
    Exited { exit: Exit, stderr: String },
    /// The CLI closed its stdout, or reading from it failed, while the process kept running, so it was killed.
    #[error("{}", stdout_closed(.error.as_deref()))]
    StdoutClosed {
        /// The read error; `None` if stdout was closed.
        error: Option<String>,
        stderr: String,
    },
    /// The CLI closed its stdin, or did not read it for
    /// [`Timeouts::stdin_stall`](crate::options::Timeouts::stdin_stall), so it was killed.
    #[error("the CLI's stdin is broken: {reason}")]
    StdinBroken {
        /// The write error.
        reason: String,
        stderr: String,
    },
    /// The CLI could not be started.
    #[error("{error}")]
    NotStarted {
        #[serde(serialize_with = "as_text")]
        error: Error,
    },
    /// The CLI did not answer `initialize` in time, so it was killed.
    #[error("{}", start_timeout(.after, .noise))]
    StartTimeout {
        #[serde(serialize_with = "crate::options::millis_serialize")]
        after: Duration,
        /// Number of lines that were no frames.
        noise: u64,
        stderr: String,
    },
    /// The CLI exited before it answered `initialize`.
    #[error("{}", exited_at_start(.exit, .said.as_deref(), .command.as_deref()))]
    ExitedAtStart {
        exit: Exit,
        /// Text of the CLI's error result.
        said: Option<String>,
        /// The path of the CLI and the names of its flags, without values. `None` if the transport started no process.
        command: Option<String>,
        stderr: String,
    },
    /// The CLI answered `initialize` with an error, so it was killed.
    #[error("the CLI refused `initialize`: {message}")]
    InitializeRefused { message: String },
    /// The CLI is older than [`OLDEST_CLI`](crate::options::OLDEST_CLI), so it was killed.
    #[error("{}; the oldest version that greenroom supports is {}", too_old(.version.as_deref()), OLDEST_CLI)]
    TooOld {
        /// `None` if the CLI does not say its version.
        version: Option<String>,
    },
    /// The CLI refused to resume the conversation.
    #[error("the CLI refused to resume the conversation {session_id}: {said}")]
    ResumeRefused {
        session_id: String,
        /// The conversation has no transcript.
        transcript_missing: bool,
        /// The CLI's reason.
        said: String,
        stderr: String,
    },
    /// The CLI refused to start a conversation: a conversation with this id exists.
    #[error("the CLI refused to start the conversation {session_id}: a conversation with this id exists")]
    ConversationExists { session_id: String, stderr: String },
    /// The CLI did not react to a request, so it was killed.
    #[error("the CLI was given up: {reason}")]
    Unresponsive {
        /// The missing reaction.
        reason: String,
        stderr: String,
    },
    /// The actor that owns the CLI was killed or panicked.
    #[error("the actor that owns the CLI ended: {reason}")]
    Port { reason: String },
}

pub(super) fn as_text<S: serde::Serializer>(error: &Error, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(error)
}

impl fmt::Debug for ExitCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_error(), f)
    }
}

impl ExitCause {
    /// The end of the CLI's stderr, if it was read.
    pub fn stderr(&self) -> Option<&str> {
        match self {
            ExitCause::Exited { stderr, .. }
            | ExitCause::StdoutClosed { stderr, .. }
            | ExitCause::StdinBroken { stderr, .. }
            | ExitCause::ResumeRefused { stderr, .. }
            | ExitCause::ConversationExists { stderr, .. }
            | ExitCause::Unresponsive { stderr, .. }
            | ExitCause::StartTimeout { stderr, .. }
            | ExitCause::ExitedAtStart { stderr, .. } => Some(stderr),
            _ => None,
        }
    }

    /// Calls `change` with every text that may come from the CLI, except for its stderr, which has its own bound.
    pub(crate) fn each_text(&mut self, change: &mut impl FnMut(&mut String)) {
        match self {
            Self::StdoutClosed { error: text, stderr: _ } => text.iter_mut().for_each(change),
            Self::ExitedAtStart { exit: _, said, command, stderr: _ } => {
                said.iter_mut().chain(command).for_each(change);
            }
            // Errors are short and plain already.
            Self::NotStarted { error: _ }
            | Self::Exited { exit: _, stderr: _ }
            | Self::StartTimeout { after: _, noise: _, stderr: _ } => {}
            Self::TooOld { version } => version.iter_mut().for_each(change),
            Self::StdinBroken { reason: text, stderr: _ }
            | Self::Unresponsive { reason: text, stderr: _ }
            | Self::InitializeRefused { message: text }
            | Self::Port { reason: text }
            | Self::ConversationExists { session_id: text, stderr: _ } => change(text),
            Self::ResumeRefused { session_id, transcript_missing: _, said, stderr: _ } => {
                [session_id, said].into_iter().for_each(change);
            }
        }
    }

    /// The cause as an error, with advice.
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
            ExitCause::TooOld { .. } => (
                ErrorKind::CliTooOld,
                "update the CLI with `claude update` or `npm install -g @anthropic-ai/claude-code@latest`, or name a newer one \
                 by option `cli_path`",
            ),
            ExitCause::ExitedAtStart { said: Some(said), .. } if is_not_there(said) => {
                (ErrorKind::SessionNotFound, "it may be of another directory or another configuration folder")
            }
            ExitCause::ResumeRefused { .. } => {
                (ErrorKind::CliExited, "`resume_ladder` may allow a fork of the conversation, or a fresh one")
            }
            ExitCause::ConversationExists { .. } => (
                ErrorKind::CliExited,
                "set `conversation` instead of `session_id`, to resume the conversation if it exists",
            ),
            // A CLI that has a reason says so.
            ExitCause::ExitedAtStart { said: None, stderr, .. } if stderr.trim().is_empty() => (
                ErrorKind::CliExited,
                "check that this is the claude CLI: with `--version` it prints `... (Claude Code)`; the option `cli_path` \
                 names another",
            ),
            ExitCause::ExitedAtStart { stderr, .. } if stderr.contains("unknown option") => (
                ErrorKind::CliExited,
                "update the CLI with `claude update`, unless option `extra_args` has the unknown flag",
            ),
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

/// Whether this is an error of CLI 2.1.328 for a session or a message that it was told to resume and cannot find.
fn is_not_there(said: &str) -> bool {
    const SAYINGS: [&str; 3] = [
        "No conversation found with session ID",
        "No message found with message.uuid of",
        "is not a UUID and does not match any session title",
    ];
    SAYINGS.iter().any(|saying| said.contains(saying))
}

fn stdout_closed(error: Option<&str>) -> String {
    match error {
        None => "the CLI closed its stdout".to_owned(),
        Some(error) => format!("the CLI's stdout cannot be read: {error}"),
    }
}

fn start_timeout(after: &Duration, noise: &u64) -> String {
    match noise {
        0 => format!("the CLI did not answer `initialize` within {after:?}"),
        _ => format!(
            "what was started as the CLI does not speak its protocol: no answer to `initialize` within {after:?}, but \
             {noise} lines that are no frames"
        ),
    }
}

fn too_old(version: Option<&str>) -> String {
    match version {
        Some(version) => format!("the CLI has version {version}"),
        None => "the CLI does not say its version, as only old ones do not".to_owned(),
    }
}

fn exited_at_start(exit: &Exit, said: Option<&str>, command: Option<&str>) -> String {
    let said = said.map(|said| format!(": {said}")).unwrap_or_default();
    let command =
        command.map(|command| format!("; it was started as `{command}` (without the values of flags)"));
    format!("the CLI {exit} before it answered `initialize`{said}{}", command.unwrap_or_default())
}
