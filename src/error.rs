//! [`Error`], the only error type of the crate: opaque, cheap to clone, and clear about whose fault it is.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use greenroom_process::ErrorReport;

use crate::plain::{plain_text, short};

/// A `Result` whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An error: what went wrong, whose fault it is, and what to do about it.
///
/// Match on [`kind`](Error::kind); each [`ErrorKind`] says whose fault it is. `Display` prints the message, the
/// [`help`](Error::help) and the end of the CLI's stderr. `Debug` adds a line for each cause
/// ([`ErrorReport`](crate::report::ErrorReport)), the kind, the code and the time to wait, so that a `main` may return
/// the error.
///
/// All texts are safe to print on a terminal: escape sequences and control characters other than line breaks are
/// removed, even if the CLI sent them. The message and the help have at most 4 KiB each; a longer text loses its middle.
/// The [source](std::error::Error::source) is not cut, and only `Debug` removes its control characters.
///
/// ```
/// use greenroom::{Error, ErrorKind};
///
/// fn advice(error: &Error) -> &'static str {
///     match error.kind() {
///         ErrorKind::CliNotFound => "install the claude CLI",
///         _ if error.is_retryable() => "try again later",
///         ErrorKind::InvalidOption => "fix the application",
///         _ => "read the message",
///     }
/// }
/// # let _ = advice;
/// ```
#[derive(Clone)]
pub struct Error {
    data: Arc<ErrorData>,
}

#[derive(Clone)]
struct ErrorData {
    kind: ErrorKind,
    message: String,
    help: Option<String>,
    code: Option<String>,
    retry_after: Option<Duration>,
    resets_at: Option<SystemTime>,
    stderr: Option<String>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// The cases of [`Error`], each with whose fault it is. New cases are added: match with a wildcard arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An option, a tool or a server is defined in a way that cannot work. Caller.
    InvalidOption,
    /// There is no `claude` executable at the searched paths. Caller (the machine).
    CliNotFound,
    /// The executable exists, and the system cannot execute it. Caller (the machine).
    CliNotExecutable,
    /// The system has no memory, process, thread or open file left to start a CLI. Caller (the machine).
    NoResources,
    /// The CLI was to start under a watchdog, and no guardian runs that would end it. Caller (the machine).
    NoGuardian,
    /// The executable could not be started for another reason, such as a missing working directory. Caller.
    Spawn,
    /// The CLI is older than [`OLDEST_CLI`](crate::options::OLDEST_CLI). Caller (the machine).
    CliTooOld,
    /// The CLI did not answer `initialize` within [`Timeouts::start`](crate::options::Timeouts::start). CLI.
    StartTimeout,
    /// The CLI answered `initialize` with an error. CLI.
    InitializeRefused,
    /// The CLI exited unexpectedly. CLI.
    CliExited,
    /// The program that was started does not speak the CLI's protocol. Wire.
    NotTheProtocol,
    /// The CLI answered a control request with an error. CLI.
    Refused,
    /// The CLI does not support a control request, or lacks a capability; the message names it. CLI.
    Unsupported,
    /// The CLI did not answer a control request in time. CLI.
    Timeout,
    /// A bound of [`Limits`](crate::options::Limits) was reached, and nothing was accepted: try again later. Caller.
    AtCapacity,
    /// Messages of a turn were not read, and reached [`Limits::unread_bytes`](crate::options::Limits::unread_bytes). Caller.
    Overflow,
    /// The session has no running CLI at the moment, because it starts or recovers: try again later. CLI.
    NotReady,
    /// A session does not exist on the disk, in the store or for the CLI, or a message or subagent of the session does
    /// not exist. The text names the id. Caller.
    SessionNotFound,
    /// Another live session uses the conversation, in this process or in another process of this user. The text names
    /// the id. Caller.
    SessionInUse,
    /// A question cannot be deferred now. The text says why, and nothing has changed. Caller.
    NotDeferrable,
    /// The conversation does not end with the call that is to be resumed: it has a result, or the conversation has gone on. Caller.
    NoOpenCall,
    /// The session was stopped, or is stopping. Caller.
    Stopped,
    /// The session has stopped, but processes of its CLIs were killed and still run, and the text names them, or it is not known
    /// whether some do. Caller (the machine).
    ProcessesLeft,
    /// The session has failed for good; the message says why. CLI.
    SessionFailed,
    /// The turn ended with an error result of the CLI, for a reason that has no kind of its own. CLI.
    TurnFailed,
    /// The CLI is not logged in, or the API rejects its login or its key. Caller (the machine).
    Unauthenticated,
    /// The account has no credit left, or a payment failed. Caller.
    NoCredit,
    /// The CLI has spent as much as [`Options::max_budget_usd`](crate::Options::max_budget_usd) allows since it was started
    /// or the conversation was cleared. Caller.
    BudgetSpent,
    /// The context window of the model is full. Caller.
    ContextFull,
    /// The API rejects the prompt for now: too many requests, or the quota is used up. See
    /// [`Error::retry_after`]. CLI (the API behind it).
    RateLimited,
    /// The API is overloaded or fails, and the CLI has given up trying. CLI (the API behind it).
    Overloaded,
    /// A line or a message violates the protocol. Wire.
    Malformed,
    /// A tool, or the factory of a tool server's state, failed. Tool.
    Tool,
    /// A session store failed or took too long; the source is the store's error. The application's
    /// store.
    Store,
    /// Reading or writing failed. Wire.
    Io,
}

