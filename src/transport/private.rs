//! Files and folders that only the CLI's user can read.
//!
//! Every user of the machine can read the arguments of a process. If a CLI takes MCP servers and settings only as
//! arguments, [`open`] writes them to private files and passes the paths. The files are removed when the incarnation
//! has ended; a host that is killed leaves them in the system's folder for temporary files.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, lchown};
use std::path::Path;

use tempfile::TempDir;

use super::{Channel, Connection, Launch, Transport};
use crate::blocking::blocking;
use crate::error::{Error, ErrorKind, Result};
use crate::files::private_folders;
use crate::options::OsUser;

/// The flags whose value is JSON or the path of a JSON file. `--managed-settings` takes JSON only.
const TAKE_FILES: [&str; 2] = ["--mcp-config", "--settings"];

/// Makes a folder in the system's folder for temporary files that only the user of this process can open, whatever the
/// umask.
pub(crate) fn private_dir() -> io::Result<TempDir> {
    private_dir_in(&std::env::temp_dir())
}

/// Makes a temporary folder in this folder, as [`private_dir`] does.
pub(crate) fn private_dir_in(folder: &Path) -> io::Result<TempDir> {
    let owner_only = fs::Permissions::from_mode(0o700);
    let dir =
        tempfile::Builder::new().prefix("greenroom-").permissions(owner_only.clone()).tempdir_in(folder)?;
    // A strict umask may have removed permissions of the owner.
    fs::set_permissions(dir.path(), owner_only)?;
    Ok(dir)
}

/// Writes a file that only the user of this process can read, and creates the folders above it.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    path.parent().map_or(Ok(()), private_folders)?;
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?.write_all(bytes)
}

/// Makes the user the owner of the folder and everything in it.
pub(crate) fn hand_to(user: Option<OsUser>, path: &Path) -> io::Result<()> {
    let Some(OsUser { uid, gid, .. }) = user else { return Ok(()) };
    if fs::symlink_metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            hand_to(user, &entry?.path())?;
        }
    }
    // The folder last: until then its new owner cannot change its content.
    lchown(path, Some(uid), Some(gid)).map_err(|error| {
        io::Error::new(error.kind(), format!("{} cannot be given to user {uid}: {error}", path.display()))
    })
}

/// Opens a connection. With [`Channel::Arguments`], replaces JSON in the arguments by private files, and returns their folder,
/// which must outlive the process: bind it first, so that it is dropped last.
pub(crate) async fn open(
    transport: &dyn Transport,
    mut launch: Launch,
    private: Channel,
) -> Result<(Option<TempDir>, Connection)> {
    if private == Channel::Initialize {
        return Ok((None, transport.open(launch).await?));
    }
    let (launch, files) = blocking(move || {
        let files = into_files(&mut launch).map_err(|error| {
            let text = format!("the session cannot write arguments of the CLI to private files: {error}");
            Error::new(ErrorKind::Io, text)
                .with_help(
                    "free some space in the folder for temporary files, or name another one in `TMPDIR`",
                )
                .with_source(error)
        })?;
        Ok((launch, files))
    })
    .await?;
    let connection = transport.open(launch).await?;
    Ok((files, connection))
}

/// Moves JSON from arguments into files. Returns the folder of the files; `None` if there are none.
fn into_files(launch: &mut Launch) -> io::Result<Option<TempDir>> {
    let mut dir = None;
    for (number, arg) in launch.args.iter_mut().enumerate() {
        let Some((flag, json)) = arg.split_once('=') else { continue };
        if !TAKE_FILES.contains(&flag) || !json.trim_start().starts_with('{') {
            continue;
        }
        let folder = match &dir {
            Some(folder) => folder,
            None => dir.insert(private_dir()?),
        };
        let path = folder.path().join(format!("{}-{number}.json", flag.trim_start_matches('-')));
        write_private(&path, json.as_bytes())?;
        let path =
            path.to_str().ok_or_else(|| io::Error::other("the path of the temporary folder is not UTF-8"))?;
        *arg = format!("{flag}={path}");
    }
    if let Some(dir) = &dir {
        hand_to(launch.command.user, dir.path())?;
    }
    Ok(dir)
}
