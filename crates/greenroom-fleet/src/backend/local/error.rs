//! Errors of the file, in the words of a backend.

use redb::{DatabaseError, StorageError};

use crate::error::{BackendError, BackendErrorKind};

/// An error of a transaction.
pub(super) fn failed(error: impl Into<redb::Error>) -> BackendError {
    let error = error.into();
    let (kind, message) = match &error {
        redb::Error::Corrupted(what) => (
            BackendErrorKind::Damaged,
            format!("the fleet's file is damaged: {what}; restore it from a backup"),
        ),
        redb::Error::Io(io) => (
            BackendErrorKind::Unavailable,
            format!(
                "the fleet's file cannot be read or written: {io}; make room on its disk or mend it, then repeat the request"
            ),
        ),
        other => (
            BackendErrorKind::Unavailable,
            format!("the fleet's file refuses the request: {other}; repeat the request"),
        ),
    };
    BackendError::new(kind, message).caused_by(error)
}

/// An error of opening the file.
pub(super) fn not_opened(path: &str, error: DatabaseError) -> BackendError {
    let (kind, message) = match &error {
        DatabaseError::DatabaseAlreadyOpen => (
            BackendErrorKind::InUse,
            format!(
                "another process has the fleet's file {path} open: stop that process, or use another file"
            ),
        ),
        DatabaseError::UpgradeRequired(version) => (
            BackendErrorKind::Version,
            format!(
                "the fleet's file {path} has format {version} of its database: export it with the version of greenroom that wrote it, and import it with this one"
            ),
        ),
        DatabaseError::Storage(StorageError::Corrupted(what)) => not_a_fleet(path, what),
        // A file that does not begin as redb's files do.
        DatabaseError::Storage(StorageError::Io(io)) if io.kind() == std::io::ErrorKind::InvalidData => {
            not_a_fleet(path, &io.to_string())
        }
        DatabaseError::RepairAborted => (
            BackendErrorKind::Damaged,
            format!("the repair of the fleet's file {path} was aborted: open it again"),
        ),
        other => {
            (BackendErrorKind::Unavailable, format!("the fleet's file {path} cannot be opened: {other}"))
        }
    };
    BackendError::new(kind, message).caused_by(error)
}

fn not_a_fleet(path: &str, what: &str) -> (BackendErrorKind, String) {
    let text = format!(
        "the file {path} is damaged, or is no file of a fleet: {what}; restore it from a backup, or name another file"
    );
    (BackendErrorKind::Damaged, text)
}
