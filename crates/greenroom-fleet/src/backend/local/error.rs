//! Errors of the file, in the words of a backend.

use std::any::Any;
use std::io;

use redb::DatabaseError;

use crate::error::BackendError;
use crate::error::BackendErrorKind::{Closed, Damaged, InUse, Unavailable, Version};
use crate::registry::FORMAT;

/// An error of a transaction.
pub(super) fn failed(error: impl Into<redb::Error>) -> BackendError {
    let error = error.into();
    let (kind, message) = match &error {
        redb::Error::Corrupted(what) => {
            (Damaged, format!("the fleet's file is damaged: {what}; restore it from a backup"))
        }
        redb::Error::Io(io) => {
            let remedy = remedy(io.kind());
            let text = format!(
                "the fleet's file cannot be read or written: {io}; {remedy}, then repeat the request"
            );
            (Unavailable, text)
        }
        other => (Unavailable, format!("the fleet's file refuses the request: {other}; repeat the request")),
    };
    BackendError::new(kind, message).caused_by(error)
}

/// An error of opening the file.
pub(super) fn not_opened(path: &str, error: DatabaseError) -> BackendError {
    let error = redb::Error::from(error);
    let (kind, message) = match &error {
        redb::Error::DatabaseAlreadyOpen => return in_use(path),
        redb::Error::UpgradeRequired(version) => {
            return of_another_version(path, format!("has format {version} of its database"));
        }
        redb::Error::Corrupted(what) => not_a_fleet(path, what),
        // A file that does not begin as redb's files do, or ends too early.
        redb::Error::Io(io)
            if matches!(io.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) =>
        {
            not_a_fleet(path, &io.to_string())
        }
        redb::Error::Io(io) => (Unavailable, cannot_be_opened(path, io)),
        other => (Unavailable, format!("the fleet's file {path} cannot be opened: {other}")),
    };
    BackendError::new(kind, message).caused_by(error)
}

/// The system refuses to open, read or write the file.
pub(super) fn inaccessible(path: &str, error: io::Error) -> BackendError {
    BackendError::new(Unavailable, cannot_be_opened(path, &error)).caused_by(error)
}

fn cannot_be_opened(path: &str, error: &io::Error) -> String {
    format!("the fleet's file {path} cannot be opened: {error}; {}", remedy(error.kind()))
}

/// Another process, or another backend of this one, has the file open: the system's lock does not tell which.
pub(super) fn in_use(path: &str) -> BackendError {
    let message = format!(
        "another process, or another backend of this process, has the fleet's file {path} open: stop that process, use a clone of that backend, or close it first"
    );
    BackendError::new(InUse, message)
}

fn of_another_version(path: &str, what: String) -> BackendError {
    let message = format!(
        "the fleet's file {path} {what}: export it with the version that wrote it, and import it with this one"
    );
    BackendError::new(Version, message)
}

/// The rows have another format.
pub(super) fn of_another_format(path: &str, found: &[u8]) -> BackendError {
    let found = String::from_utf8_lossy(found);
    of_another_version(path, format!("has the format {found}, and this version of greenroom reads {FORMAT}"))
}

pub(super) fn of_another_program(path: &str) -> BackendError {
    let message = format!("{path} is the database of another program: name another file");
    BackendError::new(Damaged, message)
}

/// The writer's thread is gone.
pub(super) fn closed() -> BackendError {
    BackendError::new(Closed, "the writer of the fleet's file has ended: open the file again")
}

/// The file could not be opened.
pub(super) fn not_open() -> BackendError {
    BackendError::new(Unavailable, "the fleet's file could not be opened: repeat the request")
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

fn not_a_fleet(path: &str, what: &str) -> (crate::BackendErrorKind, String) {
    let text = format!(
        "the file {path} is damaged, or is no file of a fleet: {what}; restore it from a backup, or name another file"
    );
    (Damaged, text)
}
