//! Reads run beside the writer, each on a snapshot of what is committed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};

use redb::ReadableDatabase;

use super::error::{failed, panicked};
use super::file::OpenDatabase;
use super::writer::{ROWS, TableMap};
use crate::registry::{Result, Rows, Wanted, read_rows};

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

/// Reads rows of what is committed now.
pub(super) fn read(open: &OpenDatabase, wanted: Wanted) -> Result<Rows> {
    let read = || {
        let snapshot = open.database.begin_read().map_err(failed)?;
        let rows = snapshot.open_table(ROWS).map_err(failed)?;
        read_rows(&TableMap(rows), wanted)
    };
    // redb panics on what cannot be in a whole file.
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| Err(panicked(&open.shown, &*panic)))
}
