//! The backend in memory.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tempfile::TempDir;

use super::run::run;
use super::{Backend, Channels, Reply};
use crate::clock::Clock;
use crate::id::Timestamp;
use crate::registry::{Commit, Committed, Lane, MemoryMap, Result, Rows, Wanted, commit_rows, read_rows};

/// A backend in memory, for tests. Its facts, and the temporary folder with the files of its sessions, are gone when its last
/// clone is dropped.
///
/// Clones share their facts: a fleet that is started again with a clone goes on where the first one ended, as after a restart of
/// a service.
///
/// ```
/// use greenroom_fleet::backend::{MemoryBackend, Requests};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), greenroom_fleet::BackendError> {
/// let backend = MemoryBackend::new();
/// assert_eq!(backend.queued().await?, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MemoryBackend {
    rows: Arc<Mutex<MemoryMap>>,
    /// Made when a fleet needs it. `None`: the system has no room for it.
    folder: Arc<OnceLock<Option<TempDir>>>,
    clock: Clock,
    channels: Channels,
}

impl MemoryBackend {
    /// An empty backend on tokio's clock: under a paused clock, time passes only as the test lets it pass.
    ///
    /// # Panics
    /// If the clock of this runtime is paused and the backend is used outside of it.
    #[allow(clippy::new_without_default, reason = "two new ones would not be equal")]
    pub fn new() -> Self {
        Self::with_clock(Clock::tokio())
    }

    /// An empty backend on a clock of your own.
    pub fn with_clock(clock: Clock) -> Self {
        Self { rows: Arc::default(), folder: Arc::default(), clock, channels: Channels::new() }
    }

    /// The same facts as after a restart of the service: every node that has joined so far is dead, as
    /// [`LocalBackend::open`](super::LocalBackend::open) finds them. Sessions that still run on this backend are fenced.
    ///
    /// # Errors
    /// [`Damaged`](crate::BackendErrorKind::Damaged) if a record cannot be read.
    pub async fn reopen(&self) -> Result<Self> {
        run(self, Lane::Nodes, |step| step.all_dead()).await?;
        // Another process hears of all changes, and of its own transitions only.
        let transitions = Channels::new().transitions;
        Ok(Self { channels: Channels { transitions, ..self.channels.clone() }, ..self.clone() })
    }

    /// A request that panicked has written nothing.
    fn rows(&self) -> MutexGuard<'_, MemoryMap> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for MemoryBackend {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn read(&self, _: Lane, wanted: Wanted) -> Reply<'_, Rows> {
        Box::pin(async move { read_rows(&*self.rows(), wanted) })
    }

    fn commit(&self, _: Lane, mut commit: Commit) -> Reply<'_, Committed> {
        Box::pin(async move {
            let mut rows = self.rows();
            let committed = commit_rows(&mut *rows, &commit)?;
            // Under the lock: they are told in the order in which they became durable.
            if committed == Committed::Done {
                self.channels.tell(std::mem::take(&mut commit.told));
            }
            Ok(committed)
        })
    }

    fn channels(&self) -> &Channels {
        &self.channels
    }

    fn default_folder(&self) -> Option<PathBuf> {
        let made = || tempfile::Builder::new().prefix("greenroom-fleet-").tempdir().ok();
        self.folder.get_or_init(made).as_ref().map(|folder| folder.path().to_owned())
    }

    /// Tests have several fleets on one memory, as if they were several processes.
    fn is_exclusive(&self) -> bool {
        false
    }

    fn is_shared(&self) -> bool {
        false
    }
}
