//! The folder of a socket. Every user who can write there can replace the socket.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub(super) struct Folder {
    pub(super) path: PathBuf,
    owner: u32,
    mode: u32,
}

impl Folder {
    /// Looks up the folder of the socket at a path.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let found = std::fs::metadata(folder)?;
        Ok(Self { path: folder.to_owned(), owner: found.uid(), mode: found.mode() })
    }

    /// True if nobody but this user and root can write there. A sticky folder counts as writable: others can open the socket first.
    pub(super) fn is_private_to(&self, user: u32) -> bool {
        (self.owner == user || self.owner == 0) && self.mode & 0o022 == 0
    }
}
