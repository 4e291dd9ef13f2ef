//! The folder for lock files. All processes that may claim one conversation must come to the same folder, and no other
//! user may take the folder first.
//!
//! ```text
//!   lock_dir, if the option is set; else the first that does not refuse lock files for good of
//!   1. <configuration folder of the CLI>/greenroom-locks-<uid>      not if the CLI runs as another user
//!   2. <configuration folder of this process>/greenroom-locks-<uid>
//!   3. <folder for temporary files>/greenroom-locks-<uid>
//! ```
//!
//! The conversation is in the configuration folder of its CLI, so whoever can open the conversation finds the lock there,
//! whatever the environment: services, logins and containers of one user may each have their own `TMPDIR` and
//! `XDG_RUNTIME_DIR`. The other two are for a configuration folder that never holds locks: it is read-only, this user may
//! not write to it, or its file system has no locks. They depend on the environment of the process.
//!
//! Any other trouble with a folder ends the claim with an error: a full disk, a wrong mode or another owner of the lock
//! folder. It may be new, so a live session may have its lock in that folder, and a lock in the next folder would let a
//! second session in.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use uuid::Uuid;

use super::file::{self, LockFile, Refused};
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lock;
use crate::sessions::find::key::config_dir;

/// Files of a folder that one sweep looks at.
const SWEPT_FILES: usize = 4096;

/// Folders that this process remembers to have swept. It forgets all of them when they are more.
const SWEPT_FOLDERS: usize = 256;

/// The folders for lock files of conversations in a configuration folder, best first. `None` if the CLI runs as another
/// user, whose folder this process does not write to.
pub fn lock_folders(config: Option<&Path>) -> Vec<PathBuf> {
    let name = format!("greenroom-locks-{}", rustix::process::geteuid().as_raw());
    let own = config_dir(|name| std::env::var(name).ok()).ok();
    let own = own.and_then(|own| std::path::absolute(own).ok());
    let mut folders: Vec<_> = config.map(Path::to_owned).into_iter().chain(own).collect();
    folders.dedup();
    folders.into_iter().chain([std::env::temp_dir()]).map(|folder| folder.join(&name)).collect()
}

/// Locks a file in the first folder that does not refuse lock files for good. The file's name may depend on the folder.
/// `Ok(Err(_))`: this session holds the lock.
///
/// # Errors
/// [`ErrorKind::Io`] if all folders refuse lock files, or if something else is wrong with the first that does not; the
/// error says what is wrong with each.
pub(super) fn take_first(
    folders: &[PathBuf],
    name: impl Fn(&Path) -> String,
) -> Result<std::result::Result<LockFile, String>> {
    let (mut problems, mut source) = (Vec::new(), None);
    for folder in folders {
        let (problem, lasting) = match LockFile::take(folder, &name(folder)) {
            Ok(lock) => return Ok(Ok(lock)),
            Err(Refused::Held(by)) => return Ok(Err(by)),
            Err(Refused::Folder(problem)) => (problem, false),
            Err(Refused::Lasting(error)) => (cannot_be_used(&mut source, error), true),
            Err(Refused::Io(error)) => (cannot_be_used(&mut source, error), false),
        };
        tracing::debug!(folder = %folder.display(), problem, "a folder cannot hold lock files");
        problems.push(format!("the folder {} {problem}", folder.display()));
        if !lasting {
            break;
        }
    }
    let text = format!("the session cannot lock its conversation: {}", problems.join("; "));
    let error = Error::new(ErrorKind::Io, text).with_help(
        "repair the folder, or name a folder in `lock_dir` that belongs to this user, is closed to others (mode 0700) and has \
         free space",
    );
    Err(match source {
        Some(source) => error.with_source(source),
        None => error,
    })
}

fn cannot_be_used(source: &mut Option<io::Error>, error: io::Error) -> String {
    let problem = format!("cannot be used: {error}");
    *source = Some(error);
    problem
}

/// Locks a probe file, and sweeps the folder that holds it, if this process has not done so.
///
/// # Errors
/// Those of [`take_first`].
pub(super) fn check(folders: &[PathBuf]) -> Result<()> {
    let name = file::name(&Uuid::new_v4().to_string(), None);
    let Ok(probe) = take_first(folders, |_| name.clone())? else { return Ok(()) };
    let folder = probe.folder().to_owned();
    drop(probe);
    if is_first_sweep(&folder)
        && let Err(error) = LockFile::sweep(&folder, SWEPT_FILES)
    {
        tracing::debug!(folder = %folder.display(), %error, "old lock files could not be removed");
    }
    Ok(())
}

fn is_first_sweep(folder: &Path) -> bool {
    static SWEPT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let mut swept = lock(&SWEPT);
    if swept.len() >= SWEPT_FOLDERS {
        swept.clear();
    }
    swept.insert(folder.to_owned())
}
