//! A lock file: the right to write to one conversation, among the processes of a user.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;

use crate::files::{is_absent, is_same_file, private_folders};
use crate::sessions::find::key::is_session_id;

/// How often a claim tries to lock a file while another process sweeps the folder. A sweep locks each file for a moment,
/// but the sweeping process may be stopped in that moment.
const TRIES_IN_SWEEP: usize = 200;

/// The pause between two tries.
const PAUSE_IN_SWEEP: Duration = Duration::from_millis(5);

/// The name of a conversation's lock file. The hash tells apart the configuration folders that share a lock folder.
pub(super) fn name(id: &str, config_hash: Option<&str>) -> String {
    match config_hash {
        Some(hash) => format!("{id}-{hash}.lock"),
        None => format!("{id}.lock"),
    }
}

/// Whether a file of this name is a lock file. The folder may have other files, if an option names it.
pub(super) fn is_name(name: &str) -> bool {
    let id = name.strip_suffix(".lock").and_then(|name| name.split_at_checked(36));
    id.is_some_and(|(id, rest)| is_session_id(id) && (rest.is_empty() || rest.starts_with('-')))
}

/// The reason why a file is not locked.
pub(super) enum Refused {
    /// This session holds the lock.
    Held(String),
    /// The folder refuses lock files now and later.
    Lasting(io::Error),
    Io(io::Error),
    /// The folder is not safe, for this reason.
    Folder(String),
}

impl Refused {
    /// The error of a call that makes the folder, makes the file or locks it. Other errors may pass, such as those of a
    /// full disk; so may ENOLCK, if the lock service of NFS is starting.
    fn of_use(error: io::Error) -> Self {
        use io::ErrorKind::{NotADirectory, PermissionDenied, ReadOnlyFilesystem, Unsupported};

        match error.kind() {
            NotADirectory | PermissionDenied | ReadOnlyFilesystem | Unsupported => Self::Lasting(error),
            _ => Self::Io(error),
        }
    }
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
        private_folders(folder).map_err(Refused::of_use)?;
        belongs_to_user(folder)?;
        let path = folder.join(name);
        let (mut no_sweep, mut tries) = (None, 0);
        loop {
            let mut file = match opening().create(true).truncate(false).mode(0o600).open(&path) {
                // A file that exists may be locked, even if this process cannot open it. On a read-only disk nobody can
                // write to the conversation either.
                Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem || is_missing(&path) => {
                    return Err(Refused::of_use(error));
                }
                file => file?,
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) if no_sweep.is_none() && tries < TRIES_IN_SWEEP => {
                    no_sweep = keep_sweeps_out(folder)?;
                    tries += 1;
                    continue;
                }
                Err(TryLockError::WouldBlock) => return Err(Refused::Held(holder(&mut file))),
                Err(TryLockError::Error(error)) => return Err(Refused::of_use(error)),
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

/// Refuses a folder of another user, or one that others can open: they could release our locks, or hold them for ever.
/// Its mode is not repaired: an option may name a folder that others need, such as `/tmp`.
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
    let mode = found.mode() & 0o777;
    if mode != 0o700 {
        return Err(Refused::Folder(format!("has the mode {mode:o}, and must have 700")));
    }
    Ok(())
}

fn is_missing(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| is_absent(&error))
}

/// Locks the folder, so that no sweep begins. `None`, after a pause, if another process sweeps it.
fn keep_sweeps_out(folder: &Path) -> io::Result<Option<File>> {
    let folder = File::open(folder)?;
    match folder.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {
            #[allow(
                clippy::disallowed_methods,
                reason = "on a blocking thread, and no event ends the wait in time"
            )]
            std::thread::sleep(PAUSE_IN_SWEEP);
            Ok(None)
        }
        // Without locks on folders there is no sweep.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(Some(folder)),
    }
}

/// To open a lock file. A link could lead to a file that is not a lock file, which would be overwritten.
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
