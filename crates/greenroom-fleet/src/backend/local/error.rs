//! Errors of the file, in the words of a backend.

use std::any::Any;
use std::io;

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
                "the fleet's file cannot be read or written: {io}; {}, then repeat the request",
                remedy(io.kind())
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
    let (kind, message) = match error {
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
        DatabaseError::Storage(StorageError::Corrupted(ref what)) => not_a_fleet(path, what),
        // A file that does not begin as redb's files do, or ends too early.
        DatabaseError::Storage(StorageError::Io(ref io))
            if matches!(io.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) =>
        {
            not_a_fleet(path, &io.to_string())
        }
        DatabaseError::Storage(StorageError::Io(io)) => return inaccessible(path, io),
        DatabaseError::RepairAborted => (
            BackendErrorKind::Damaged,
            format!("the repair of the fleet's file {path} was aborted: open it again"),
        ),
        ref other => {
            (BackendErrorKind::Unavailable, format!("the fleet's file {path} cannot be opened: {other}"))
        }
    };
    BackendError::new(kind, message).caused_by(error)
}

/// The system refuses to open, read or write the file.
pub(super) fn inaccessible(path: &str, error: io::Error) -> BackendError {
    let message = format!("the fleet's file {path} cannot be opened: {error}; {}", remedy(error.kind()));
    BackendError::new(BackendErrorKind::Unavailable, message).caused_by(error)
}

/// The advice for an error of the disk.
fn remedy(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room on its disk",
        io::ErrorKind::ReadOnlyFilesystem => "its disk is read-only: make it writable",
        io::ErrorKind::PermissionDenied => {
            "let the user of this process read and write it, and write to its folder"
        }
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => "its folder has to exist and be writable",
        _ => "make room on its disk or mend it",
    }
}

/// The database has panicked on what it read from the file.
pub(super) fn panicked(path: &str, panic: &(dyn Any + Send)) -> BackendError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let (kind, message) = not_a_fleet(path, text.unwrap_or("the database has panicked"));
    BackendError::new(kind, message)
}

fn not_a_fleet(path: &str, what: &str) -> (BackendErrorKind, String) {
    let text = format!(
        "the file {path} is damaged, or is no file of a fleet: {what}; restore it from a backup, or name another file"
    );
    (BackendErrorKind::Damaged, text)
}
