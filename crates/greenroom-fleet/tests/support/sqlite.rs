//! A backend over SQLite, which several processes can use.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use greenroom_fleet::backend::{
    Backend, Channels, Commit, Committed, Lane, Map, MapMut, Range, Reply, Row, Rows, Wanted, commit_rows,
    read_rows,
};
use greenroom_fleet::{BackendError, BackendErrorKind, Change, Clock, Timestamp};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

type Result<T> = std::result::Result<T, BackendError>;

/// A connection waits for this time for a commit of another one.
const PATIENCE: Duration = Duration::from_secs(20);
/// The pause between two looks at the number of commits of others.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone)]
pub(crate) struct Sqlite(Arc<Open>);

struct Open {
    connection: Mutex<Connection>,
    clock: Clock,
    channels: Channels,
    closed: Arc<AtomicBool>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}

fn failed(error: rusqlite::Error) -> BackendError {
    BackendError::new(BackendErrorKind::Unavailable, error.to_string())
}

fn connection(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(PATIENCE).unwrap();
    connection.pragma_update(None, "journal_mode", "wal").unwrap();
    connection.pragma_update(None, "synchronous", "full").unwrap();
    let table = "CREATE TABLE IF NOT EXISTS rows (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID";
    connection.execute(table, ()).unwrap();
    connection
}

impl Sqlite {
    pub(crate) fn open(path: &Path, clock: Clock) -> Self {
        let (channels, closed) = (Channels::new(), Arc::new(AtomicBool::new(false)));
        let (theirs, over, others) = (channels.clone(), closed.clone(), connection(path));
        // SQLite tells nobody of a commit, but counts those of other connections.
        std::thread::spawn(move || {
            let version =
                || others.pragma_query_value(None, "data_version", |row| row.get::<_, i64>(0)).unwrap();
            let mut known = version();
            while !over.load(Ordering::Relaxed) {
                let now = version();
                if std::mem::replace(&mut known, now) != now {
                    theirs.tell_change(Change::Missed);
                }
                std::thread::sleep(PAUSE);
            }
        });
        Self(Arc::new(Open { connection: Mutex::new(connection(path)), clock, channels, closed }))
    }

    fn within<T>(
        &self,
        behavior: TransactionBehavior,
        run: impl FnOnce(&mut Table<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut connection = self.0.connection.lock().unwrap();
        let mut table = Table(connection.transaction_with_behavior(behavior).map_err(failed)?);
        let answer = run(&mut table)?;
        table.0.commit().map_err(failed)?;
        Ok(answer)
    }
}

/// The rows in a transaction.
struct Table<'a>(Transaction<'a>);

impl Map for Table<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut query = self.0.prepare_cached("SELECT value FROM rows WHERE key = ?1").map_err(failed)?;
        query.query_row([key], |row| row.get(0)).optional().map_err(failed)
    }

    fn scan(&self, range: &Range) -> Result<Vec<Row>> {
        let query = "SELECT key, value FROM rows WHERE key >= ?1 AND key < ?2 ORDER BY key LIMIT ?3";
        let mut query = self.0.prepare_cached(query).map_err(failed)?;
        let limit = i64::try_from(range.limit).unwrap_or(i64::MAX);
        let row =
            |row: &rusqlite::Row<'_>| Ok(range.row(&row.get::<_, Vec<u8>>(0)?, &row.get::<_, Vec<u8>>(1)?));
        query
            .query_map((&range.from, &range.to, limit), row)
            .map_err(failed)?
            .collect::<rusqlite::Result<_>>()
            .map_err(failed)
    }
}

impl MapMut for Table<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut query = self.0.prepare_cached("REPLACE INTO rows VALUES (?1, ?2)").map_err(failed)?;
        query.execute((key, value)).map_err(failed)?;
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        let mut query = self.0.prepare_cached("DELETE FROM rows WHERE key = ?1").map_err(failed)?;
        query.execute([key]).map_err(failed)?;
        Ok(())
    }
}

impl Backend for Sqlite {
    fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    fn read(&self, _: Lane, wanted: Wanted) -> Reply<'_, Rows> {
        Box::pin(async move { self.within(TransactionBehavior::Deferred, |rows| read_rows(rows, wanted)) })
    }

    fn commit(&self, _: Lane, mut commit: Commit) -> Reply<'_, Committed> {
        Box::pin(async move {
            let told = std::mem::take(&mut commit.told);
            let committed = self.within(TransactionBehavior::Immediate, |rows| commit_rows(rows, &commit))?;
            if committed == Committed::Done {
                self.0.channels.tell(told);
            }
            Ok(committed)
        })
    }

    fn channels(&self) -> &Channels {
        &self.0.channels
    }
}
