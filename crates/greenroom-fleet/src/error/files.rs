//! The error of the files of a fleet.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::debug_as_report;

/// The reason why a fleet could not create or remove the files of a session. Its text names the path and says what to do.
#[derive(Clone)]
pub struct FilesError {
    kind: FilesErrorKind,
    doing: &'static str,
    path: PathBuf,
    cause: Option<Arc<io::Error>>,
}

/// The kinds of [`FilesError`], each with its remedy as its text. New kinds are added: match with a wildcard arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilesErrorKind {
    /// The disk can only be read.
    #[error("the disk can only be read; mount it for writing, or name a folder on another disk")]
    ReadOnly,
    /// The disk or the user's quota is full.
    #[error("the disk or the user's quota is full; free space, or delete sessions")]
    Full,
    /// This process may not write there.
    #[error(
        "this process is not allowed to; give the folder to the user of this process, or name another folder"
    )]
    NotAllowed,
    /// Something that is no folder lies at the path of a folder.
    #[error("a file lies where a folder should be; move the file away, or name another folder")]
    InTheWay,
    /// A symbolic link lies at the path of a folder. Links are never followed, for an agent may have made them.
    #[error(
        "a symbolic link lies where a folder should be, and is not followed; remove the link if it is not yours"
    )]
    Link,
    /// A live session of this or another process has the conversation open, or still writes.
    #[error("a session or one of its processes still uses it; stop that session")]
    InUse,
    /// Another error of the system.
    #[error("the system refuses")]
    Other,
}

impl FilesError {
    /// The error of an operation, such as `create the folder`.
    pub(crate) fn of(doing: &'static str, path: &Path, cause: io::Error) -> Self {
        let kind = match cause.kind() {
            io::ErrorKind::ReadOnlyFilesystem => FilesErrorKind::ReadOnly,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FilesErrorKind::Full,
            io::ErrorKind::PermissionDenied => FilesErrorKind::NotAllowed,
            io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => FilesErrorKind::InTheWay,
            // Something was written into a folder that was being removed.
            io::ErrorKind::DirectoryNotEmpty => FilesErrorKind::InUse,
            _ => FilesErrorKind::Other,
        };
        Self { kind, doing, path: path.to_owned(), cause: Some(Arc::new(cause)) }
    }

    pub(crate) fn new(kind: FilesErrorKind, doing: &'static str, path: &Path) -> Self {
        Self { kind, doing, path: path.to_owned(), cause: None }
    }

    /// The kind.
    pub fn kind(&self) -> FilesErrorKind {
        self.kind
    }

    /// The file or folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for FilesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the fleet cannot {} {}: ", self.doing, self.path.display())?;
        match (self.kind, &self.cause) {
            (FilesErrorKind::Other, Some(cause)) => write!(f, "{cause}"),
            (kind, _) => write!(f, "{kind}"),
        }
    }
}

debug_as_report!(FilesError);

impl std::error::Error for FilesError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}
