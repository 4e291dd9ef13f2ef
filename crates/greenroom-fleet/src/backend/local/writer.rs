//! The thread that owns the file: it carries out commits in groups, a transaction for each group.

use std::panic::{AssertUnwindSafe, catch_unwind};

use redb::{Database, ReadableTable, Table, TableDefinition};
use tokio::sync::{mpsc, oneshot, watch};

use super::error::{failed, panicked};
use super::file::{OpenDatabase, OpenFile};
use super::reader::SharedDatabase;
use super::snapshot::{Export, Exporter};
use crate::backend::Channels;
use crate::clock::Clock;
use crate::error::{BackendError, BackendErrorKind};
use crate::registry::{Commit, Committed, Map, MapMut, Range, Result, Row, run_alone, sums, write};

/// The only table of the file: keys and rows of the registry.
pub(super) const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("fleet");

/// Commits in one transaction.
const GROUP: usize = 256;

/// The task that waits for the answer to a commit.
type Waiting = oneshot::Sender<Result<Committed>>;

/// A message to the thread.
pub(super) enum Message {
    Commit {
        commit: Commit,
        reply: Waiting,
    },
    /// Fills an empty file.
    Import {
        rows: Vec<Row>,
        reply: oneshot::Sender<Result<()>>,
    },
    /// Exports what is committed when the commits before it are carried out.
    Export(Export),
    /// Takes no further messages, carries out those that wait, and ends.
    Close,
}

/// The writer's thread.
pub(super) struct Writer {
    pub(super) waiting: mpsc::Receiver<Message>,
    pub(super) file: Box<dyn OpenFile>,
    pub(super) clock: Clock,
    pub(super) channels: Channels,
    pub(super) exporter: Exporter,
    pub(super) database: SharedDatabase,
    /// Dropped after the database is closed.
    pub(super) _ending: watch::Sender<()>,
}

impl Writer {
    /// Carries out commits until the last sender is gone, or a message says to close.
    pub(super) fn run(mut self, opened: oneshot::Sender<Result<()>>) {
        match self.open_first() {
            Ok(open) => self.database.set(open),
            Err(error) => {
                // First, so that the file can be opened again as soon as the error is known.
                drop(self);
                opened.send(Err(error)).ok();
                return;
            }
        }
        if opened.send(Ok(())).is_ok() {
            self.run_groups();
        }
        self.end_database(OpenDatabase::close);
    }

    fn run_groups(&mut self) {
        let mut group = Vec::with_capacity(GROUP);
        while self.waiting.blocking_recv_many(&mut group, GROUP) > 0 {
            let (mut commits, mut waiting) =
                (Vec::with_capacity(group.len()), Vec::with_capacity(group.len()));
            let (mut exports, mut imports) = (Vec::new(), Vec::new());
            for message in group.drain(..) {
                match message {
                    Message::Commit { commit, reply } => {
                        commits.push(commit);
                        waiting.push(reply);
                    }
                    Message::Import { rows, reply } => imports.push((rows, reply)),
                    Message::Export(export) => exports.push(export),
                    Message::Close => self.waiting.close(),
                }
            }
            match self.open_again() {
                Ok(()) => self.run_group(commits, waiting),
                Err(error) => answer_all(waiting, &error),
            }
            for (rows, reply) in imports {
                // The task may have stopped waiting.
                reply.send(self.import(&rows)).ok();
            }
            for export in exports {
                let database = self.database.clone();
                let mut export = Some(export);
                database.with(|open| export.take().map(|export| self.exporter.start(&open.database, export)));
                if let Some(export) = export {
                    // The task may have stopped waiting.
                    export.reply.send(Err(not_open())).ok();
                }
            }
        }
    }

    /// Opens the database for the first time. Its lock proves that no other process uses it.
    fn open_first(&mut self) -> Result<OpenDatabase> {
        let clock = self.clock.clone();
        OpenDatabase::open(&mut *self.file, |database, _| all_dead(database, &clock))
    }

    /// Opens the database again if an error has closed it.
    fn open_again(&mut self) -> Result<()> {
        if self.database.is_open() {
            return Ok(());
        }
        let clock = self.clock.clone();
        // No node has joined in a backup that was restored: this one finds out at its next renewal, and gives up.
        let first = |database: &Database, another| if another { all_dead(database, &clock) } else { Ok(()) };
        self.database.set(OpenDatabase::open(&mut *self.file, first)?);
        Ok(())
    }

