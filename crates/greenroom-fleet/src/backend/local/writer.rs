//! The thread that owns the file: it carries out commits in groups, a transaction for each group.

use std::sync::Arc;

use redb::Database;
use tokio::sync::{mpsc, oneshot, watch};

use super::database::{OpenDatabase, SharedDatabase, WritableRows, alone, transact};
use super::error::not_open;
use super::file::OpenFile;
use super::storage::Raw;
use crate::backend::Channels;
use crate::error::BackendErrorKind;
use crate::id::Timestamp;
use crate::registry::{Commit, Committed, Result, Row, run_alone};

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
    /// Takes no further messages, carries out those that wait, and ends.
    Close,
}

/// The writer's thread. It opens the file for its first group.
pub(super) struct Writer {
    pub(super) waiting: mpsc::Receiver<Message>,
    pub(super) file: Box<dyn OpenFile>,
    /// The file of the last database.
    pub(super) known: Option<Raw>,
    pub(super) channels: Channels,
    pub(super) database: SharedDatabase,
    /// Dropped after the file is closed.
    pub(super) _ending: watch::Sender<()>,
}

impl Writer {
    /// Carries out commits until the last sender is gone, or a message says to close.
    pub(super) fn run(mut self) {
        let mut group = Vec::with_capacity(GROUP);
        while self.waiting.blocking_recv_many(&mut group, GROUP) > 0 {
            let (mut commits, mut imports) = (Vec::with_capacity(group.len()), Vec::new());
            for message in group.drain(..) {
                match message {
                    Message::Commit { commit, reply } => commits.push((commit, reply)),
                    Message::Import { rows, reply } => imports.push((rows, reply)),
                    Message::Close => self.waiting.close(),
                }
            }
            // A close alone opens no file.
            if !commits.is_empty() {
                self.run_group(commits.into_iter().unzip());
            }
            for (rows, reply) in imports {
                // The task may have stopped waiting.
                reply.send(self.import(&rows)).ok();
            }
        }
        self.database.end();
    }

    /// Opens the database, if it is not open: for the first time, after an error has closed it, or after a read has panicked in it.
    fn open(&mut self) -> Result<()> {
        if self.database.with(OpenDatabase::is_sound) == Some(true) {
            return Ok(());
        }
        self.database.end();
        let raw = self.file.raw()?;
        let is_known = self.known.as_ref().is_some_and(|known| Arc::ptr_eq(known, &raw));
        if !is_known {
            // Nobody holds the lock of the file before any more: it may be put back.
            self.known = None;
        }
        // The lock of the file proves that no other process uses it. In a backup that was put in place, this node has not joined: it finds
        // out at its next renewal, and gives up.
        let all_dead =
            |map: &mut WritableRows<'_>| run_alone(map, Timestamp::now(), |step| step.all_dead()).map(|_| ());
        let first = |database: &Database| if is_known { Ok(()) } else { alone(database, all_dead) };
        self.database.set(OpenDatabase::open(&*self.file, raw.clone(), first)?);
        self.known = Some(raw);
        Ok(())
    }

    /// Fills an empty file, whose nodes are dead then, in one transaction.
    fn import(&mut self, rows: &[Row]) -> Result<()> {
        let now = Timestamp::now();
        let import = |map: &mut WritableRows<'_>| {
            run_alone(map, now, |step| step.fill(rows))?;
            run_alone(map, now, |step| step.all_dead()).map(|_| ())
        };
        // A text that is refused says nothing about the file.
        self.using(|database| match alone(database, import) {
            Err(refused) if refused.kind() == BackendErrorKind::Damaged => Ok(Err(refused)),
            imported => imported.map(Ok),
        })?
    }

    /// Uses the database, which is closed after an error of the file: only a file that is opened again tells which of its
    /// transactions are there.
    fn using<T>(&mut self, run: impl FnOnce(&Database) -> Result<T>) -> Result<T> {
        self.open()?;
        let used = self.database.with(|open| open.run(|open| run(&open.database)));
        let used = used.unwrap_or_else(|| Err(not_open()));
        if used.is_err() {
            self.database.end();
        }
        used
    }

    /// Carries out a group in one transaction and answers it.
    fn run_group(&mut self, (mut commits, waiting): (Vec<Commit>, Vec<Waiting>)) {
        // The database has ended before the answers: a request that is repeated finds one that is opened anew.
        let committed = match self.using(|database| transact(database, &commits)) {
            Ok(committed) => committed,
            Err(error) => commits.iter().map(|_| Err(error.clone())).collect(),
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
