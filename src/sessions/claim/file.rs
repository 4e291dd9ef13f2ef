//! A lock file: the right to write to one conversation, among the processes of a user.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::files::{is_same_file, private_folders};
use crate::sessions::find::key::is_session_id;

/// The name of a conversation's lock file.
pub(super) fn name(id: &str, config_hash: &str) -> String {
    format!("{id}-{config_hash}.lock")
}

/// Whether a file of this name is a lock file. The folder may have other files, if an option names it.
pub(super) fn is_name(name: &str) -> bool {
    let id = name.strip_suffix(".lock").and_then(|name| name.split_at_checked(36));
    id.is_some_and(|(id, rest)| is_session_id(id) && rest.starts_with('-'))
}

/// The reason why a file is not locked.
pub(super) enum Refused {
    /// This session holds the lock.
    Held(String),
    Io(io::Error),
    /// The folder is not safe, for this reason.
    Folder(String),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A locked file. Dropping it deletes the file and releases the lock.
#[derive(Debug)]
pub(super) struct LockFile {
    path: PathBuf,
    pub(super) file: File,
    /// Process id of the owner. A fork of this process inherits this memory, but must not release the lock.
    process: u32,
}

impl Drop for LockFile {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        // Deleted while locked: a process that has opened the file meanwhile notices that it locked a deleted file. The
        // path may name the file of another process by now, if somebody has deleted ours.
        if let Ok(true) = is_same_file(&self.file, &self.path)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::debug!(path = %self.path.display(), %error, "a lock file could not be removed");
        }
        // Closing would not release the lock while a child that is being started holds a copy of the descriptor.
        self.file.unlock().ok();
    }
}

impl LockFile {
    pub(super) fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    /// Locks the file of this name. Creates the folder if it does not exist.
    pub(super) fn take(folder: &Path, name: &str) -> Result<Self, Refused> {
        private_folders(folder)?;
        belongs_to_user(folder)?;
        let path = folder.join(name);
        let mut no_sweep = None;
        loop {
            let mut file = opening().create(true).truncate(false).mode(0o600).open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) if no_sweep.is_none() => {
                    // A sweep locks each file for a moment. Without locks on folders there is no sweep.
                    let waited = File::open(folder).and_then(|folder| folder.lock_shared().map(|()| folder));
                    no_sweep = Some(waited);
                    continue;
                }
                Err(TryLockError::WouldBlock) => return Err(Refused::Held(holder(&mut file))),
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
            // The previous owner may have deleted the file between opening and locking.
            if !is_same_file(&file, &path)? {
                continue;
            }
            let process = std::process::id();
            // Only names the owner in the errors of others: a full disk is no reason to end a session.
            if let Err(error) = file.set_len(0).and_then(|()| file.write_all(process.to_string().as_bytes()))
            {
                tracing::debug!(path = %path.display(), %error, "a lock file does not name its process");
            }
            return Ok(Self { path, file, process });
        }
    }

    /// Removes the lock files that killed processes have left, among the first `most` files of the folder. Only one
    /// process at a time does so; a claim that meets a file which is being removed waits for it.
    pub(super) fn sweep(folder: &Path, most: usize) -> io::Result<()> {
        let sweeping = File::open(folder)?;
        match sweeping.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        for entry in fs::read_dir(folder)?.take(most) {
            let entry = entry?;
            if !entry.file_name().to_str().is_some_and(is_name) {
                continue;
            }
            let path = entry.path();
            // An error: the owner has removed the file, or it is a link or a folder.
            let Ok(file) = opening().open(&path) else { continue };
            if file.try_lock().is_ok() {
                drop(Self { path, file, process: std::process::id() });
            }
        }
        // Closing would not release the lock while a child that is being started holds a copy of the descriptor.
        sweeping.unlock()
    }
}

/// Refuses a folder of another user, or one that others can write to: they could release our locks, or hold them for
/// ever.
fn belongs_to_user(folder: &Path) -> Result<(), Refused> {
    let found = fs::symlink_metadata(folder)?;
    if !found.is_dir() {
        return Err(Refused::Folder("is not a directory".into()));
    }
    let (owner, user) = (found.uid(), rustix::process::geteuid().as_raw());
    if owner != user {
        let text = format!("belongs to user {owner}, but this process runs as user {user}");
        return Err(Refused::Folder(text));
    }
    if found.mode() & 0o077 != 0 {
        let text = format!("is open to other users (mode {:o})", found.mode() & 0o777);
        return Err(Refused::Folder(text));
    }
    Ok(())
}

/// To open a lock file. A link could lead to a file that is none of ours, which would be overwritten.
fn opening() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options
}

fn holder(file: &mut File) -> String {
    let mut process = String::new();
    let known = file.read_to_string(&mut process).is_ok()
        && !process.is_empty()
        && process.bytes().all(|byte| byte.is_ascii_digit());
    match known {
        true => format!("a session of process {process}"),
        false => "a session of another process".to_owned(),
    }
}
