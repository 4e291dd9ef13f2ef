//! The backend in one file, for services on one machine.
//!
//! ```text
//!  commits ───► a bounded queue ──► the writer's thread: takes all that wait, up to a bound
//!                                     │ one transaction for the group; each commit that finds what it expects is a part of it
//!                                     ▼
//!                                   commit (fsync) ──► changes, then answers
//!                                     │ an error
//!                                     ▼
//!                                   every commit of the group: Unavailable; the database is closed, and opened again for the
//!                                   next one. The file stays locked
//! ```
//!
//! A group that has written nothing is not committed.
//!
//! Reads run beside the writer, each on a snapshot of what is committed, on threads of the runtime's pool for blocking work: at most
//! [`READERS`] for pages and as many for short reads, and one for an export. A snapshot has everything that was answered before it, so a
//! long page delays no commit and no request to a session, and shows every write of its caller. A read that finds the file closed has the
//! writer open it again.

mod database;
#[cfg(feature = "testkit")]
mod disk;
mod error;
mod export;
mod file;
mod storage;
#[cfg(test)]
mod tests;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use super::{Backend, Channels, Reply};
use crate::clock::Clock;
use crate::error::{BackendError, BackendErrorKind};
use crate::id::Timestamp;
use crate::registry::{Commit, Committed, Lane, Result, Rows, Wanted};
use database::{OpenDatabase, SharedDatabase};
#[cfg(feature = "testkit")]
pub use disk::SimulatedDisk;
use error::{closed, not_open};
use file::{DatabaseFile, OpenFile};
use writer::{Message, Writer};

/// Requests that wait for the writer. Beyond them a request waits until there is room.
const WAITING: usize = 1024;

/// Pages that are read at once. As many short reads run beside them.
const READERS: usize = 4;

/// A backend in one file, for services on one machine: durable over a power cut, and locked against a second process.
///
/// After a `kill -9` or a power cut the next opening checks the whole file, which takes time in proportion to its size: 0.6 s for
/// 100,000 names with a prompt each, in 160 MB (measured on two cores of a shared machine). After a [`close`](LocalBackend::close) an
/// opening takes some 10 ms at any size. redb's `quick_repair` would shorten the first to 0.15 s, and is not used: it adds a second
/// fsync to every commit, and each turn waits for two.
///
/// The file is a [redb](https://docs.rs/redb) database. Requests that arrive at the same time share one fsync. Its clones share the
/// file, which is closed when the last clone is dropped.
///
/// Its clock is [`Clock::system`](crate::Clock::system): a step of the system's clock ends no wait early.
///
/// ```
/// use greenroom_fleet::backend::{LocalBackend, Requests};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("fleet.redb");
/// let backend = LocalBackend::open(&path).await?;
/// assert_eq!(backend.queued().await?, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LocalBackend {
    jobs: mpsc::Sender<Message>,
    /// Its sender is dropped after the file is closed.
    ended: watch::Receiver<()>,
    /// `None` for a file of a test.
    folder: Option<PathBuf>,
    channels: Channels,
    clock: Clock,
    exports: Arc<Semaphore>,
    database: SharedDatabase,
    readers: Arc<Semaphore>,
    short_readers: Arc<Semaphore>,
}

