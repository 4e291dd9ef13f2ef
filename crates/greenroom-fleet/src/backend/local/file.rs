//! Opening the file: its lock, its mode, and the version of its format.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use redb::{Database, ReadableDatabase};

use super::error::{failed, not_opened};
use super::writer::ROWS;
use crate::error::{BackendError, BackendErrorKind};
use crate::registry::{FORMAT, FORMAT_KEY, Result};

/// Opens the database, once at the start and again after an error.
pub(super) trait OpenFile: Send {
    fn open(&mut self) -> Result<Database>;
}

/// A database in a file.
pub(super) struct DatabaseFile {
    path: PathBuf,
}

impl DatabaseFile {
    pub(super) fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }
}

impl OpenFile for DatabaseFile {
    fn open(&mut self) -> Result<Database> {
        let shown = self.path.display().to_string();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&self.path).map_err(|error| inaccessible(&shown, error))?;
        let database = Database::builder().create_file(file).map_err(|error| not_opened(&shown, error))?;
        prepare(&database, &shown)?;
        Ok(database)
    }
}

/// Writes the version of the format into a new file, and checks it in a known one.
pub(super) fn prepare(database: &Database, shown: &str) -> Result<()> {
    let read = database.begin_read().map_err(failed)?;
    let found = match read.open_table(ROWS) {
        Ok(table) => Some(table.get(FORMAT_KEY).map_err(failed)?.map(|version| version.value().to_vec())),
        Err(redb::TableError::TableDoesNotExist(_)) => None,
        Err(error) => return Err(failed(error)),
    };
    match found {
        Some(Some(version)) if version == FORMAT => Ok(()),
        Some(version) => {
            let version =
                version.map_or("unknown".into(), |version| String::from_utf8_lossy(&version).into_owned());
            let message = format!(
                "the fleet's file {shown} has the format {version}, and this version of greenroom reads {}: export it with the version that wrote it, and import it with this one",
                String::from_utf8_lossy(FORMAT)
            );
            Err(BackendError::new(BackendErrorKind::Version, message))
        }
        None => {
            if read.list_tables().map_err(failed)?.next().is_some() {
                let message = format!("{shown} is the database of another program: name another file");
                return Err(BackendError::new(BackendErrorKind::Damaged, message));
            }
            let write = database.begin_write().map_err(failed)?;
            write.open_table(ROWS).map_err(failed)?.insert(FORMAT_KEY, FORMAT).map_err(failed)?;
            write.commit().map_err(failed)
        }
    }
}

fn inaccessible(path: &str, error: io::Error) -> BackendError {
    let message =
        format!("the fleet's file {path} cannot be opened: {error}; its folder has to exist and be writable");
    BackendError::new(BackendErrorKind::Unavailable, message).caused_by(error)
}
