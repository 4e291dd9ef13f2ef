//! Files and folders that only their owner can read, and files that may be replaced while they are open.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

/// True for the error of a file that does not exist.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Makes a folder and the folders above it; new ones can only be opened by the user of this process.
pub(crate) fn private_folders(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Opens a file for reading that belongs to one of these users. Without any it may be anybody's.
pub(crate) fn open_of(path: &Path, owners: &[u32]) -> io::Result<File> {
    let file = File::open(path)?;
    let owner = file.metadata()?.uid();
    if !owners.is_empty() && !owners.contains(&owner) {
        let text = format!("it belongs to the user {owner}, and not to the user of the CLI");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(file)
}

/// Whether the path still names the opened file, which may have been deleted and created again.
pub(crate) fn is_same_file(file: &File, path: &Path) -> io::Result<bool> {
    let named = match fs::metadata(path) {
        Err(error) if is_absent(&error) => return Ok(false),
        named => named?,
    };
    let opened = file.metadata()?;
    Ok((opened.dev(), opened.ino()) == (named.dev(), named.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_a_file_of_another_user_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&path, "{}").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let me = rustix::process::geteuid().as_raw();
        for path in [&path, &link] {
            assert!(open_of(path, &[]).is_ok() && open_of(path, &[me + 1, me]).is_ok());
            let error = open_of(path, &[me + 1]).unwrap_err();
            assert!(error.to_string().contains(&format!("belongs to the user {me}")), "{error}");
        }
    }
}
