//! The error of a backend.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::debug_as_report;

pub(crate) type Result<T, E = BackendError> = std::result::Result<T, E>;

/// The reason why a backend could not carry out a request. A refusal that follows from the rules, such as a full queue, is an
/// answer and no error.
#[derive(Clone)]
pub struct BackendError {
    kind: BackendErrorKind,
    message: String,
    cause: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// The kinds of [`BackendError`]. New kinds are added: match with a wildcard arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum BackendErrorKind {
    /// The backend cannot be reached, its disk refuses a write, or other requests change the same rows all the time. The request may have been carried out: repeat it with the
    /// same ids, and the answer is the same.
    Unavailable,
    /// The backend was closed: open it again.
    Closed,
    /// Another process, or another backend of this one, has the file open.
    InUse,
    /// The file was written by another version of the format.
    Version,
    /// The file is damaged, or is no file of a fleet.
    Damaged,
    /// The request is at fault, for instance because its JSON is nested too deeply, or because its id belongs to another prompt.
    /// Nothing was written, and repeating it does not help.
    Invalid,
}

impl BackendError {
    /// An error of a kind, with its text.
    pub fn new(kind: BackendErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), cause: None }
    }

    /// Adds the cause.
    #[must_use]
    pub fn caused_by(mut self, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.cause = Some(Arc::new(cause));
        self
    }

    /// The kind.
    pub fn kind(&self) -> BackendErrorKind {
        self.kind
    }

    /// True for an error that may pass.
    pub(crate) fn is_unavailable(&self) -> bool {
        self.kind == BackendErrorKind::Unavailable
    }

    pub(crate) fn missing(what: &str, id: impl fmt::Display) -> Self {
        let message = format!("the {what} {id} is listed and is not there; restore the file from a backup");
        Self::new(BackendErrorKind::Damaged, message)
    }

    pub(crate) fn id_reused(what: &str, id: impl fmt::Display) -> Self {
        let message = format!("the id {id} belongs to another {what}: make a new id for each {what}");
        Self::new(BackendErrorKind::Invalid, message)
    }

    pub(crate) fn moves(name: &crate::id::Name) -> Self {
        let message = format!("the session '{name}' moves to another backend: ask there when that is done");
        Self::new(BackendErrorKind::Invalid, message)
    }

    pub(crate) fn too_long(bytes: usize, most: usize) -> Self {
        let message = format!(
            "a row of the request would have a key of {bytes} bytes, and {most} is the most: shorten its name, key or tenant"
        );
        Self::new(BackendErrorKind::Invalid, message)
    }

    pub(crate) fn too_deep(most: usize) -> Self {
        let message = format!("the JSON of the request is nested deeper than {most} levels: flatten it");
        Self::new(BackendErrorKind::Invalid, message)
    }

    pub(crate) fn damaged(cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        let message = format!(
            "a record cannot be read: {cause}; restore the file from a backup, or export what can be read"
        );
        Self::new(BackendErrorKind::Damaged, message).caused_by(cause)
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

debug_as_report!(BackendError);

impl std::error::Error for BackendError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}
