//! The one error type of the crate: opaque, cheap to clone, and clear about whose fault it is.

use std::fmt;
use std::sync::Arc;

/// A `Result` whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What went wrong, whose fault it is, and what to do about it.
///
/// The type is opaque so that it can grow. Ask it what you need to know: [`kind`](Error::kind) for the exact
/// case, or one of the questions that place the blame: [`is_caller`](Error::is_caller),
/// [`is_cli`](Error::is_cli), [`is_wire`](Error::is_wire), [`is_tool`](Error::is_tool).
///
/// ```
/// use greenroom::{Error, ErrorKind};
///
/// fn advice(error: &Error) -> &'static str {
///     match error.kind() {
///         ErrorKind::CliNotFound => "install the claude CLI",
///         ErrorKind::AtCapacity => "try again later",
///         _ if error.is_caller() => "mend the call",
///         _ => "look at the message",
///     }
/// }
/// # let _ = advice;
/// ```
#[derive(Clone)]
pub struct Error {
    inner: Arc<Inner>,
}

struct Inner {
    kind: ErrorKind,
    message: String,
    help: Option<String>,
    code: Option<String>,
    stderr: Option<String>,
    source: Option<BoxError>,
}

/// The cases of [`Error`]. The set grows: match with a wildcard arm.
///
/// ```
/// assert!(greenroom::ErrorKind::AtCapacity != greenroom::ErrorKind::Timeout);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An option, a tool or a server is defined in a way that cannot work. Caller.
    InvalidOption,
    /// No `claude` executable where it was looked for. Caller (the machine it runs on).
    CliNotFound,
    /// The executable is there but could not be started. Caller (the machine it runs on).
    Spawn,
    /// The CLI did not answer `initialize` within [`Timeouts::start`](crate::Timeouts::start). CLI.
    StartTimeout,
    /// The CLI answered `initialize` with an error. CLI.
    InitializeRefused,
    /// The CLI process ended when it should not have. CLI.
    CliExited,
    /// What runs at the other end does not speak the protocol. Wire.
    NotTheProtocol,
    /// The CLI answered a control request with an error. CLI.
    Refused,
    /// The CLI does not know a control request, or lacks a capability that it needs; the message names it. CLI.
    Unsupported,
    /// The CLI did not answer a control request in time. CLI.
    Timeout,
    /// A bound of [`Limits`](crate::Limits) was reached; nothing was accepted. Caller.
    AtCapacity,
    /// Messages of a turn were not read, and there was no more room for them: a bound was reached, or the file for them
    /// could not be written (then the source is the `std::io::Error`). Caller.
    Overflow,
    /// There is no CLI to talk to at this moment: the session is starting or recovering. CLI.
    NotReady,
    /// A session that was named is not there: not on the disk, not in the store, not known to the CLI. Or it is, and the
    /// message or the subagent of it that was named is not. The text names the id. Caller.
    SessionNotFound,
    /// The session was stopped, or is stopping. Caller.
    Stopped,
    /// The session has failed for good; the message says why. CLI.
    SessionFailed,
    /// The turn ended with an error result of the CLI. CLI.
    TurnFailed,
    /// A line or a message is not what the protocol says. Wire.
    Malformed,
    /// A tool, or the factory of a tool server's state, failed. Tool.
    Tool,
    /// A session store failed, or did not answer in time. The source is what it said. Caller (its store).
    Store,
    /// Reading or writing failed. Wire.
    Io,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            inner: Arc::new(Inner {
                kind,
                message: message.into(),
                help: None,
                code: None,
                stderr: None,
                source: None,
            }),
        }
    }

    fn rebuild(self, change: impl FnOnce(&mut Inner)) -> Self {
        // An error that is still being built has one owner; a shared one is copied without its source.
        let mut inner = Arc::try_unwrap(self.inner).unwrap_or_else(|shared| Inner {
            kind: shared.kind,
            message: shared.message.clone(),
            help: shared.help.clone(),
            code: shared.code.clone(),
            stderr: shared.stderr.clone(),
            source: None,
        });
        change(&mut inner);
        Self { inner: Arc::new(inner) }
    }

    pub(crate) fn with_help(self, help: impl Into<String>) -> Self {
        self.rebuild(|inner| inner.help = Some(help.into()))
    }

    pub(crate) fn with_code(self, code: Option<String>) -> Self {
        self.rebuild(|inner| inner.code = code)
    }

    pub(crate) fn with_stderr(self, stderr: impl Into<String>) -> Self {
        let stderr = stderr.into();
        if stderr.trim().is_empty() { self } else { self.rebuild(|inner| inner.stderr = Some(stderr)) }
    }

    pub(crate) fn with_source(self, source: impl Into<BoxError>) -> Self {
        self.rebuild(|inner| inner.source = Some(source.into()))
    }

    pub(crate) fn invalid_option(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidOption, message)
    }

    /// The exact case.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// What to do about it, in a sentence, where that is known.
    pub fn help(&self) -> Option<&str> {
        self.inner.help.as_deref()
    }

    /// The code that the CLI gave its refusal, such as `reload_plugins_busy`, where it gave one.
    pub fn code(&self) -> Option<&str> {
        self.inner.code.as_deref()
    }

    /// The last lines that the CLI wrote to its stderr, where they may explain the error. At most
    /// [`Limits::stderr_tail_bytes`](crate::Limits::stderr_tail_bytes) long.
    pub fn stderr(&self) -> Option<&str> {
        self.inner.stderr.as_deref()
    }

    /// True when the application, or the machine that it runs on, has to change something.
    pub fn is_caller(&self) -> bool {
        use ErrorKind::*;
        matches!(
            self.kind(),
            InvalidOption | CliNotFound | Spawn | AtCapacity | Overflow | Stopped | SessionNotFound
        )
    }

    /// True when the CLI is to blame: it exited, refused, or did not answer.
    pub fn is_cli(&self) -> bool {
        use ErrorKind::*;
        matches!(
            self.kind(),
            StartTimeout
                | InitializeRefused
                | CliExited
                | Refused
                | Unsupported
                | Timeout
                | NotReady
                | SessionFailed
                | TurnFailed
        )
    }

    /// True when what came over the pipe is to blame, or the pipe itself.
    pub fn is_wire(&self) -> bool {
        matches!(self.kind(), ErrorKind::NotTheProtocol | ErrorKind::Malformed | ErrorKind::Io)
    }

    /// True when a tool, or the factory of its server's state, is to blame.
    pub fn is_tool(&self) -> bool {
        self.kind() == ErrorKind::Tool
    }

    /// True when a time limit of the options has passed.
    pub fn is_timeout(&self) -> bool {
        matches!(self.kind(), ErrorKind::StartTimeout | ErrorKind::Timeout)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.message)?;
        if let Some(help) = &self.inner.help {
            write!(f, "; {help}")?;
        }
        if let Some(stderr) = &self.inner.stderr {
            write!(f, "\nits stderr ended with:\n{}", stderr.trim_end())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.inner.kind)
            .field("message", &self.inner.message)
            .field("help", &self.inner.help)
            .field("code", &self.inner.code)
            .field("stderr", &self.inner.stderr)
            .field("source", &self.inner.source)
            .finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.inner.source.as_deref().map(|source| source as _)
    }
}
