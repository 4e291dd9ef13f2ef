//! Claims: no two live sessions write to one conversation.
//!
//! A claim has two parts. An entry in a list of this process refuses a second session in this process. For
//! conversations on disk, a locked file (`flock`) also refuses sessions in other processes of the user. The system
//! releases the lock when the process ends, even by SIGKILL:
//!
//! ```text
//!   <lock folder>/<conversation>.lock                                        in the configuration folder
//!   <lock folder>/<conversation>-<hash of the configuration folder>.lock     elsewhere
//! ```
//!
//! A lock file contains the process id of its owner. In the conversation's own configuration folder the name has no path in it,
//! because containers may have that folder at different paths. The module [`folder`] says which folder that is. The file of
//! a killed owner is reused by the next claim of its conversation; the start of a session removes the others
//! ([`Claim::check`]).
//!
//! A program that deletes the file of a held lock, such as a cleaner of temporary files, releases it for other
//! processes; the list of this process still refuses.

mod file;
mod folder;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use self::file::LockFile;
pub use self::folder::lock_folders;
use super::find::key::{hash, is_session_id};
use crate::blocking::blocking;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lock;

/// Where a conversation is kept. The same id in another place is another conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConversationPlace {
    /// On disk, below this configuration folder. The first of `locks` that does not refuse them for good has the lock files.
    Disk { config_dir: PathBuf, locks: Vec<PathBuf> },
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
    /// [`ErrorKind::SessionInUse`] if a live session has claimed it, [`ErrorKind::Io`] if the lock file cannot be made
    /// or locked.
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
                    let config = config_dir.to_string_lossy();
                    let entry = ListEntry::add(format!("{config}/{id}"))
                        .ok_or_else(|| in_use(&id, "another session of this process"))?;
                    let name = |locks: &Path| {
                        let apart = !real(locks).starts_with(&config_dir);
                        file::name(&id, apart.then(|| hash(&config)).as_deref())
                    };
                    let lock = folder::take_first(&locks, name)?.map_err(|by| in_use(&id, &by))?;
                    Ok(Self { id, _lock: Some(lock), _entry: entry })
                })
                .await
            }
        }
    }

    /// Checks that a conversation in this place can be claimed, and removes the lock files of killed processes.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if a lock file cannot be made or locked.
    pub(crate) async fn check(place: &ConversationPlace) -> Result<()> {
        let ConversationPlace::Disk { locks, .. } = place else { return Ok(()) };
        let locks = locks.clone();
        blocking(move || folder::check(&locks)).await
    }

    /// Whether the claim is for this conversation.
    pub(crate) fn is_on(&self, id: &str) -> bool {
        self.id.eq_ignore_ascii_case(id)
    }
}

/// The folder without symbolic links; the missing end of a path is kept as it is.
fn real(folder: &Path) -> PathBuf {
    // An error: the working directory of this process is gone.
    let folder = &std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
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

/// An entry in the list of this process.
#[derive(Debug)]
struct ListEntry(String);

impl ListEntry {
    fn add(key: String) -> Option<Self> {
        lock(&CLAIMED).insert(key.clone()).then(|| Self(key))
    }
}

impl Drop for ListEntry {
    fn drop(&mut self) {
        lock(&CLAIMED).remove(&self.0);
    }
}

#[cfg(test)]
mod tests;
