//! The file of a backend: how it is created, and its lock.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redb::Database;
use redb::backends::FileBackend;

use super::error::{inaccessible, not_opened};
use super::storage::Raw;
use crate::error::{BackendError, BackendErrorKind};
use crate::registry::Result;

/// The file of a backend. It is locked from the first opening on, until this is dropped: an error closes the database
/// and not the file, so that no other process gets between two databases.
pub(super) trait OpenFile: Send {
    /// The file in the words of an error.
    fn shown(&self) -> String;

    /// The file, opened and locked. Called for each database: once at the start, and again after an error. Another file than that of
    /// the last database is another value.
    fn raw(&mut self) -> Result<Raw>;

    /// Bytes that the database may keep in memory. `None`: redb's default.
    fn cache(&self) -> Option<usize> {
        None
    }
}

/// A database in a file.
pub(super) struct DatabaseFile {
    path: PathBuf,
    /// The device and the number of the file that is locked. `None` before the first opening: a file that is missing or empty later has
    /// lost its facts, and is not created again.
    held: Option<((u64, u64), Raw)>,
}

/// The time for which a file that is in use is tried again. A backend of this process closes some time after its last clone was dropped:
/// it finishes what waits, and tasks of a fleet that has just ended may still hold a clone. A process that was killed while it started a
/// CLI has left a fork of itself, which has the file open until it executes the CLI.
const PATIENCE: Duration = Duration::from_secs(2);

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Makes an attempt, and others while the file is in use.
pub(super) fn patiently<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
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
        Self { path: path.to_owned(), held: None }
    }

    /// Creates the file, unless another process does first. The file gets its name when it is whole: redb does not open a file whose
    /// creation a power cut has ended.
    fn create(&self, shown: &str) -> Result<()> {
        let failed = |error| inaccessible(shown, error);
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let prefix = format!("{name}-");
        while !self.path.exists() {
            remove_abandoned(folder, &prefix).map_err(failed)?;
            let new =
                tempfile::Builder::new().prefix(&prefix).suffix(NEW).tempfile_in(folder).map_err(failed)?;
            let file = new.as_file().try_clone().map_err(failed)?;
            drop(Database::builder().create_file(file).map_err(|error| not_opened(shown, error))?);
            match new.persist_noclobber(&self.path) {
                // The name is durable as well.
                Ok(_) => return File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed),
                // Another process has created the file, or has removed this one as abandoned, before it was locked.
                Err(refused)
                    if matches!(refused.error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) => {}
                Err(refused) => return Err(failed(refused.error)),
            }
        }
        Ok(())
    }
}

/// How the name of a file ends that is being created.
const NEW: &str = ".new";

/// Removes the files that processes left that were killed while they created the database. A process that is alive holds the lock of
/// its file.
fn remove_abandoned(folder: &Path, prefix: &str) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !(name.starts_with(prefix) && name.ends_with(NEW)) {
            continue;
        }
        let locked = match File::open(&path) {
            Ok(file) => file.try_lock(),
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        match locked {
            Ok(()) => match std::fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            },
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(())
}

impl OpenFile for DatabaseFile {
    fn shown(&self) -> String {
        self.path.display().to_string()
    }

    fn raw(&mut self) -> Result<Raw> {
        let shown = self.shown();
        let failed = |error| inaccessible(&shown, error);
        if self.held.is_none() && !self.path.exists() {
            self.create(&shown)?;
        }
        let file = OpenOptions::new().read(true).write(true).open(&self.path).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        if self.held.is_some() && found.len() == 0 {
            let message = format!("the fleet's file {shown} was emptied; restore it from a backup");
            return Err(BackendError::new(BackendErrorKind::Damaged, message));
        }
        let found = (found.dev(), found.ino());
        if let Some((held, raw)) = &self.held
            && *held == found
        {
            return Ok(raw.clone());
        }
        // Another file may have got the name, such as a backup that was restored. An error keeps the lock of the first one.
        let raw: Raw = Arc::new(patiently(|| {
            let file = file.try_clone().map_err(failed)?;
            FileBackend::new(file).map_err(|error| not_opened(&shown, error))
        })?);
        self.held = Some((found, raw.clone()));
        Ok(raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: BackendErrorKind) -> BackendError {
        BackendError::new(kind, "an error of the test")
    }

    #[test]
    fn a_creation_that_a_kill_ended_leaves_nothing_behind() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        let abandoned = ["fleet.redb-1.new", "fleet.redb-2.new"].map(at);
        abandoned.iter().for_each(|path| std::fs::write(path, "half of a database").unwrap());
        let of_others = ["other.redb-1.new", "fleet.redb-notes", "fleet.redb-alive.new"].map(at);
        of_others.iter().for_each(|path| std::fs::write(path, "").unwrap());
        let alive = File::open(&of_others[2]).unwrap();
        alive.lock().unwrap();

        DatabaseFile::at(&at("fleet.redb")).raw().unwrap();
        let mut left: Vec<_> =
            std::fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        left.sort();
        let mut expected = of_others.to_vec();
        expected.push(at("fleet.redb"));
        expected.sort();
        assert_eq!(left, expected);
    }

    #[test]
    fn a_file_that_a_dying_process_has_open_is_tried_again() {
        let mut attempts = 0;
        let opened = patiently(|| {
            attempts += 1;
            if attempts < 3 { Err(error(BackendErrorKind::InUse)) } else { Ok(attempts) }
        });
        assert_eq!(opened.unwrap(), 3);
    }

    #[test]
    fn a_file_that_stays_in_use_or_has_another_fault_is_refused() {
        let begun = Instant::now();
        let in_use = || Err::<(), _>(error(BackendErrorKind::InUse));
        assert_eq!(patiently(in_use).unwrap_err().kind(), BackendErrorKind::InUse);
        assert!(begun.elapsed() >= PATIENCE);
        let mut attempts = 0;
        let refused = patiently(|| {
            attempts += 1;
            Err::<(), _>(error(BackendErrorKind::Damaged))
        });
        assert_eq!((refused.unwrap_err().kind(), attempts), (BackendErrorKind::Damaged, 1));
    }
}
