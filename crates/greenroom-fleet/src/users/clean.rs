//! Removes what a user of the system has left outside of its session's folder.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use greenroom::transport::{kill_processes_of_user, remove_ipc_of_user};

use crate::files::remove_tree;

/// Folders of the system in which each user may create files.
const SHARED: [&str; 5] = ["/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock"];

/// Ends the processes of a user, and removes its files for temporary use. Ends processes first, because they could create more files.
pub(super) fn clean(uid: u32) -> Result<(), String> {
    kill_processes_of_user(uid).map_err(|error| format!("its processes could not be ended: {error}"))?;
    remove_ipc_of_user(uid).map_err(|error| format!("its shared memory could not be removed: {error}"))?;
    let folders: BTreeSet<PathBuf> = SHARED.iter().map(PathBuf::from).chain([std::env::temp_dir()]).collect();
    for folder in folders {
        let unlisted = |error| format!("the folder {} could not be listed: {error}", folder.display());
        let Some(entries) = there(fs::read_dir(&folder)).map_err(unlisted)? else { continue };
        for entry in entries {
            let path = entry.map_err(unlisted)?.path();
            if there(fs::symlink_metadata(&path)).map_err(unlisted)?.is_none_or(|found| found.uid() != uid) {
                continue;
            }
            let removed = remove_tree(&path);
            removed.map_err(|error| format!("its file {} could not be removed: {error}", path.display()))?;
        }
    }
    Ok(())
}

/// `None`: there is nothing at the path, perhaps any more.
fn there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}
