//! Opening the file: its lock, its mode, and the version of its format.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redb::backends::FileBackend;
use redb::{Database, ReadableDatabase};

use super::error::{failed, inaccessible, not_opened, panicked};
use super::hold::{Hold, identity};
use super::storage::{Raw, Storage};
use super::writer::ROWS;
use crate::error::{BackendError, BackendErrorKind};
use crate::registry::{FORMAT, FORMAT_KEY, Result};

/// The file of a backend. It is locked from the first opening on, until this is dropped: an error closes the database
/// and not the file, so that no other process gets between two databases.
pub(super) trait OpenFile: Send {
    /// The file in the words of an error.
    fn shown(&self) -> String;

    /// The file, opened and locked. Called for each database: once at the start, and again after an error.
    fn raw(&mut self) -> Result<Raw>;

    /// True if [`raw`](Self::raw) has opened another file than that of the last database.
    fn is_another(&self) -> bool {
        false
    }

    /// A database was opened in the file.
    fn opened(&mut self) {}

    /// Bytes that the database may keep in memory. `None`: redb's default.
    fn cache(&self) -> Option<usize> {
        None
    }
}

/// A database that is open.
#[derive(Debug)]
pub(super) struct OpenDatabase {
    pub(super) database: Database,
    /// The file in the words of an error.
    pub(super) shown: String,
    storage: Storage,
}

impl OpenDatabase {
    /// Opens the database, and runs `first` in it, which is told whether it is in another file than the last one. A file that is
    /// refused is as it was.
    pub(super) fn open(
        file: &mut dyn OpenFile,
        first: impl FnOnce(&Database, bool) -> Result<()>,
    ) -> Result<Self> {
        let (raw, shown) = (file.raw()?, file.shown());
        let another = file.is_another();
        let storage = Storage::on(raw).map_err(|error| inaccessible(&shown, error))?;
        let mut builder = Database::builder();
        if let Some(bytes) = file.cache() {
            builder.set_cache_size(bytes);
        }
        // redb asserts what a whole file has: a file that was cut lets it panic.
        let opened = catch_unwind(AssertUnwindSafe(|| builder.create_with_backend(storage.clone())));
        let database = match opened {
            Ok(opened) => opened.map_err(|error| not_opened(&shown, error))?,
            Err(panic) => return Err(panicked(&shown, &*panic)),
        };
        let prepared = catch_unwind(AssertUnwindSafe(|| {
            prepare(&database, &shown).and_then(|()| first(&database, another))
        }));
        let open = Self { database, shown, storage };
        match prepared {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                open.close();
                return Err(error);
            }
            Err(panic) => {
                open.abandon();
                return Err(panicked(&file.shown(), &*panic));
            }
        }
        if let Err(error) = open.storage.accept() {
            let refused = inaccessible(&open.shown, error);
            open.close();
            return Err(refused);
        }
        file.opened();
        Ok(open)
    }

    /// Ends the database after an error. An end that panics harms nobody.
    pub(super) fn close(self) {
        let Self { database, storage, .. } = self;
        if catch_unwind(AssertUnwindSafe(|| drop(database))).is_err() {
            storage.cut_off();
        }
    }

    /// Leaves a database alone that has panicked: its locks may be poisoned, so that its end could panic as well.
    pub(super) fn abandon(self) {
        self.storage.cut_off();
        std::mem::forget(self.database);
    }
}

/// A database in a file.
pub(super) struct DatabaseFile {
    path: PathBuf,
    /// `None` before the first opening. A file that is missing or empty later has lost its facts, and is not created
    /// again.
    held: Option<HeldFile>,
    /// No database was opened in the file that is held.
    another: bool,
}

/// A file that is open and locked.
struct HeldFile {
    // Dropped first: whoever waits for the hold finds the lock free.
    raw: Arc<FileBackend>,
    hold: Hold,
}

