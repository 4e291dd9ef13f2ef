//! The limit on the bytes that wait for the CLI to read its stdin: `Limits::outbound_bytes`.
//!
//! Answers of accepted requests are always queued: none is lost while the incarnation lives. The limit holds because
//! nothing new begins above it:
//!
//! | what | above the limit |
//! |---|---|
//! | a new request of the CLI | refused as at capacity, unless it ends a call or a call waits for it |
//! | an accepted request whose handler has not begun | waits for room; its time limit runs, and it can be cancelled |
//! | a running handler | runs on; its result is queued |
//! | a notification or a request of a tool | waits for room |
//! | a request of the application | refused with `AtCapacity`, except an interrupt and a change of the MCP servers |
//! | a prompt | written: there is one at a time, and the prompts in the queue have a limit of their own |
//!
//! So the queue holds at most the limit, one prompt, and the results of the handlers that ran when the limit was
//! reached. Running handlers are not paused, because a paused handler may hold a lock that another session waits for.
//!
//! A CLI that reads is not slowed down: handlers begin again while nearly `outbound_bytes` of answers are unread. A CLI
//! that does not read is ended after `Timeouts::stdin_stall`.

use tokio::sync::Notify;

use crate::actor::base::level::Level;

/// Counts the bytes in the outbound queue of one incarnation.
pub(crate) struct OutboundBytes {
    pub(crate) queued: Level,
    /// Wakes one waiter at a time: woken together, all but the first would wait again.
    room: Notify,
}

impl OutboundBytes {
    pub(crate) fn new(limit: usize) -> Self {
        Self { queued: Level::new(limit), room: Notify::new() }
    }

    /// Whether the limit is reached, so that nothing new may begin.
    pub(crate) fn is_full(&self) -> bool {
        self.queued.count() >= self.queued.limit
    }

    pub(super) fn add(&self, bytes: usize) {
        self.queued.add(bytes);
    }

    /// Takes bytes off the count that were written, or never will be.
    pub(super) fn remove(&self, bytes: usize) {
        let before = self.queued.remove(bytes);
        if before >= self.queued.limit && before - bytes < self.queued.limit {
            self.room.notify_one();
        }
    }

    /// Waits until there is room, and wakes the next waiter to look too.
    pub(crate) async fn room(&self) {
        if !self.is_full() {
            return;
        }
        loop {
            let mut freed = std::pin::pin!(self.room.notified());
            freed.as_mut().enable();
            if self.queued.recount() < self.queued.limit {
                break;
            }
            freed.await;
        }
        self.room.notify_one();
    }

    /// Error text for a refused request.
    pub(crate) fn refusal(&self) -> String {
        format!("at capacity: {} bytes or more wait for the CLI to read them", self.queued.limit)
    }
}

// Guards: control-first
#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn waiters_go_on_one_after_another_while_there_is_room() {
        let bytes = Arc::new(OutboundBytes::new(10));
        bytes.add(12);
        assert!(bytes.is_full() && bytes.queued.is_news() && !bytes.queued.is_news());
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let bytes = bytes.clone();
                Box::pin(async move {
                    bytes.room().await;
                    bytes.add(4);
                })
            })
            .collect();
        let mut waiting = futures_util::future::join_all(waiting);
        assert!((&mut waiting).now_or_never().is_none());
        bytes.remove(1);
        assert!((&mut waiting).now_or_never().is_none() && bytes.queued.count() == 11);
        bytes.remove(5);
        // The first waiter fills the queue to 10 again, and the others wait.
        assert!((&mut waiting).now_or_never().is_none() && bytes.queued.count() == 10);
        assert!(!bytes.queued.is_news(), "half of the limit was not free yet");
        bytes.remove(6);
        waiting.await;
        assert_eq!(bytes.queued.count(), 12);
        bytes.remove(12);
        assert!(bytes.queued.is_news());
    }

    #[tokio::test]
    async fn a_waiter_that_is_dropped_wakes_the_next() {
        let bytes = OutboundBytes::new(1);
        bytes.add(1);
        let mut dropped = Box::pin(bytes.room());
        let mut waits = Box::pin(bytes.room());
        assert!((&mut dropped).now_or_never().is_none());
        assert!((&mut waits).now_or_never().is_none());
        bytes.remove(1);
        drop(dropped);
        waits.await;
    }
}
