//! The ends of the command.

use std::io;
use std::process::ExitCode;

use greenroom_fleet::admin::{HostError, MoveError};
use greenroom_fleet::{AnswerError, BackendError, BackendErrorKind, FleetError};

/// The reason why the command has not done it.
#[derive(Debug)]
pub(crate) enum Failure {
    /// 1: nothing of this name or id is there, or it is in another state.
    NotDone(String),
    /// 2: the arguments are at fault.
    Usage(String),
    /// 3: the database or the service does not answer, or refuses the command.
    NotReached(String),
    /// 1: the output cannot be written, or the system refuses.
    Output(io::Error),
}

impl Failure {
    pub(crate) fn code(&self) -> ExitCode {
        match self {
            Self::NotDone(_) | Self::Output(_) => ExitCode::from(1),
            Self::Usage(_) => ExitCode::from(2),
            Self::NotReached(_) => ExitCode::from(3),
        }
    }

    pub(crate) fn not_done(text: impl Into<String>) -> Self {
        Self::NotDone(text.into())
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotDone(text) | Self::Usage(text) | Self::NotReached(text) => f.write_str(text),
            Self::Output(error) => write!(f, "the output cannot be written: {error}"),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        match error.kind() {
            BackendErrorKind::Unavailable | BackendErrorKind::Closed => Self::NotReached(error.to_string()),
            _ => Self::NotDone(error.to_string()),
        }
    }
}

impl From<FleetError> for Failure {
    fn from(error: FleetError) -> Self {
        match error {
            FleetError::Backend(error) => error.into(),
            error => Self::NotDone(error.to_string()),
        }
    }
}

impl From<AnswerError> for Failure {
    fn from(error: AnswerError) -> Self {
        match error {
            AnswerError::Backend(error) => error.into(),
            AnswerError::Unknown { .. } => Self::NotReached(error.to_string()),
            error => Self::NotDone(error.to_string()),
        }
    }
}

impl From<MoveError> for Failure {
    fn from(error: MoveError) -> Self {
        match error {
            MoveError::Backend(error) => error.into(),
            error => Self::NotDone(error.to_string()),
        }
    }
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        match error {
            HostError::Backend(error) => error.into(),
            error => Self::NotDone(error.to_string()),
        }
    }
}
