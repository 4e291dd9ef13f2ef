//! Claims: no two live sessions write to one conversation.
//!
//! A claim has two parts. An entry in a list of this process refuses a second session in this process. For
//! conversations on disk, a locked file (`flock`) also refuses sessions in other processes of the user. The system
//! releases the lock when the process ends, even by SIGKILL. The files are outside of the CLI's own folders:
//!
//! ```text
//!   <lock folder>/<conversation>-<hash of the configuration folder>.lock     contains the process id of the owner
//! ```
//!
//! A program that deletes the file of a held lock, such as a cleaner of temporary files, releases it for other
//! processes; the list of this process still refuses.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::OFlags;

use super::find::key::{hash, is_session_id};
use crate::blocking::blocking;
use crate::error::{Error, ErrorKind, Result};
use crate::files::{is_same_file, private_folders};

/// Where a conversation is kept. The same id in another place is another conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConversationPlace {
    /// On disk, below this configuration folder; `locks` is the folder for lock files.
    Disk { config_dir: PathBuf, locks: PathBuf },
    /// In the memory of one transport of this process.
    Transport(u64),
}

/// A claimed conversation. Dropping it releases the conversation.
#[derive(Debug)]
pub(crate) struct Claim {
    id: String,
    // Dropped in order: other processes may claim the conversation before this one may.
    _lock: Option<LockFile>,
    _entry: ListEntry,
}

impl Claim {
    /// Claims a conversation. The id must be a UUID.
    ///
    /// # Errors
    /// [`ErrorKind::SessionInUse`] if a live session has claimed it, [`ErrorKind::Io`] if the lock file cannot be
    /// locked.
    pub(crate) async fn take(place: &ConversationPlace, id: &str) -> Result<Self> {
        if !is_session_id(id) {
            let text = format!("{id:?} is not a session id, so its conversation cannot be claimed");
            return Err(Error::new(ErrorKind::Malformed, text).with_help("a session id is a UUID"));
        }
        let id = id.to_ascii_lowercase();
        match place.clone() {
            ConversationPlace::Transport(number) => {
                let entry = ListEntry::add(format!("{number}/{id}"))
                    .ok_or_else(|| in_use(&id, "another session of this process"))?;
                Ok(Self { id, _lock: None, _entry: entry })
            }
            ConversationPlace::Disk { config_dir, locks } => {
                blocking(move || {
                    // Resolved: one folder may have two paths, before and after the CLI creates it.
                    let config_dir = real(&config_dir);
                    let config_dir = config_dir.to_string_lossy();
                    let entry = ListEntry::add(format!("{config_dir}/{id}"))
                        .ok_or_else(|| in_use(&id, "another session of this process"))?;
                    let lock = LockFile::take(&locks, &format!("{id}-{}.lock", hash(&config_dir)))
                        .map_err(|refused| refused.into_error(&id, &locks))?;
                    Ok(Self { id, _lock: Some(lock), _entry: entry })
                })
                .await
            }
        }
    }

    /// Whether the claim is for this conversation.
    pub(crate) fn is_on(&self, id: &str) -> bool {
        self.id.eq_ignore_ascii_case(id)
    }
}

/// The folder without symbolic links; the missing end of a path is kept as it is.
fn real(folder: &Path) -> PathBuf {
    let there = folder.ancestors().find_map(|above| Some((above, fs::canonicalize(above).ok()?)));
    match there {
        // `join` with an empty path would add a slash.
        Some((above, real)) if above == folder => real,
        Some((above, real)) => real.join(folder.strip_prefix(above).unwrap_or(folder)),
        None => folder.to_owned(),
    }
}

fn in_use(id: &str, by: &str) -> Error {
    Error::new(ErrorKind::SessionInUse, format!("the conversation {id} is in use by {by}"))
        .with_help("stop the other session first, or set `fork_session` to continue in a copy")
}

/// The conversations that sessions of this process have claimed.
static CLAIMED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn claimed() -> MutexGuard<'static, BTreeSet<String>> {
    CLAIMED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An entry in the list of this process.
