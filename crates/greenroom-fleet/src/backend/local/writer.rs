//! The thread that owns the file: it runs requests in groups, a transaction for each group.

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
use crate::registry::{Draft, Result, Step, Told, Txn};

/// The only table of the file: keys and rows of the registry.
pub(super) const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("fleet");

/// Requests in one transaction.
const GROUP: usize = 256;

/// A message to the thread.
pub(super) enum Message {
    Run(Box<dyn Job>),
    /// Exports what is committed when the requests before it have run.
    Export(Export),
    /// Takes no further messages, carries out those that wait, and ends.
    Close,
}

/// A request on its way to the file.
pub(super) trait Job: Send {
    /// Runs the request and keeps its answer. The error is the request's own.
    fn run(&mut self, step: &mut Step<'_>) -> Result<()>;
    /// Sends the answer: the kept one, or the error that undid or prevented the request.
    fn answer(self: Box<Self>, undone: Option<&BackendError>);
}

/// A request, its answer once it has run, and the task that waits for the answer.
pub(super) struct Request<F, T> {
    pub(super) request: Option<F>,
    pub(super) result: Option<Result<T>>,
    pub(super) reply: oneshot::Sender<Result<T>>,
}

impl<F, T> Job for Request<F, T>
where
    F: FnOnce(&mut Step<'_>) -> Result<T> + Send,
    T: Send,
{
    fn run(&mut self, step: &mut Step<'_>) -> Result<()> {
        let Some(request) = self.request.take() else { return Ok(()) };
        let result = request(step);
        let error = result.as_ref().err().cloned();
        self.result = Some(result);
        error.map_or(Ok(()), Err)
    }

    fn answer(self: Box<Self>, undone: Option<&BackendError>) {
        let result = match (self.result, undone) {
            // A request with an error of its own gets that error.
            (Some(Err(error)), _) => Err(error),
            (_, Some(error)) => Err(error.clone()),
            (Some(Ok(answer)), None) => Ok(answer),
            (None, None) => {
                Err(BackendError::new(BackendErrorKind::Unavailable, "the request was not run: repeat it"))
            }
        };
        // The task may have stopped waiting. The request is carried out nevertheless, and a repeated one finds it.
        self.reply.send(result).ok();
    }
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
    /// Runs requests until the last sender is gone, or a message says to close.
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
            let mut jobs = Vec::with_capacity(group.len());
            let mut exports = Vec::new();
            for message in group.drain(..) {
                match message {
                    Message::Run(job) => jobs.push(job),
                    Message::Export(export) => exports.push(export),
                    Message::Close => self.waiting.close(),
                }
            }
            match self.open_again() {
                Ok(()) => self.run_group(jobs),
                Err(error) => jobs.into_iter().for_each(|job| job.answer(Some(&error))),
            }
            for export in exports {
                let database = self.database.clone();
                let mut export = Some(export);
                database.with(|open| export.take().map(|export| self.exporter.start(&open.database, export)));
                if let Some(export) = export {
                    // The task may have stopped waiting.
                    export.reply.send(not_open()).ok();
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

    /// Runs a group in one transaction and answers it. The database is closed after an error of the file: only a file that is
    /// opened again tells which of its transactions are there.
    fn run_group(&mut self, mut jobs: Vec<Box<dyn Job>>) {
        let mut told = Told::default();
        let transacted = self.database.with(|open| {
            catch_unwind(AssertUnwindSafe(|| transact(&open.database, &self.clock, &mut jobs, &mut told)))
        });
        // Ended before the answers: a request that is repeated finds a database that is opened anew.
        let result = match transacted {
            Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => {
                self.end_database(OpenDatabase::close);
                Err(error)
            }
            // redb has found something in the file that cannot be.
            Some(Err(panic)) => {
                self.end_database(OpenDatabase::abandon);
                Err(panicked(&self.file.shown(), &*panic))
            }
            None => not_open(),
        };
        // Changes come before answers: whoever listens from an answer on hears of later requests alone.
        if result.is_ok() {
            self.channels.tell(told);
        }
        for job in jobs {
            job.answer(result.as_ref().err());
        }
    }
}

/// Says that all nodes of a database are dead.
fn all_dead(database: &Database, clock: &Clock) -> Result<()> {
    let (reply, mut answer) = oneshot::channel();
    let request = |step: &mut Step<'_>| step.all_dead();
    let mut jobs: Vec<Box<dyn Job>> = vec![Box::new(Request { request: Some(request), result: None, reply })];
    transact(database, clock, &mut jobs, &mut Told::default())?;
    jobs.into_iter().for_each(|job| job.answer(None));
    // The answer is there already. A missing one would be an error of the thread.
    answer.try_recv().unwrap_or_else(|_| Err(super::closed()))
}

/// Runs requests in one transaction.
fn transact(database: &Database, clock: &Clock, jobs: &mut [Box<dyn Job>], told: &mut Told) -> Result<()> {
    let transaction = database.begin_write().map_err(failed)?;
    let mut rows = Rows(transaction.open_table(ROWS).map_err(failed)?);
    let mut written = false;
    for job in jobs {
        let before = (told.changes.len(), told.transitions.len());
        let mut draft = Draft::over(&mut rows);
        match job.run(&mut Step::new(&mut draft, clock.now(), told)) {
            Ok(()) => {
                written |= !draft.is_empty();
                draft.write()?;
            }
            // A row that cannot be read, or a request that cannot be kept, harms no other request.
            Err(error) if matches!(error.kind(), BackendErrorKind::Damaged | BackendErrorKind::Invalid) => {
                told.changes.truncate(before.0);
                told.transitions.truncate(before.1);
            }
            Err(error) => return Err(error),
        }
    }
    drop(rows);
    if written { transaction.commit().map_err(failed) } else { transaction.abort().map_err(failed) }
}

/// The error of a request while the file could not be opened.
fn not_open<T>() -> Result<T> {
    Err(BackendError::new(
        BackendErrorKind::Unavailable,
        "the fleet's file could not be opened: repeat the request",
    ))
}

/// The rows of a transaction.
struct Rows<'a>(Table<'a, &'static [u8], &'static [u8]>);

impl Txn for Rows<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.0.get(key).map_err(failed)?.map(|row| row.value().to_vec()))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.insert(key, value).map_err(failed)?;
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.0.remove(key).map_err(failed)?;
        Ok(())
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let rows = self.0.range(from..to).map_err(failed)?.take(limit);
        rows.map(|row| row.map(|(key, value)| (key.value().to_vec(), value.value().to_vec())).map_err(failed))
            .collect()
    }
}
