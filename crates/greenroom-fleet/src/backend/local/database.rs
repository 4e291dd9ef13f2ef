//! The database in a file: it is opened and checked, read beside the writer, and written by the writer alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use redb::{Database, ReadableDatabase, ReadableTable, Table, TableDefinition, TableError};

use super::error::{failed, inaccessible, not_opened, of_another_format, of_another_program, panicked};
use super::file::OpenFile;
use super::storage::{Raw, Storage};
use crate::error::BackendErrorKind;
use crate::registry::{
    Commit, Committed, FORMAT, FORMAT_KEY, Map, MapMut, Range, Result, Row, Rows, Wanted, read_rows, sums,
    write,
};

/// The only table of the file: keys and rows of the registry.
pub(super) const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("fleet");

/// A database that is open.
#[derive(Debug)]
pub(super) struct OpenDatabase {
    pub(super) database: Database,
    storage: Storage,
    /// The file in the words of an error.
    shown: String,
    has_panicked: AtomicBool,
    is_ending: AtomicBool,
}

impl OpenDatabase {
    /// Opens the database of a file, and runs `first` in it. A file that is refused is as it was.
    pub(super) fn open(
        file: &dyn OpenFile,
        raw: Raw,
        first: impl FnOnce(&Database) -> Result<()>,
    ) -> Result<Self> {
        let (shown, storage) = (file.shown(), Storage::on(raw));
        let mut builder = Database::builder();
        if let Some(bytes) = file.cache() {
            builder.set_cache_size(bytes);
        }
        // A file that was cut lets redb panic.
        let opened = catch_unwind(AssertUnwindSafe(|| builder.create_with_backend(storage.clone())));
        let opened = opened.map_err(|panic| panicked(&shown, &*panic))?;
        let database = opened.map_err(|error| not_opened(&shown, error))?;
        let (has_panicked, is_ending) = Default::default();
        let open = Self { database, storage, shown, has_panicked, is_ending };
        let prepared = open.run(|open| {
            prepare(&open.database, &open.shown)?;
            first(&open.database)?;
            open.storage.accept().map_err(|error| inaccessible(&open.shown, error))
        });
        if let Err(refused) = prepared {
            open.end();
            return Err(refused);
        }
        Ok(open)
    }

    /// Runs something in which redb may panic: it asserts what a whole file has.
    pub(super) fn run<T>(&self, run: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        catch_unwind(AssertUnwindSafe(|| run(self))).unwrap_or_else(|panic| {
            self.has_panicked.store(true, Ordering::SeqCst);
            Err(panicked(&self.shown, &*panic))
        })
    }

    /// False once something has panicked in it: what redb has in memory may be spoilt.
    pub(super) fn is_sound(&self) -> bool {
        !self.has_panicked.load(Ordering::SeqCst)
    }

    /// True once the file is to be closed, or opened again: a long read ends.
    pub(super) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::SeqCst)
    }

    /// Reads rows of what is committed now.
    pub(super) fn read(&self, wanted: Wanted) -> Result<Rows> {
        let snapshot = self.database.begin_read().map_err(failed)?;
        let rows = snapshot.open_table(ROWS).map_err(failed)?;
        read_rows(&TableMap(rows), wanted)
    }

    /// Ends the database. An end that panics harms nobody.
    pub(super) fn end(self) {
        let Self { database, storage, has_panicked, .. } = self;
        if has_panicked.into_inner() {
            // Its locks may be poisoned, so that its end could panic twice.
            storage.cut_off();
            std::mem::forget(database);
        } else if catch_unwind(AssertUnwindSafe(|| drop(database))).is_err() {
            storage.cut_off();
        }
    }
}

/// The database while the file is open. A read holds the lock, so [`end`](Self::end) waits for the reads that run.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedDatabase(Arc<RwLock<Option<OpenDatabase>>>);