#[derive(Debug)]
struct ListEntry(String);

impl ListEntry {
    fn add(key: String) -> Option<Self> {
        claimed().insert(key.clone()).then(|| Self(key))
    }
}

impl Drop for ListEntry {
    fn drop(&mut self) {
        claimed().remove(&self.0);
    }
}

/// The reason why a lock file could not be locked.
enum Refused {
    /// Another process holds the lock.
    Held(String),
    Io(io::Error),
    /// The folder is not safe, for the reason given.
    Folder(String),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Refused {
    fn into_error(self, id: &str, locks: &Path) -> Error {
        let folder = locks.display();
        let (text, source) = match self {
            Refused::Held(by) => return in_use(id, &by),
            Refused::Io(error) => (
                format!("the conversation {id} cannot be locked in the folder {folder}: {error}"),
                Some(error),
            ),
            Refused::Folder(problem) => {
                (format!("the conversation {id} cannot be locked: the folder {folder} {problem}"), None)
            }
        };
        let error = Error::new(ErrorKind::Io, text).with_help(
            "name a folder in `lock_dir` that belongs to this user, is closed to others (mode 0700) and has free space",
        );
        match source {
            Some(source) => error.with_source(source),
            None => error,
        }
    }
}

/// A locked file. Dropping it deletes the file and releases the lock.
#[derive(Debug)]
struct LockFile {
    path: PathBuf,
    file: File,
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
    fn take(folder: &Path, name: &str) -> std::result::Result<Self, Refused> {
        private_folders(folder)?;
        // Another user who can write here could release our locks, or hold them for ever.
        let found = fs::symlink_metadata(folder)?;
        if !found.is_dir() {
            return Err(Refused::Folder("is not a directory".into()));
        }
        let (owner, user) = (found.uid(), rustix::process::geteuid().as_raw());
        if owner != user {
            return Err(Refused::Folder(format!(
                "belongs to user {owner}, but this process runs as user {user}"
            )));
        }
        if found.mode() & 0o077 != 0 {
            let text = format!("is open to other users (mode {:o})", found.mode() & 0o777);
            return Err(Refused::Folder(text));
        }
        let path = folder.join(name);
        loop {
            let open = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                // A link could lead to a file that is none of ours, which would be overwritten.
                .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
                .open(&path);
            let mut file = open?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let mut holder = String::new();
                    file.read_to_string(&mut holder)?;
                    let known = !holder.is_empty() && holder.bytes().all(|byte| byte.is_ascii_digit());
                    return Err(Refused::Held(match known {
                        true => format!("a session of process {holder}"),
                        false => "a session of another process".to_owned(),
                    }));
                }
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
            // The previous owner may have deleted the file between opening and locking.
            if !is_same_file(&file, &path)? {
                continue;
            }
            let process = std::process::id();
            file.set_len(0)?;
            file.write_all(process.to_string().as_bytes())?;
            return Ok(Self { path, file, process });
        }
    }
}

