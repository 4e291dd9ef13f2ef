//! Removes the files of a name.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use greenroom::ErrorKind;
use greenroom::sessions::{LocalSessions, lock_folders};
use rustix::fs::OFlags;
use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

use super::name_file::{FILE, NameFile};
use super::{Folders, blocking, found};
use crate::error::{FilesError, FilesErrorKind};

const DOING: &str = "remove";

/// The right to remove files. One removal runs at a time, so that two of one name do not meet.
pub(crate) type Removal = Arc<OwnedMutexGuard<()>>;

impl Folders {
    /// Waits until no other removal runs.
    pub(crate) async fn removal(&self) -> Removal {
        Arc::new(self.removing.clone().lock_owned().await)
    }

    /// Removes everything of a name. Files that are gone already are passed over, so a removal that failed is repeated as it was.
    pub(crate) async fn remove(&self, conversation: Uuid, removal: &Removal) -> Result<(), FilesError> {
        let (folder, held) = (self.folder(conversation), removal.clone());
        let path = folder.clone();
        let file =
            blocking(move || if is_folder(&path)? { NameFile::read(&path) } else { Ok(NameFile::default()) })
                .await?;
        for config in &file.config_folders {
            remove_transcript(config, conversation).await?;
        }
        blocking(move || {
            // Held until the thread is done, even if the caller is gone.
            let _held = held;
            // The locks tell whether a session of the name is alive.
            let mut configs = configs_in(&folder).map_err(|error| FilesError::of(DOING, &folder, error))?;
            configs.extend(file.config_folders);
            let default =
                configs.iter().flat_map(|config| lock_folders(Some(config))).chain(lock_folders(None));
            let locks: BTreeSet<PathBuf> = file.lock_folders.into_iter().chain(default).collect();
            locks.iter().try_for_each(|locks| remove_locks(locks, conversation))?;
            remove_folder(&folder)
        })
        .await
    }
}

/// False if there is nothing. A link or a file is an error.
fn is_folder(path: &Path) -> Result<bool, FilesError> {
    let found = found(fs::symlink_metadata(path)).map_err(|error| FilesError::of(DOING, path, error))?;
    let Some(found) = found else { return Ok(false) };
    check_folder(DOING, path, &found)?;
    Ok(true)
}

/// An error for a link or a file in the place of a folder.
pub(super) fn check_folder(doing: &'static str, path: &Path, found: &Metadata) -> Result<(), FilesError> {
    match found {
        found if found.is_dir() => Ok(()),
        found if found.is_symlink() => Err(FilesError::new(FilesErrorKind::Link, doing, path)),
        _ => Err(FilesError::new(FilesErrorKind::InTheWay, doing, path)),
    }
}

/// Removes a name's folder. `name.json` goes last: it tells a repeated removal where the other files are.
fn remove_folder(folder: &Path) -> Result<(), FilesError> {
    let failed = |path: &Path, error| FilesError::of(DOING, path, error);
    if !is_folder(folder)? {
        return Ok(());
    }
    for entry in fs::read_dir(folder).map_err(|error| failed(folder, error))? {
        let path = entry.map_err(|error| failed(folder, error))?.path();
        if path.file_name().is_some_and(|name| name == FILE) {
            continue;
        }
        remove_tree(&path).map_err(|error| failed(&path, error))?;
    }
    found(fs::remove_dir_all(folder)).map(drop).map_err(|error| failed(folder, error))
}

/// Removes a file, a link or a folder with everything in it. Links are not followed.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    let removed = match found(fs::symlink_metadata(path))? {
        None => return Ok(()),
        Some(other) if !other.is_dir() => fs::remove_file(path),
        Some(_) => match fs::remove_dir_all(path) {
            // Folders without the right to write in them, such as those of Go's module cache.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                make_removable(path)?;
                fs::remove_dir_all(path)
            }
            removed => removed,
        },
    };
    found(removed).map(drop)
}

/// Gives the user all rights in the folders of a tree. Links are not followed.
pub(super) fn make_removable(top: &Path) -> io::Result<()> {
    let mut open = vec![top.to_owned()];
    while let Some(path) = open.pop() {
        let flags = (OFlags::NOFOLLOW | OFlags::DIRECTORY).bits().cast_signed();
        let folder = OpenOptions::new().read(true).custom_flags(flags).open(&path)?;
        let mode = folder.metadata()?.permissions().mode();
        if mode & 0o700 != 0o700 {
            folder.set_permissions(Permissions::from_mode(mode | 0o700))?;
        }
        for entry in fs::read_dir(&path)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
            }
        }
    }
    Ok(())
}

/// Removes a conversation from a configuration folder that the profile has set. Other conversations stay.
async fn remove_transcript(config: &Path, conversation: Uuid) -> Result<(), FilesError> {
    let sessions = LocalSessions::at(config);
    // Each project folder may have one: the working directory may have changed.
    loop {
        match sessions.delete(&conversation.to_string()).await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::SessionNotFound => return Ok(()),
            Err(error) => {
                return Err(FilesError::of("remove a transcript in", config, io::Error::other(error)));
            }
        }
    }
}

/// The configuration folders in a name's folder.
fn configs_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let Some(entries) = found(fs::read_dir(folder))? else { return Ok(Vec::new()) };
    let mut configs = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() && entry.file_name().as_encoded_bytes().starts_with(b"config") {
            configs.push(entry.path());
        }
    }
    Ok(configs)
}

/// Removes the lock files of a conversation that a process has left behind which was killed.
pub(super) fn remove_locks(folder: &Path, conversation: Uuid) -> Result<(), FilesError> {
    let failed = |path: &Path, error| FilesError::of("remove the lock", path, error);
    let entries = match fs::read_dir(folder) {
        // No session of this user locks in a folder that the user cannot read, or in a file.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied
            ) =>
        {
            return Ok(());
        }
        entries => entries.map_err(|error| failed(folder, error))?,
    };
    let prefix = conversation.to_string();
    for entry in entries {
        let entry = entry.map_err(|error| failed(folder, error))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(&prefix) && name.ends_with(".lock") {
            remove_lock(&entry.path())?;
        }
    }
    Ok(())
}

fn remove_lock(path: &Path) -> Result<(), FilesError> {
    let failed = |error| FilesError::of("remove the lock", path, error);
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let opened = found(OpenOptions::new().read(true).custom_flags(flags).open(path)).map_err(failed)?;
    let Some(file) = opened else { return Ok(()) };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(FilesError::new(FilesErrorKind::InUse, "remove the lock", path));
        }
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    // The path may name the lock of a new session by now.
    if is_same(&file, path).map_err(failed)? {
        found(fs::remove_file(path)).map_err(failed)?;
    }
    Ok(())
}

fn is_same(file: &File, path: &Path) -> io::Result<bool> {
    let Some(named) = found(fs::symlink_metadata(path))? else { return Ok(false) };
    let opened = file.metadata()?;
    Ok((opened.dev(), opened.ino()) == (named.dev(), named.ino()))
}
