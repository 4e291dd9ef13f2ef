//! Whether anybody still waits for a request.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering, fence};
use std::task::Context;

use futures_util::task::AtomicWaker;
use tokio_util::sync::CancellationToken;

/// The cancellation of one request. Most requests end without one, and nobody listens: the token is made when somebody
/// asks for it, and the task of the handler is woken without one.
#[derive(Debug, Default)]
pub(crate) struct Cancel {
    stage: AtomicU8,
    token: OnceLock<CancellationToken>,
    /// The task of the handler.
    task: AtomicWaker,
}

impl Cancel {
    const CANCELLED: u8 = 1;
    const ABORTED: u8 = 2;

    /// Nobody waits any more.
    pub(crate) fn cancel(&self) {
        self.reach(Self::CANCELLED);
    }

    /// The same, and the handler is not to be polled again.
    pub(crate) fn abort(&self) {
        self.reach(Self::ABORTED);
    }

    fn reach(&self, stage: u8) {
        self.stage.fetch_max(stage, Ordering::AcqRel);
        // Either this sees the token, or whoever makes it sees that it is cancelled.
        fence(Ordering::SeqCst);
        if let Some(token) = self.token.get() {
            token.cancel();
        }
        self.task.wake();
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.stage.load(Ordering::Acquire) >= Self::CANCELLED
    }

    /// The same as a token, for those who want to wait for it.
    pub(crate) fn token(&self) -> &CancellationToken {
        let token = self.token.get_or_init(CancellationToken::new);
        fence(Ordering::SeqCst);
        if self.is_cancelled() {
            token.cancel();
        }
        token
    }

    /// The handler has ended: its task is not woken any more, nor held.
    pub(crate) fn forget_task(&self) {
        drop(self.task.take());
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.stage.load(Ordering::Acquire) == Self::ABORTED
    }

    /// Whether it is cancelled. If it is not, or not aborted, the task of the handler is woken when it is.
    pub(crate) fn poll_cancelled(&self, cx: &Context<'_>) -> bool {
        self.task.register(cx.waker());
        // It may have been cancelled meanwhile; `register` is ordered with `wake`.
        self.is_cancelled()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn the_token_is_cancelled_whether_it_was_made_before_or_after() {
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
    async fn the_task_of_the_handler_is_woken() {
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
    fn of_one_who_cancels_and_one_who_makes_the_token_one_sees_the_other() {
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
