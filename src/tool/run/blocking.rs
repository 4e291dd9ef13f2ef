//! Handlers that block their thread: how many run at once, and which were left behind.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::erased::CallEnd;

/// The blocking handlers of one server.
#[derive(Debug)]
pub(crate) struct BlockingLane {
    pub(super) permits: Arc<Semaphore>,
    threads: usize,
    abandoned: AtomicU64,
}

impl BlockingLane {
    pub(crate) fn new(threads: usize) -> Arc<Self> {
        let threads = threads.min(Semaphore::MAX_PERMITS);
        Arc::new(Self { permits: Arc::new(Semaphore::new(threads)), threads, abandoned: AtomicU64::new(0) })
    }

    /// Handlers that have a permit now: they occupy a thread, abandoned ones included, or are about to.
    pub(crate) fn running(&self) -> usize {
        self.threads - self.permits.available_permits()
    }

    /// Handlers abandoned on their thread since the start.
    pub(crate) fn abandoned(&self) -> u64 {
        self.abandoned.load(Ordering::Relaxed)
    }
}

/// Runs a handler on the blocking pool. The handler holds its permits until it returns, even when the caller stops
/// waiting: that bounds the number of abandoned handlers.
pub(super) async fn run_blocking(
    lane: Arc<BlockingLane>,
    permits: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>),
    run: impl FnOnce() -> CallEnd + Send + 'static,
) -> Result<CallEnd, Box<dyn Any + Send>> {
    let handler = tokio::task::spawn_blocking(move || {
        let _held = permits;
        run()
    });
    let mut waiting = AbandonGuard(Some(lane));
    let ended = handler.await;
    waiting.0 = None;
    match ended {
        Ok(ran) => Ok(ran),
        Err(error) if error.is_panic() => Err(error.into_panic()),
        // The runtime shuts down and dropped the handler before it ran.
        Err(_) => Err(Box::new("the runtime is shutting down")),
    }
}

/// Counts the handler as abandoned when it is dropped before the handler has returned.
struct AbandonGuard(Option<Arc<BlockingLane>>);

impl Drop for AbandonGuard {
    fn drop(&mut self) {
        if let Some(lane) = &self.0 {
            lane.abandoned.fetch_add(1, Ordering::Relaxed);
        }
    }
}
