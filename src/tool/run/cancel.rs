//! Cancellation of one request.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering, fence};
use std::task::Context;

use futures_util::task::AtomicWaker;
use tokio_util::sync::CancellationToken;

/// The cancellation of one request. Most requests are never cancelled and nobody listens: the token is made on first
/// use, and the handler's task is woken without a token.
#[derive(Debug, Default)]
pub(crate) struct Cancel {
    stage: AtomicU8,
    token: OnceLock<CancellationToken>,
    /// The handler's task.
    task: AtomicWaker,
}

impl Cancel {
    const CANCELLED: u8 = 1;
    const ABORTED: u8 = 2;

    /// Cancels the request: nobody waits for its answer.
    pub(crate) fn cancel(&self) {
        self.reach(Self::CANCELLED);
    }

    /// Cancels the request, and its handler must not be polled again.
    pub(crate) fn abort(&self) {
        self.reach(Self::ABORTED);
    }

    fn reach(&self, stage: u8) {
        self.stage.fetch_max(stage, Ordering::AcqRel);
        // Either this thread sees the token, or the thread that makes the token sees the new stage.
        fence(Ordering::SeqCst);
        if let Some(token) = self.token.get() {
            token.cancel();
        }
        self.task.wake();
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.stage.load(Ordering::Acquire) >= Self::CANCELLED
    }

    /// The cancellation as a token that can be awaited.
    pub(crate) fn token(&self) -> &CancellationToken {
        let token = self.token.get_or_init(CancellationToken::new);
        fence(Ordering::SeqCst);
        if self.is_cancelled() {
            token.cancel();
        }
        token
    }

    /// Releases the handler's task after the handler has ended.
    pub(crate) fn forget_task(&self) {
        drop(self.task.take());
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.stage.load(Ordering::Acquire) == Self::ABORTED
    }

    /// Whether the request is cancelled. Registers the handler's task, to be woken at the next stage.
    pub(crate) fn poll_cancelled(&self, cx: &Context<'_>) -> bool {
        self.task.register(cx.waker());
        // Look after registering, as the request may have been cancelled meanwhile; `register` is ordered with `wake`.
        self.is_cancelled()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn the_token_is_cancelled_whether_made_before_or_after() {
        let cancel = Cancel::default();
        let before = cancel.token().clone();
        assert!(!before.is_cancelled() && !cancel.is_cancelled());
        cancel.cancel();
        before.cancelled().await;
        assert!(cancel.is_cancelled());
        let cancel = Cancel::default();
        cancel.cancel();
        cancel.token().cancelled().await;
    }

    #[tokio::test]
    async fn cancelling_wakes_the_handlers_task() {
        let cancel = Arc::new(Cancel::default());
        let waits = cancel.clone();
        let waiting = std::future::poll_fn(move |cx| match waits.poll_cancelled(cx) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        });
        let ((), ()) = tokio::join!(waiting, async {
            tokio::task::yield_now().await;
            cancel.cancel();
        });
    }

    #[test]
    fn cancel_and_token_creation_never_miss_each_other() {
        for _ in 0..2_000 {
            let cancel = Cancel::default();
            let start = std::sync::Barrier::new(2);
            let token = std::thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    cancel.cancel();
                });
                start.wait();
                cancel.token().clone()
            });
            assert!(token.is_cancelled());
        }
    }
}
