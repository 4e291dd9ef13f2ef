//! The error of a start.

use std::error::Error as StdError;

/// The reason why a process was not started, or a watchdog not set.
#[derive(Debug, thiserror::Error)]
#[error("{message}{}", help.as_deref().map(|help| format!("; {help}")).unwrap_or_default())]
pub struct Error {
    kind: ErrorKind,
    message: String,
    help: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The kind of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no such program.
    NotFound,
    /// The program exists, and the system cannot execute it.
    NotExecutable,
    /// The system has no memory, process, thread or open file left for the start.
    NoResources,
    /// No guardian runs, or it does not answer, and the start or the watchdog needs it.
    NoGuardian,
    /// The program could not be started, or not under the conditions that were asked for.
    Spawn,
}

/// The result of a start.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), help: None, source: None }
    }

    pub(crate) fn with_help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    pub(crate) fn with_source(self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The text without the help.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Advice in a sentence. `None` if no advice is known.
    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// Takes the cause out of the error.
    pub fn into_source(self) -> Option<Box<dyn StdError + Send + Sync>> {
        self.source
    }
}