/// The time for which a file that is in use is tried again. A process that was killed while it started a CLI has left a fork of
/// itself, which has the file open until it executes the CLI.
const PATIENCE: Duration = Duration::from_secs(1);

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Makes an attempt, and others while the file is in use.
fn patiently<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Err(error) if error.kind() == BackendErrorKind::InUse && Instant::now() < end => {
                // This is the writer's own thread.
                std::thread::park_timeout(PAUSE);
            }
            made => return made,
        }
    }
}

impl DatabaseFile {
    pub(super) fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), held: None, another: false }
    }

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

    /// Locks a file.
    fn hold(&self, file: File, shown: &str) -> Result<HeldFile> {
        let identity = identity(&file).map_err(|error| inaccessible(shown, error))?;
        let hold = Hold::take(identity).ok_or_else(|| held_here(shown))?;
        let raw = patiently(|| {
            let file = file.try_clone().map_err(|error| inaccessible(shown, error))?;
            FileBackend::new(file).map_err(|error| not_opened(shown, error))
        })?;
        Ok(HeldFile { raw: Arc::new(raw), hold })
    }
}

impl OpenFile for DatabaseFile {
    fn shown(&self) -> String {
        self.path.display().to_string()
    }

    fn is_another(&self) -> bool {
        self.another
    }

    fn opened(&mut self) {
        self.another = false;
    }

    fn raw(&mut self) -> Result<Raw> {
        let shown = self.shown();
        let failed = |error| inaccessible(&shown, error);
        if self.held.is_none() && !self.path.exists() {
            self.create(&shown)?;
        }
        let file = OpenOptions::new().read(true).write(true).open(&self.path).map_err(failed)?;
        let found = identity(&file).map_err(failed)?;
        if self.held.is_some() && file.metadata().map_err(failed)?.len() == 0 {
            let message = format!("the fleet's file {shown} was emptied; restore it from a backup");
            return Err(BackendError::new(BackendErrorKind::Damaged, message));
        }
        let held = match self.held.take_if(|held| held.hold.is(&found)) {
            Some(held) => held,
            // Another file has got the name, such as a backup that was restored. An error keeps the hold of the first one.
            None => {
                let held = self.hold(file, &shown)?;
                self.another = true;
                held
            }
        };
        Ok(self.held.insert(held).raw.clone())
    }
}

/// Gives a file its name, unless another process has created a file of the name meanwhile.
fn named(new: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(new, path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        // A file system without hard links.
        Err(_) => match rename(new, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            renamed => renamed?,
        },
    }
    // The name is durable as well.
    #[cfg(unix)]
    {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}

/// Renames a file, and replaces none.
#[cfg(target_os = "linux")]
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?)
}

#[cfg(not(target_os = "linux"))]
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}

/// Writes the version of the format into a new file, and checks it in a known one.
fn prepare(database: &Database, shown: &str) -> Result<()> {
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

/// Another backend of this process has the file open.
pub(super) fn held_here(shown: &str) -> BackendError {
    let message = format!(
        "another backend of this process has the fleet's file {shown} open: use a clone of that backend, or close it first"
    );
    BackendError::new(BackendErrorKind::InUse, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_use() -> BackendError {
        BackendError::new(BackendErrorKind::InUse, "a fork has it open".to_owned())
    }

    #[test]
    fn a_file_that_a_dying_process_has_open_is_tried_again() {
        let mut attempts = 0;
        let opened = patiently(|| {
            attempts += 1;
            if attempts < 3 { Err(in_use()) } else { Ok(attempts) }
        });
        assert_eq!(opened.unwrap(), 3);
    }

    #[test]
    fn a_file_that_stays_in_use_or_has_another_fault_is_refused() {
        let begun = Instant::now();
        assert_eq!(patiently(|| Err::<(), _>(in_use())).unwrap_err().kind(), BackendErrorKind::InUse);
        assert!(begun.elapsed() >= PATIENCE);
        let mut attempts = 0;
        let refused = patiently(|| {
            attempts += 1;
            Err::<(), _>(of_another_program("FILE"))
        });
        assert_eq!((refused.unwrap_err().kind(), attempts), (BackendErrorKind::Damaged, 1));
    }
}