impl Error {
    /// Makes an error: for a [`Transport`](crate::transport::Transport) of yours that cannot open a connection, mostly with
    /// [`ErrorKind::Spawn`].
    ///
    /// ```
    /// use greenroom::{Error, ErrorKind};
    ///
    /// fn unreachable(host: &str, source: std::io::Error) -> Error {
    ///     Error::new(ErrorKind::Spawn, format!("the CLI cannot be started on {host}: {source}"))
    ///         .with_help("check the address of the host and its SSH key")
    ///         .with_source(source)
    /// }
    /// # let _ = unreachable;
    /// ```
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            data: Arc::new(ErrorData {
                kind,
                message: short(message),
                help: None,
                code: None,
                retry_after: None,
                resets_at: None,
                stderr: None,
                source: None,
            }),
        }
    }

    fn with(mut self, change: impl FnOnce(&mut ErrorData)) -> Self {
        change(Arc::make_mut(&mut self.data));
        self
    }

    /// Adds what to do about the error, in a sentence.
    #[must_use]
    pub fn with_help(self, help: impl Into<String>) -> Self {
        self.with(|data| data.help = Some(short(help)))
    }

    pub(crate) fn with_code(self, code: Option<String>) -> Self {
        self.with(|data| data.code = code.map(short))
    }

    pub(crate) fn with_retry_after(self, time: Duration) -> Self {
        self.with(|data| data.retry_after = Some(time))
    }

    pub(crate) fn with_resets_at(self, at: SystemTime) -> Self {
        self.with(|data| data.resets_at = Some(at))
    }

    pub(crate) fn with_stderr(self, stderr: impl Into<String>) -> Self {
        let stderr = plain_text(&stderr.into());
        if stderr.trim().is_empty() { self } else { self.with(|data| data.stderr = Some(stderr)) }
    }

    /// Adds the cause, which [`source`](std::error::Error::source) returns.
    #[must_use]
    pub fn with_source(self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.with(|data| data.source = Some(source.into().into()))
    }

    pub(crate) fn invalid_option(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidOption, message)
    }

    /// Returns the exact case.
    pub fn kind(&self) -> ErrorKind {
        self.data.kind
    }

    /// Returns what to do about the error, in a sentence, if that is known.
    pub fn help(&self) -> Option<&str> {
        self.data.help.as_deref()
    }

    /// Returns the CLI's code of a refusal, such as `reload_plugins_busy`, if the CLI gave one.
    pub fn code(&self) -> Option<&str> {
        self.data.code.as_deref()
    }

    /// True if the attempt may succeed later although nothing is changed: the kinds
    /// [`AtCapacity`](ErrorKind::AtCapacity), [`NotReady`](ErrorKind::NotReady),
    /// [`SessionInUse`](ErrorKind::SessionInUse), [`RateLimited`](ErrorKind::RateLimited) and
    /// [`Overloaded`](ErrorKind::Overloaded).
    ///
    /// With the first three kinds nothing was done. With the last two kinds the model may have worked, and called
    /// tools, before the API rejected a call. False for a timeout, after which the CLI may still do what was asked for.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// /// How long to wait before the prompt is sent again; `None` if that cannot help.
    /// fn pause(error: &greenroom::Error) -> Option<Duration> {
    ///     error.is_retryable().then(|| error.retry_after().unwrap_or(Duration::from_secs(10)))
    /// }
    /// # let _ = pause;
    /// ```
    pub fn is_retryable(&self) -> bool {
        use ErrorKind::*;
        matches!(self.kind(), AtCapacity | NotReady | SessionInUse | RateLimited | Overloaded)
    }

    /// Returns the time to wait before the next attempt, counted from when the error was made, if the API told it: the
    /// time until the quota of a [`RateLimited`](ErrorKind::RateLimited) turn is full again, from the CLI's
    /// `rate_limit_event`.
    pub fn retry_after(&self) -> Option<Duration> {
        self.data.retry_after
    }

    /// Returns the moment on the API's clock at which the quota of a [`RateLimited`](ErrorKind::RateLimited) turn is full again, in whole
    /// seconds, if the CLI told it. It may have passed. [`retry_after`](Self::retry_after) is the time until then on this machine's clock.
    pub fn resets_at(&self) -> Option<SystemTime> {
        self.data.resets_at
    }

    /// Returns the last lines of the CLI's stderr, if they may explain the error; at most
    /// [`Limits::stderr_tail_bytes`](crate::options::Limits::stderr_tail_bytes).
    pub fn stderr(&self) -> Option<&str> {
        self.data.stderr.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.data.message)?;
        if let Some(help) = &self.data.help {
            write!(f, "; {help}")?;
        }
        if let Some(stderr) = &self.data.stderr {
            write!(f, "\nthe CLI's stderr ended with:\n{}", stderr.trim_end())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nKind: {:?}", ErrorReport(self), self.kind())?;
        if let Some(code) = self.code() {
            write!(f, "\nCode: {code}")?;
        }
        if let Some(time) = self.retry_after() {
            write!(f, "\nRetry after: {time:?}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.data.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error of a driver, whose `Debug` has the password and whose `Display` has not.
    #[derive(Debug, thiserror::Error)]
    #[error("the database refuses the login")]
    #[allow(dead_code, reason = "`Debug` reads the field")]
    struct Refused {
        password: &'static str,
        #[source]
        cause: std::io::Error,
    }

    fn refused() -> Refused {
        Refused { password: "s3cret", cause: std::io::Error::other("connection reset") }
    }

    #[test]
    fn debug_prints_the_text_the_causes_and_the_kind_without_secrets() {
        let error = Error::new(ErrorKind::Store, "the transcript cannot be loaded")
            .with_help("check the store")
            .with_source(refused());
        let printed = format!("{error:?}");
        assert_eq!(
            printed,
            "the transcript cannot be loaded; check the store\n\
             Caused by: the database refuses the login\n\
             Caused by: connection reset\n\
             Kind: Store"
        );
        assert_eq!(format!("{error:#?}"), printed);
    }

    #[test]
    fn debug_prints_no_cause_that_the_text_has_already() {
        let error = Error::new(ErrorKind::Store, format!("the store failed: {}", refused()));
        assert_eq!(
            format!("{:?}", error.with_source(refused())),
            "the store failed: the database refuses the login\nCaused by: connection reset\nKind: Store"
        );
    }

    #[test]
    fn debug_prints_the_stderr_the_code_and_the_time_to_wait() {
        let error = Error::new(ErrorKind::RateLimited, "too many requests")
            .with_stderr("quota exceeded\n")
            .with_code(Some("quota".into()))
            .with_retry_after(Duration::from_secs(30));
        assert_eq!(
            format!("{error:?}"),
            "too many requests\nthe CLI's stderr ended with:\nquota exceeded\n\
             Kind: RateLimited\nCode: quota\nRetry after: 30s"
        );
    }
}
