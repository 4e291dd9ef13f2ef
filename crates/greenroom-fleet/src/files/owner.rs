//! The owners of a session's files, where its CLI runs as another user of the system.
//!
//! ```text
//!             open: everything below is given to the user, then the group may pass
//!   closed ──────────────────────────────────────────────────────────────────────► open
//!   <conversation>/  of the service, 0700                       <conversation>/  of the service and the user's group, 0710
//!          ▲                                                          │
//!          └──────────────────────────── close ───────────────────────┘
//! ```
//!
//! `<conversation>/` and `name.json` stay the service's, so no CLI can replace the folders in it. What is below them is given to the user before each start, without following links:
//!
//! | an entry of | is given to the user |
//! |---|---|
//! | the owner of `work` (`config`, `home`, `tmp`), the session's last user | always |
//! | the service | if the session had no user yet, or the service has made the entry since it took the user. Not a file with several names |
//! | another user of the pool: the rest of an attempt that was cut off | if it is no file with several names |
//! | anybody else | never |
//!
//! A CLI may have moved a file of somebody else into its folder, or made another name of it (a hard link). Such a file stays its
//! owner's. The system clears set-user-ID bits of what is given.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, fchown};
use std::path::Path;
use std::sync::Arc;

use greenroom::options::OsUser;
use rustix::fs::{AtFlags, Dev, Dir, FileType, Mode, OFlags, Stat, chownat, fstat, openat, statat};
use rustix::process::{Gid, Uid, getegid, geteuid};
use uuid::Uuid;

use super::{Folders, NameFolders, blocking, found};
use crate::error::FilesError;

const GIVE: &str = "give to the session's user the files in";
const CLOSE: &str = "close the folder";

/// The levels of folders below `work`. Each takes a descriptor while it is open.
const MOST_LEVELS: usize = 128;

/// A moment as the system notes the last change of a file: seconds and nanoseconds.
pub(crate) type Changed = (i64, i64);

/// The user of a session, and what decides which files it is given.
#[derive(Clone, Debug)]
pub(crate) struct NewOwner {
    pub(crate) user: OsUser,
    /// The ids of all users of the pool.
    pub(crate) pool: Arc<[u32]>,
    /// The moment at which the service took the user.
    pub(crate) since: Changed,
}

impl Folders {
    /// Opens a session's folders to its user, and makes the user the owner of what is in them. No process of the session's last
    /// user may run.
    pub(crate) async fn open_to(&self, own: &NameFolders, owner: NewOwner) -> Result<(), FilesError> {
        let own = own.clone();
        blocking(move || {
            let tops = [&own.work, &own.config, &own.home, &own.temporary];
            let mut left = 0;
            for top in tops.into_iter().filter(|top| top.exists()) {
                left += give(top, &owner).map_err(|error| FilesError::of(GIVE, top, error))?;
            }
            if left > 0 {
                let folder = own.folder.display();
                tracing::warn!(%folder, left, "files of others in a session's folder stay theirs");
            }
            let opened = chown(&own.folder, Some(geteuid().as_raw()), Some(owner.user.gid))
                .and_then(|()| fs::set_permissions(&own.folder, Permissions::from_mode(0o710)));
            opened
                .map_err(|error| FilesError::of("open to the session's user the folder", &own.folder, error))
        })
        .await
    }

    /// Closes a session's folder to a user whom it is open to. Another owner of the session may have opened it to another user.
    pub(crate) fn close_to(&self, conversation: Uuid, user: u32) -> Result<(), FilesError> {
        let folder = self.folder(conversation);
        let close = || {
            let Some(work) = found(fs::symlink_metadata(folder.join("work")))? else { return Ok(()) };
            if work.uid() != user {
                return Ok(());
            }
            fs::set_permissions(&folder, Permissions::from_mode(0o700))?;
            chown(&folder, Some(geteuid().as_raw()), Some(getegid().as_raw()))
        };
        close().map_err(|error| FilesError::of(CLOSE, &folder, error))
    }

    /// The owner of a session's files: its last user, if it had one.
    pub(crate) fn last_user(&self, conversation: Uuid) -> Option<u32> {
        let work = fs::symlink_metadata(self.folder(conversation).join("work")).ok()?;
        Some(work.uid()).filter(|uid| *uid != geteuid().as_raw())
    }
}

/// Gives a folder and what is in it to a user. Returns the number of entries that stay their owners'.
fn give(top: &Path, owner: &NewOwner) -> io::Result<u64> {
    let folder: OwnedFd = {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::open(top, flags, Mode::empty())?
    };
    let found = fstat(&folder)?;
    let mut giving =
        Giving { owner, before: found.st_uid, device: found.st_dev, service: geteuid().as_raw(), left: 0 };
    giving.below(&folder, 0)?;
    // Change the top folder last, so that an interrupted run starts with the same old owner.
    let folder = File::from(folder);
    fchown(&folder, Some(owner.user.uid), Some(owner.user.gid))?;
    folder.set_permissions(Permissions::from_mode(0o700))?;
    Ok(giving.left)
}

struct Giving<'a> {
    owner: &'a NewOwner,
    /// The owner of the top folder.
    before: u32,
    /// What is mounted below the folder stays as it is.
    device: Dev,
    service: u32,
    left: u64,
}

impl Giving<'_> {
    /// Gives what is in a folder.
    fn below(&mut self, folder: &OwnedFd, level: usize) -> io::Result<()> {
        if level == MOST_LEVELS {
            return Err(io::Error::other(format!(
                "folders are nested deeper than {MOST_LEVELS} levels; remove the deepest ones"
            )));
        }
        let mut folders = Vec::new();
        for entry in Dir::read_from(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let Some(found) =
                found(statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from))?
            else {
                continue;
            };
            if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
                folders.push(name.to_owned());
            } else if self.gives(&found, found.st_nlink == 1) {
                let OsUser { uid, gid, .. } = self.owner.user;
                let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
                chownat(folder, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
            }
        }
        for name in folders {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let inner = openat(folder, name, flags, Mode::empty())?;
            let found = fstat(&inner)?;
            if found.st_dev != self.device {
                self.left += 1;
                continue;
            }
            self.below(&inner, level + 1)?;
            if self.gives(&found, true) {
                fchown(&inner, Some(self.owner.user.uid), Some(self.owner.user.gid))?;
            }
        }
        Ok(())
    }

    /// True if an entry is to be given to the user. Counts the entries that stay another owner's.
    fn gives(&mut self, entry: &Stat, has_one_name: bool) -> bool {
        let (user, by) = (self.owner.user, entry.st_uid);
        if by == user.uid {
            return entry.st_gid != user.gid;
        }
        let changed: Changed = (entry.st_ctime as _, entry.st_ctime_nsec as _);
        let is_given = if by == self.service {
            has_one_name && (self.before == self.service || changed >= self.owner.since)
        } else {
            by == self.before || (has_one_name && self.owner.pool.contains(&by))
        };
        self.left += u64::from(!is_given);
        is_given
    }
}

#[cfg(test)]
mod tests;