impl SharedDatabase {
    /// Uses the database, if it is open.
    pub(super) fn with<T>(&self, run: impl FnOnce(&OpenDatabase) -> T) -> Option<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(run)
    }

    pub(super) fn set(&self, open: OpenDatabase) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(open);
    }

    /// Ends the database when the reads that run have ended.
    pub(super) fn end(&self) {
        self.with(|open| open.is_ending.store(true, Ordering::SeqCst));
        let open = self.0.write().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(open) = open {
            open.end();
        }
    }
}

/// Writes the version of the format into a new file, and checks it in a known one.
fn prepare(database: &Database, shown: &str) -> Result<()> {
    let read = database.begin_read().map_err(failed)?;
    match read.open_table(ROWS) {
        Ok(table) => {
            let version = table.get(FORMAT_KEY).map_err(failed)?;
            let version = version.as_ref().map_or(b"unknown".as_slice(), |version| version.value());
            let is_known = version == FORMAT.to_string().as_bytes();
            is_known.then_some(()).ok_or_else(|| of_another_format(shown, version))
        }
        Err(TableError::TableDoesNotExist(_)) => {
            let tables = read.list_tables().map_err(failed)?.count();
            if tables + read.list_multimap_tables().map_err(failed)?.count() > 0 {
                return Err(of_another_program(shown));
            }
            alone(database, |rows| rows.put(FORMAT_KEY, FORMAT.to_string().as_bytes()))
        }
        Err(TableError::TableTypeMismatch { .. } | TableError::TableIsMultimap(_)) => {
            Err(of_another_program(shown))
        }
        Err(error) => Err(failed(error)),
    }
}

/// Writes to the rows in one transaction.
pub(super) fn alone(
    database: &Database,
    write: impl FnOnce(&mut WritableRows<'_>) -> Result<()>,
) -> Result<()> {
    let transaction = database.begin_write().map_err(failed)?;
    write(&mut TableMap(transaction.open_table(ROWS).map_err(failed)?))?;
    transaction.commit().map_err(failed)
}

/// Carries out commits in one transaction.
pub(super) fn transact(database: &Database, commits: &[Commit]) -> Result<Vec<Result<Committed>>> {
    let transaction = database.begin_write().map_err(failed)?;
    let mut rows = TableMap(transaction.open_table(ROWS).map_err(failed)?);
    let (mut answers, mut written) = (Vec::with_capacity(commits.len()), false);
    for commit in commits {
        answers.push(match sums(&rows, commit) {
            Ok(Some(sums)) => {
                written |= !commit.writes.is_empty() || !commit.additions.is_empty();
                write(&mut rows, commit, sums)?;
                Ok(Committed::Done)
            }
            Ok(None) => Ok(Committed::Conflict),
            // A row that cannot be read harms no other request.
            Err(error) if error.kind() == BackendErrorKind::Damaged => Err(error),
            Err(error) => return Err(error),
        });
    }
    drop(rows);
    if written {
        transaction.commit().map_err(failed)?
    } else {
        transaction.abort().map_err(failed)?
    }
    Ok(answers)
}

/// The rows of a transaction that writes.
pub(super) type WritableRows<'a> = TableMap<Table<'a, &'static [u8], &'static [u8]>>;

/// A table of the file as a map.
pub(super) struct TableMap<T>(T);

impl<T: ReadableTable<&'static [u8], &'static [u8]>> Map for TableMap<T> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.0.get(key).map_err(failed)?.map(|row| row.value().to_vec()))
    }

    fn scan(&self, range: &Range) -> Result<Vec<Row>> {
        let rows = self.0.range(range.from.as_slice()..range.to.as_slice()).map_err(failed)?;
        rows.take(range.limit)
            .map(|row| row.map(|(key, value)| range.row(key.value(), value.value())).map_err(failed))
            .collect()
    }
}

impl MapMut for WritableRows<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.insert(key, value).map_err(failed)?;
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.0.remove(key).map_err(failed)?;
        Ok(())
    }
}
