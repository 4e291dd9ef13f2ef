//! The backends of a case: where its rows are while the service is started again and again.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use greenroom_fleet::backend::{Backend, LocalBackend, MemoryBackend, PostgresBackend, PostgresOptions};
use greenroom_fleet::{BackendError, Clock, Timestamp};
use tempfile::TempDir;
use tokio::time::Instant;
use uuid::Uuid;

use crate::shelf::Shelf;
use crate::sqlite::Sqlite;
use crate::wait::SOON;

type Opened = Result<Arc<dyn Backend>, BackendError>;

/// Rows that outlive the service, and the way to open them.
pub(crate) struct Store {
    /// Opens the rows, as the next process of the service does.
    open: Box<dyn Fn() -> BoxFuture<'static, Opened>>,
    /// The clock of the backend. A database has one of its own.
    pub(super) clock: ServiceClock,
    /// True if tokio's clock is paused. It cannot be where an answer comes from another thread or process: a paused clock leaps to the
    /// next deadline while everything here waits for one.
    pub(super) is_paused: bool,
    pub(super) lease: Duration,
    /// The file of a backend that only one process can use. A kill leaves a copy of it behind.
    pub(super) file: Option<Arc<Mutex<PathBuf>>>,
    /// For the files of the sessions, and of the backend.
    pub(super) folder: TempDir,
}

impl Store {
    fn new<F: Future<Output = Opened> + Send + 'static>(open: impl Fn() -> F + 'static) -> Self {
        Self {
            open: Box::new(move || Box::pin(open())),
            clock: ServiceClock::default(),
            is_paused: false,
            lease: Duration::from_secs(30),
            file: None,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// A backend that answers at once, on the clock of the service.
    fn on_a_paused_clock<F: Future<Output = Opened> + Send + 'static>(
        folder: TempDir,
        open: impl Fn(Clock) -> F + 'static,
    ) -> Self {
        let clock = ServiceClock::default();
        let shown = clock.clock();
        Self { clock, is_paused: true, folder, ..Self::new(move || open(shown.clone())) }
    }

    /// All nodes are dead when it is opened again.
    pub(crate) fn memory() -> Self {
        let first = Mutex::new(None);
        Self::on_a_paused_clock(tempfile::tempdir().unwrap(), move |clock| {
            let first = first.lock().unwrap().get_or_insert_with(|| MemoryBackend::with_clock(clock)).clone();
            async move { Ok(Arc::new(first.reopen().await?) as _) }
        })
    }

    /// A node that was killed counts as alive until its lease is over, here and below.
    pub(crate) fn shelf() -> Self {
        let rows = Arc::default();
        Self::on_a_paused_clock(tempfile::tempdir().unwrap(), move |clock| {
            let shelf = Shelf::over(Arc::clone(&rows), clock);
            async move { Ok(Arc::new(shelf) as _) }
        })
    }

    /// Its calls hold up the thread, so the paused clock stands still meanwhile.
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fleet.sqlite");
        Self::on_a_paused_clock(folder, move |clock| {
            let sqlite = Sqlite::open(&path, clock);
            async move { Ok(Arc::new(sqlite) as _) }
        })
    }

    /// All nodes are dead when it is opened again.
    pub(crate) fn file() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = Arc::new(Mutex::new(folder.path().join("fleet.redb")));
        let path = file.clone();
        let open = move || {
            let path = path.lock().unwrap().clone();
            async move { Ok(Arc::new(LocalBackend::open(path).await?) as _) }
        };
        Self { file: Some(file), folder, ..Self::new(open) }
    }

    /// A schema of its own in the database at an address.
    pub(crate) fn postgres(address: &str) -> Self {
        let mut options = PostgresOptions::new(address);
        options.schema = format!("model_{}", Uuid::new_v4().simple());
        options.connections = 4;
        // A server that is busy with other tests is no fault of the fleet.
        (options.statement_timeout, options.connect_timeout) = (Duration::from_secs(20), SOON);
        let open = move || {
            let options = options.clone();
            async move { Ok(Arc::new(PostgresBackend::connect(options).await?) as _) }
        };
        Self { lease: Duration::from_secs(3), ..Self::new(open) }
    }

    pub(super) async fn open(&self) -> Result<Arc<dyn Backend>, String> {
        (self.open)().await.map_err(|error| error.to_string())
    }
}

/// A clock that goes on when the service is started again on another runtime.
#[derive(Clone, Default)]
pub(super) struct ServiceClock(Arc<Mutex<(Duration, Option<Instant>)>>);

impl ServiceClock {
    fn clock(&self) -> Clock {
        let clock = self.clone();
        Clock::new(move || Timestamp(1_800_000_000_000).after(clock.passed()))
    }

    fn passed(&self) -> Duration {
        let (passed, start) = *self.0.lock().unwrap();
        passed + start.map_or(Duration::ZERO, |start| start.elapsed())
    }

    pub(super) fn start(&self) {
        self.0.lock().unwrap().1 = Some(Instant::now());
    }

    pub(super) fn stop(&self) {
        let passed = self.passed();
        *self.0.lock().unwrap() = (passed, None);
    }
}