impl LocalBackend {
    /// Opens the file, or creates it with mode 0600. Its folder has to exist.
    ///
    /// The files of the sessions lie beside it, in the folder `<path>.sessions`, unless the builder of the fleet names another
    /// one.
    ///
    /// Nothing is written to a file that is refused. The file stays locked until the backend is closed, also after an
    /// error of its disk. If another process, or another backend of this one, has the file open and does not close within two
    /// seconds, the file is in use: a backend closes some time after its last clone was dropped, and a fleet that has drained
    /// may still drop its own.
    ///
    /// The file's lock proves that no earlier process uses it, so every node in it is dead from now on:
    /// [`recover`](super::Requests::recover) finds their names at once. Their CLIs may still run, see
    /// [`left_processes`](super::Requests::left_processes).
    ///
    /// # Errors
    /// [`InUse`](BackendErrorKind::InUse) if another process, or another backend of this one, has the file open for two seconds more;
    /// [`Version`](BackendErrorKind::Version) if another version of the format wrote it;
    /// [`Damaged`](BackendErrorKind::Damaged) if it is no file of a fleet, or its contents are spoilt;
    /// [`Unavailable`](BackendErrorKind::Unavailable) if the system cannot open it.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let backend = Self::start(Box::new(DatabaseFile::at(path))).await?;
        // An error: the working directory of this process is gone. The path was opened from there all the same.
        let mut folder = std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).into_os_string();
        folder.push(".sessions");
        Ok(Self { folder: Some(folder.into()), ..backend })
    }

    /// Opens the file on a simulated disk, for tests. It has no folder for the files of the sessions: name one with
    /// [`FleetBuilder::folder`](crate::FleetBuilder::folder).
    ///
    /// # Errors
    /// See [`open`](LocalBackend::open).
    #[cfg(feature = "testkit")]
    pub async fn on_disk(disk: &SimulatedDisk) -> Result<Self> {
        Self::start(Box::new(disk::DiskFile::on(disk))).await
    }

    /// Carries out the commits that wait, closes the file, and returns when another process can open it. Later
    /// requests of any clone are [`Closed`](BackendErrorKind::Closed). Dropping all clones closes the file too, some
    /// time later; an [`open`](LocalBackend::open) in this process waits for that.
    pub async fn close(&self) {
        // An error: the writer is closing already.
        self.jobs.send(Message::Close).await.ok();
        let mut ended = self.ended.clone();
        while ended.changed().await.is_ok() {}
    }

    /// Writes everything in the file to a text of JSON lines, which [`LocalBackend::import`] reads. Versions of greenroom that
    /// cannot read the file of one another can read this text.
    ///
    /// The text has everything that was answered before the call. It is written from a snapshot, so other requests go on meanwhile.
    /// One export runs at a time, and later ones wait for it.
    ///
    /// # Errors
    /// [`Unavailable`](BackendErrorKind::Unavailable) if the file cannot be read or is closed meanwhile,
    /// [`Closed`](BackendErrorKind::Closed) after a close.
    pub async fn export(&self) -> Result<String> {
        let caller = Arc::new(());
        let waits = Arc::downgrade(&caller);
        self.beside(&self.exports, move |open| export::write(open, &waits)).await
    }

    /// Fills an empty file with the text of an [`export`](LocalBackend::export). Its nodes are dead in the new file, as after
    /// [`open`](LocalBackend::open): do not go on using the file that the text came from.
    ///
    /// # Errors
    /// [`Damaged`](BackendErrorKind::Damaged) if the text is no export, naming the line, or if the file is not empty: nothing is
    /// written then.
    pub async fn import(&self, text: impl Into<String>) -> Result<()> {
        let rows = export::read(&text.into())?;
        let (reply, imported) = oneshot::channel();
        self.jobs.send(Message::Import { rows, reply }).await.map_err(|_| closed())?;
        imported.await.map_err(|_| closed())?
    }

    async fn start(file: Box<dyn OpenFile>) -> Result<Self> {
        let (jobs, waiting) = mpsc::channel(WAITING);
        let (ending, ended) = watch::channel(());
        let (channels, database) = (Channels::new(), SharedDatabase::default());
        let writer = Writer {
            waiting,
            file,
            known: None,
            channels: channels.clone(),
            database: database.clone(),
            _ending: ending,
        };
        std::thread::Builder::new().name("greenroom-fleet".to_owned()).spawn(move || writer.run()).map_err(
            |error| {
                BackendError::new(BackendErrorKind::Unavailable, "no thread for the file").caused_by(error)
            },
        )?;
        let turns = |count| Arc::new(Semaphore::new(count));
        let (exports, readers, short_readers) = (turns(1), turns(READERS), turns(READERS));
        let clock = Clock::system();
        let backend =
            Self { jobs, ended, folder: None, channels, clock, exports, database, readers, short_readers };
        if let Err(refused) = backend.have_it_open().await {
            // The file is free as soon as the error is known.
            backend.close().await;
            return Err(refused);
        }
        Ok(backend)
    }

    /// Has the writer open the file, if it is not open.
    async fn have_it_open(&self) -> Result<()> {
        self.commit(Lane::Requests, Commit::default()).await.map(|_| ())
    }

    /// Uses the database beside the writer, when a turn is free. The writer opens the file first if it is closed.
    async fn beside<T: Send + 'static>(
        &self,
        turns: &Arc<Semaphore>,
        run: impl Fn(&OpenDatabase) -> Result<T> + Clone + Send + Sync + 'static,
    ) -> Result<T> {
        let attempt = async || {
            // Nothing closes the semaphore.
            let turn = Arc::clone(turns).acquire_owned().await.map_err(|_| closed())?;
            let (database, run) = (self.database.clone(), run.clone());
            let used = tokio::task::spawn_blocking(move || {
                let used = database.with(|open| open.run(run));
                drop(turn);
                used.transpose()
            });
            // An error: the runtime ends.
            used.await.map_err(|_| closed())?
        };
        match attempt().await {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) => self.have_it_open().await?,
            Err(error) => {
                // The file may be damaged for this opening alone: the writer finds out, and opens it again. Its own error is no
                // answer here.
                self.have_it_open().await.ok();
                return Err(error);
            }
        }
        attempt().await?.ok_or_else(not_open)
    }
}

impl Backend for LocalBackend {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn read(&self, _: Lane, wanted: Wanted) -> Reply<'_, Rows> {
        let turns = if wanted.is_short() { &self.short_readers } else { &self.readers };
        let wanted = Arc::new(wanted);
        Box::pin(self.beside(turns, move |open| open.read(Wanted::clone(&wanted))))
    }

    fn commit(&self, _: Lane, commit: Commit) -> Reply<'_, Committed> {
        Box::pin(async move {
            let (reply, committed) = oneshot::channel();
            self.jobs.send(Message::Commit { commit, reply }).await.map_err(|_| closed())?;
            committed.await.map_err(|_| closed())?
        })
    }

    fn channels(&self) -> &Channels {
        &self.channels
    }

    fn default_folder(&self) -> Option<PathBuf> {
        self.folder.clone()
    }

    /// The file is locked until it is closed.
    fn is_exclusive(&self) -> bool {
        !self.jobs.is_closed()
    }

    fn is_shared(&self) -> bool {
        false
    }
}