    /// Ends the export and the database when the reads that run have ended.
    fn end_database(&mut self, end: impl FnOnce(OpenDatabase)) {
        self.exporter.end();
        if let Some(open) = self.database.take() {
            end(open);
        }
    }

    /// Fills an empty file, whose nodes are dead then, in one transaction.
    fn import(&mut self, rows: &[Row]) -> Result<()> {
        self.open_again()?;
        let now = self.clock.now();
        let import = |map: &mut WritableRows<'_>| {
            run_alone(map, now, |step| step.fill(rows))?;
            run_alone(map, now, |step| step.all_dead()).map(|_| ())
        };
        // A text that is refused says nothing about the file.
        self.using(|open| match alone(&open.database, import) {
            Err(refused) if refused.kind() == BackendErrorKind::Damaged => Ok(Err(refused)),
            imported => imported.map(Ok),
        })?
    }

    /// Uses the database, which is closed after an error of the file: only a file that is opened again tells which of its
    /// transactions are there.
    fn using<T>(&mut self, run: impl FnOnce(&OpenDatabase) -> Result<T>) -> Result<T> {
        let used = self.database.with(|open| catch_unwind(AssertUnwindSafe(|| run(open))));
        match used {
            Some(Ok(Err(error))) => {
                self.end_database(OpenDatabase::close);
                Err(error)
            }
            Some(Ok(answer)) => answer,
            // redb has found something in the file that cannot be.
            Some(Err(panic)) => {
                self.end_database(OpenDatabase::abandon);
                Err(panicked(&self.file.shown(), &*panic))
            }
            None => Err(not_open()),
        }
    }

    /// Carries out a group in one transaction and answers it.
    fn run_group(&mut self, mut commits: Vec<Commit>, waiting: Vec<Waiting>) {
        // The database has ended before the answers: a request that is repeated finds one that is opened anew.
        let committed = match self.using(|open| transact(&open.database, &commits)) {
            Ok(committed) => committed,
            Err(error) => return answer_all(waiting, &error),
        };
        // Changes come before answers: whoever listens from an answer on hears of later requests alone.
        for (commit, committed) in commits.iter_mut().zip(&committed) {
            if matches!(committed, Ok(Committed::Done)) {
                self.channels.tell(std::mem::take(&mut commit.told));
            }
        }
        for (reply, committed) in waiting.into_iter().zip(committed) {
            // The task may have stopped waiting. The commit is carried out nevertheless, and a repeated request finds it.
            reply.send(committed).ok();
        }
    }
}

/// Tells an error to all tasks that wait. A task may have stopped waiting.
fn answer_all(waiting: Vec<Waiting>, error: &BackendError) {
    for reply in waiting {
        reply.send(Err(error.clone())).ok();
    }
}

/// Says that all nodes of a database are dead.
fn all_dead(database: &Database, clock: &Clock) -> Result<()> {
    alone(database, |map| run_alone(map, clock.now(), |step| step.all_dead()).map(|_| ()))
}

/// Writes to the rows in one transaction.
fn alone(database: &Database, write: impl FnOnce(&mut WritableRows<'_>) -> Result<()>) -> Result<()> {
    let transaction = database.begin_write().map_err(failed)?;
    write(&mut TableMap(transaction.open_table(ROWS).map_err(failed)?))?;
    transaction.commit().map_err(failed)
}

/// Carries out commits in one transaction.
fn transact(database: &Database, commits: &[Commit]) -> Result<Vec<Result<Committed>>> {
    let transaction = database.begin_write().map_err(failed)?;
    let mut rows = TableMap(transaction.open_table(ROWS).map_err(failed)?);
    let (mut answers, mut written) = (Vec::with_capacity(commits.len()), false);
    for commit in commits {
        answers.push(match sums(&rows, commit) {
            Ok(Some(sums)) => {
                written |= !commit.is_empty();
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

/// The error of a request while the file could not be opened.
pub(super) fn not_open() -> BackendError {
    BackendError::new(
        BackendErrorKind::Unavailable,
        "the fleet's file could not be opened: repeat the request",
    )
}

/// The rows of a transaction that writes.
type WritableRows<'a> = TableMap<Table<'a, &'static [u8], &'static [u8]>>;

/// A table of the file as a map.
pub(super) struct TableMap<T>(pub(super) T);

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
