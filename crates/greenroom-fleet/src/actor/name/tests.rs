//! Tests of a name's actor alone, for moments that no fleet can be stopped at.

mod processes;
mod slots;
mod turns;

use std::io;
use std::path::Path;

use super::steps::{NotStarted, of_files};
use crate::error::FilesError;
use crate::files::Folders;
use crate::record::Cause;

#[tokio::test]
async fn a_folder_of_one_session_that_is_not_writable_is_the_sessions_fault() {
    let root = tempfile::tempdir().unwrap();
    let (works, file) = (root.path().join("data"), root.path().join("file"));
    std::fs::write(&file, "no folder").unwrap();
    let is_host = async |root: &Path, kind: io::ErrorKind| {
        let error = FilesError::of("create the folder", &root.join("config"), kind.into());
        matches!(
            of_files::<()>(&Folders::at(root.to_owned(), false), Err(error)).await,
            Err(NotStarted::ByHost(_) | NotStarted::ByCause(Cause::DiskFull, _))
        )
    };
    for kind in [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem] {
        assert!(!is_host(&works, kind).await, "{kind}");
        assert!(is_host(&file, kind).await, "{kind}: other sessions fail as well");
    }
    assert!(is_host(&works, io::ErrorKind::StorageFull).await);
    assert!(is_host(&works, io::ErrorKind::DirectoryNotEmpty).await, "something still writes");
    assert!(!is_host(&works, io::ErrorKind::NotADirectory).await);
}