/// The default folder for lock files: one for each user, in the system's folder for temporary files.
pub(crate) fn default_lock_dir() -> PathBuf {
    std::env::temp_dir().join(format!("greenroom-{}", rustix::process::geteuid().as_raw()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const ID: &str = "9f0bd1c4-3a5e-4c0e-8f6f-0d4a8f6a7b11";

    fn place(folder: &Path) -> ConversationPlace {
        ConversationPlace::Disk { config_dir: folder.join("config"), locks: folder.join("locks") }
    }

    #[tokio::test]
    async fn a_conversation_is_claimed_once_until_it_is_freed() {
        let folder = tempfile::tempdir().unwrap();
        let claim = Claim::take(&place(folder.path()), ID).await.unwrap();
        let error = Claim::take(&place(folder.path()), &ID.to_uppercase()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SessionInUse);
        assert!(error.to_string().contains(ID), "{error}");
        let elsewhere = ConversationPlace::Disk {
            config_dir: folder.path().join("other"),
            locks: folder.path().join("locks"),
        };
        drop(Claim::take(&elsewhere, ID).await.unwrap());
        drop(Claim::take(&ConversationPlace::Transport(u64::MAX), ID).await.unwrap());
        drop(claim);
        drop(Claim::take(&place(folder.path()), ID).await.unwrap());
        assert_eq!(fs::read_dir(folder.path().join("locks")).unwrap().count(), 0, "no file is left");
    }

    #[tokio::test]
    async fn a_lock_of_another_process_refuses_and_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let locks = folder.path().join("locks");
        // A second file description counts like another process.
        let held = LockFile::take(&locks, "a.lock").unwrap_or_else(|_| panic!("it is free"));
        let Err(Refused::Held(by)) = LockFile::take(&locks, "a.lock") else { panic!("it was not refused") };
        assert_eq!(by, format!("a session of process {}", std::process::id()));
        drop(held);
        assert!(LockFile::take(&locks, "a.lock").is_ok());
    }

    #[tokio::test]
    async fn a_claim_whose_file_was_deleted_does_not_delete_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let locks = folder.path().join("locks");
        let take = || LockFile::take(&locks, "a.lock");
        let first = take().unwrap_or_else(|_| panic!("it is free"));
        // As a cleaner of temporary files does.
        fs::remove_file(locks.join("a.lock")).unwrap();
        let _second = take().unwrap_or_else(|_| panic!("there was no file"));
        drop(first);
        assert!(matches!(take(), Err(Refused::Held(_))), "the second one has it still");
    }

    #[tokio::test]
    async fn a_copied_descriptor_does_not_keep_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let locks = folder.path().join("locks");
        let held = LockFile::take(&locks, "a.lock").unwrap_or_else(|_| panic!("it is free"));
        // As in a child between fork and exec, and in a process that opened the file before it was deleted.
        let (_copy, opened) = (held.file.try_clone().unwrap(), File::open(locks.join("a.lock")).unwrap());
        drop(held);
        opened.try_lock().unwrap();
    }

    #[tokio::test]
    async fn a_configuration_folder_is_the_same_before_and_after_it_is_made() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("real")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("real"), folder.path().join("link")).unwrap();
        let place = ConversationPlace::Disk {
            config_dir: folder.path().join("link/config"),
            locks: folder.path().join("locks"),
        };
        let claim = Claim::take(&place, ID).await.unwrap();
        // As the CLI does at its first start.
        fs::create_dir(folder.path().join("real/config")).unwrap();
        let error = Claim::take(&place, ID).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SessionInUse);
        drop(claim);
    }

    #[tokio::test]
    async fn a_lock_folder_that_others_can_write_to_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let locks = folder.path().join("locks");
        fs::create_dir(&locks).unwrap();
        fs::set_permissions(&locks, fs::Permissions::from_mode(0o770)).unwrap();
        let error = Claim::take(&place(folder.path()), ID).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("open to other users (mode 770)"), "{error}");
        fs::remove_dir(&locks).unwrap();
        fs::create_dir(folder.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &locks).unwrap();
        let error = Claim::take(&place(folder.path()), ID).await.unwrap_err();
        assert!(error.to_string().contains("is not a directory"), "{error}");
        // A refused claim leaves no entry.
        fs::remove_file(&locks).unwrap();
        drop(Claim::take(&place(folder.path()), ID).await.unwrap());
    }

    #[tokio::test]
    async fn a_lock_file_that_is_a_link_is_refused_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let claim = Claim::take(&place(folder.path()), ID).await.unwrap();
        let lock = fs::read_dir(folder.path().join("locks")).unwrap().next().unwrap().unwrap().path();
        drop(claim);
        let other = folder.path().join("other");
        fs::write(&other, "precious").unwrap();
        std::os::unix::fs::symlink(&other, &lock).unwrap();
        let error = Claim::take(&place(folder.path()), ID).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
    }

    #[tokio::test]
    async fn an_id_that_is_no_uuid_never_becomes_a_file_name() {
        let folder = tempfile::tempdir().unwrap();
        let error = Claim::take(&place(folder.path()), "../../etc/passwd").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Malformed);
    }
}
