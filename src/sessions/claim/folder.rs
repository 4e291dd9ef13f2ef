//! The folder for lock files. All processes that may claim one conversation must come to the same folder, and no other
//! user may take the folder first.
//!
//! ```text
//!   lock_dir, if the option is set; else the first that can be used of
//!   1. <configuration folder of the CLI>/greenroom-locks-<uid>      not if the CLI runs as another user
//!   2. <configuration folder of this process>/greenroom-locks-<uid>
//!   3. <folder for temporary files>/greenroom-locks-<uid>
//! ```
//!
//! The conversation is in the configuration folder of its CLI, so whoever can open the conversation finds the lock there,
//! whatever the environment: services, logins and containers of one user may each have their own `TMPDIR` and
//! `XDG_RUNTIME_DIR`. The other two are for a configuration folder that cannot hold locks, such as a read-only one. They
//! depend on the environment of the process.

use std::collections::BTreeSet;
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

/// Locks a file in the first folder that can hold it. `Ok(Err(_))`: this session holds the lock.
///
/// # Errors
/// [`ErrorKind::Io`] if no folder can hold the file; the error says what is wrong with each.
pub(super) fn take_first(folders: &[PathBuf], name: &str) -> Result<std::result::Result<LockFile, String>> {
    let (mut problems, mut source) = (Vec::new(), None);
    for folder in folders {
        let problem = match LockFile::take(folder, name) {
            Ok(lock) => return Ok(Ok(lock)),
            Err(Refused::Held(by)) => return Ok(Err(by)),
            Err(Refused::Folder(problem)) => problem,
            Err(Refused::Io(error)) => {
                let problem = format!("cannot be used: {error}");
                source = Some(error);
                problem
            }
        };
        tracing::debug!(folder = %folder.display(), problem, "a folder cannot hold lock files");
        problems.push(format!("the folder {} {problem}", folder.display()));
    }
    let text = format!("the session cannot lock its conversation: {}", problems.join("; "));
    let error = Error::new(ErrorKind::Io, text).with_help(
        "name a folder in `lock_dir` that belongs to this user, is closed to others (mode 0700) and has free space",
    );
    Err(match source {
        Some(source) => error.with_source(source),
        None => error,
    })
}

/// Locks a file that nobody else wants, and sweeps the folder that holds it, if this process has not done so.
///
/// # Errors
/// Those of [`take_first`].
pub(super) fn check(folders: &[PathBuf]) -> Result<()> {
    let name = file::name(&Uuid::new_v4().to_string(), "start");
    let Ok(probe) = take_first(folders, &name)? else { return Ok(()) };
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
