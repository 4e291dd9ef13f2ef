//! Reads run beside the writer, each on a snapshot of what is committed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};

use redb::{ReadOnlyTable, ReadableDatabase};

use super::error::{failed, panicked};
use super::file::OpenDatabase;
use super::writer::ROWS;
use crate::error::{BackendError, BackendErrorKind};
use crate::id::Timestamp;
use crate::registry::{Draft, Result, Step, Told, Txn};

/// The database while the file is open. A read holds the lock, so [`take`](Self::take) waits for the reads that run.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedDatabase(Arc<RwLock<Option<OpenDatabase>>>);

impl SharedDatabase {
    /// Uses the database, if it is open.
    pub(super) fn with<T>(&self, run: impl FnOnce(&OpenDatabase) -> T) -> Option<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(run)
    }

    pub(super) fn is_open(&self) -> bool {
        self.with(|_| ()).is_some()
    }

    pub(super) fn set(&self, open: OpenDatabase) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(open);
    }

    /// Takes the database away when the reads that run have ended.
    pub(super) fn take(&self) -> Option<OpenDatabase> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Runs a request that writes nothing over what is committed now.
pub(super) fn read<T>(
    open: &OpenDatabase,
    now: Timestamp,
    request: impl FnOnce(&mut Step<'_>) -> Result<T>,
) -> Result<T> {
    let read = || {
        let snapshot = open.database.begin_read().map_err(failed)?;
        let mut rows = Snapshot(snapshot.open_table(ROWS).map_err(failed)?);
        let mut draft = Draft::over(&mut rows);
        let answer = request(&mut Step::new(&mut draft, now, &mut Told::default()))?;
        if draft.is_empty() { Ok(answer) } else { Err(read_only()) }
    };
    // redb panics on what cannot be in a whole file.
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| Err(panicked(&open.shown, &*panic)))
}

/// The rows of a snapshot.
struct Snapshot(ReadOnlyTable<&'static [u8], &'static [u8]>);

impl Txn for Snapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.0.get(key).map_err(failed)?.map(|row| row.value().to_vec()))
    }

    fn put(&mut self, _: &[u8], _: &[u8]) -> Result<()> {
        Err(read_only())
    }

    fn delete(&mut self, _: &[u8]) -> Result<()> {
        Err(read_only())
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let rows = self.0.range(from..to).map_err(failed)?.take(limit);
        rows.map(|row| row.map(|(key, value)| (key.value().to_vec(), value.value().to_vec())).map_err(failed))
            .collect()
    }
}

fn read_only() -> BackendError {
    BackendError::new(BackendErrorKind::Invalid, "a request that is marked as a read has written")
}
