//! Opening the file: its lock, its mode, and the version of its format.

use std::fs::{self, OpenOptions};
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
    /// It was open before: a file that is missing or empty now has lost its facts, and is not created again.
    opened: bool,
}

impl DatabaseFile {
    pub(super) fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), opened: false }
    }
}

impl OpenFile for DatabaseFile {
    fn open(&mut self) -> Result<Database> {
        let shown = self.path.display().to_string();
        if !self.opened && !self.path.exists() {
            self.create(&shown)?;
        }
        let file = OpenOptions::new().read(true).write(true).open(&self.path);
        let file = file.map_err(|error| inaccessible(&shown, error))?;
        if self.opened && file.metadata().map_err(|error| inaccessible(&shown, error))?.len() == 0 {
            let message = format!("the fleet's file {shown} was emptied; restore it from a backup");
            return Err(BackendError::new(BackendErrorKind::Damaged, message));
        }
        let database = Database::builder().create_file(file).map_err(|error| not_opened(&shown, error))?;
        prepare(&database, &shown)?;
        self.opened = true;
        Ok(database)
    }
}

impl DatabaseFile {
    /// Creates the file. It gets its name when it is whole: redb does not open a file whose creation a power cut has ended.
    fn create(&self, shown: &str) -> Result<()> {
        let failed = |error| inaccessible(shown, error);
        let mut new = self.path.clone().into_os_string();
        new.push(format!(".{}.new", uuid::Uuid::new_v4()));
        let new = PathBuf::from(new);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&new).map_err(failed)?;
        let created = Database::builder()
            .create_file(file)
            .map_err(|error| not_opened(shown, error))
            .and_then(|database| prepare(&database, shown))
            .and_then(|()| named(&new, &self.path).map_err(failed));
        fs::remove_file(&new).ok();
        created
    }
}

/// Gives a file its name, unless another process has created a file of the name meanwhile.
fn named(new: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(new, path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        // A file system without hard links.
        Err(_) => fs::rename(new, path)?,
    }
    // The name is durable as well.
    #[cfg(unix)]
    {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}

/// Writes the version of the format into a new file, and checks it in a known one.
pub(super) fn prepare(database: &Database, shown: &str) -> Result<()> {
    let read = database.begin_read().map_err(failed)?;
    let found = match read.open_table(ROWS) {
        Ok(table) => Some(table.get(FORMAT_KEY).map_err(failed)?.map(|version| version.value().to_vec())),
        Err(redb::TableError::TableDoesNotExist(_)) => None,
        Err(redb::TableError::TableTypeMismatch { .. } | redb::TableError::TableIsMultimap(_)) => {
            return Err(of_another_program(shown));
        }
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
            let tables = read.list_tables().map_err(failed)?.count();
            if tables + read.list_multimap_tables().map_err(failed)?.count() > 0 {
                return Err(of_another_program(shown));
            }
            let write = database.begin_write().map_err(failed)?;
            write.open_table(ROWS).map_err(failed)?.insert(FORMAT_KEY, FORMAT).map_err(failed)?;
            write.commit().map_err(failed)
        }
    }
}

fn of_another_program(shown: &str) -> BackendError {
    let message = format!("{shown} is the database of another program: name another file");
    BackendError::new(BackendErrorKind::Damaged, message)
}

fn inaccessible(path: &str, error: io::Error) -> BackendError {
    let message =
        format!("the fleet's file {path} cannot be opened: {error}; its folder has to exist and be writable");
    BackendError::new(BackendErrorKind::Unavailable, message).caused_by(error)
}
