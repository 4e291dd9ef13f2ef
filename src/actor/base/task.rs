//! A spawned task that is aborted when its owner drops it.

use std::task::Poll;

use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;

/// A task that ends when its owner does.
pub(crate) struct Task<T = ()> {
    handle: JoinHandle<T>,
    joined: bool,
}

impl<T: Send + 'static> Task<T> {
    pub(crate) fn spawn(future: impl Future<Output = T> + Send + 'static) -> Self {
        // A trait object, because tokio's code for a task is compiled anew for each type of future. On the heap, because
        // a finished task keeps its own allocation for as long as its owner.
        let future: BoxFuture<'static, T> = Box::pin(future);
        #[allow(clippy::disallowed_methods, reason = "`Task` is the owner that the rule asks for")]
        Self { handle: tokio::spawn(future), joined: false }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// Whether [`join`](Task::join) has returned.
    pub(crate) fn is_joined(&self) -> bool {
        self.joined
    }

    /// Waits for the end of the task; `None` if the task panicked or was aborted. Cancel-safe. A second `join` never
    /// returns.
    pub(crate) async fn join(&mut self) -> Option<T> {
        if self.joined {
            return std::future::pending().await;
        }
        let ended = (&mut self.handle).await.ok();
        self.joined = true;
        ended
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

/// Moves the current task to the end of the run queue once. Unlike `tokio::task::yield_now`, which defers the task on
/// its own worker thread, the queue can be stolen from: a handler that blocks this thread does not hold the task up.
pub(crate) async fn step_back() {
    let mut stepped = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut stepped, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
