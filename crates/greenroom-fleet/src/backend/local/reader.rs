//! Reads run beside the writer, each on a snapshot of what is committed.

use std::sync::{Arc, PoisonError, RwLock};

use redb::{Database, ReadOnlyTable, ReadableDatabase};

use super::error::failed;
use super::writer::ROWS;
use crate::error::{BackendError, BackendErrorKind};
use crate::id::Timestamp;
use crate::registry::{Draft, Result, Step, Told, Txn};

/// The database while the file is open. Reads hold it open: whoever closes it waits for them.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenDatabase(Arc<RwLock<Option<Database>>>);

impl OpenDatabase {
    /// Uses the database, if it is open.
    pub(super) fn with<T>(&self, run: impl FnOnce(&Database) -> T) -> Option<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(run)
    }

    pub(super) fn is_open(&self) -> bool {
        self.with(|_| ()).is_some()
    }

    pub(super) fn set(&self, database: Database) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(database);
    }

    /// Closes the file when the reads that run have ended.
    pub(super) fn close(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Runs a request that writes nothing over what is committed now.
pub(super) fn read<T>(
    database: &Database,
    now: Timestamp,
    request: impl FnOnce(&mut Step<'_>) -> Result<T>,
) -> Result<T> {
    let snapshot = database.begin_read().map_err(failed)?;
    let mut rows = Snapshot(snapshot.open_table(ROWS).map_err(failed)?);
    request(&mut Step::new(&mut Draft::over(&mut rows), now, &mut Told::default()))
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
