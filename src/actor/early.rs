//! Messages before the first prompt, kept for the first subscriber to all messages.
//!
//! The CLI runs `SessionStart` hooks and warns of broken settings while it starts, before `start` has returned a
//! session to subscribe to.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::lock::lock;
use crate::report::feed::{Feed, Subscriber};
use crate::wire::Message;

/// Messages that came before the first subscription.
#[derive(Debug, Default)]
pub(crate) struct Early {
    pub(crate) messages: Vec<Message>,
    /// Number of messages behind those, for which there was no room.
    pub(crate) missed: u64,
    bytes: usize,
}

/// The feed of all messages. Keeps the messages before the first prompt.
pub(crate) struct EarlyFeed {
    feed: Feed<Message>,
    /// Whether messages are kept: true until the first prompt.
    open: AtomicBool,
    /// `None` once the first subscriber has taken the messages.
    kept: Mutex<Option<Early>>,
    /// The most bytes of JSON to keep.
    bound: usize,
}

impl EarlyFeed {
    pub(crate) fn new(feed: Feed<Message>, bound: usize) -> Self {
        Self { feed, open: AtomicBool::new(true), kept: Mutex::new(Some(Early::default())), bound }
    }

    /// Sends a message to the subscribers, and keeps it before the first prompt.
    pub(crate) fn send(&self, message: &Message) {
        let bytes = message.raw().get().len();
        if !self.open.load(Ordering::Acquire) {
            return self.feed.send(message.clone(), bytes);
        }
        // Under the lock, so that a subscriber that arrives now gets the message once.
        let mut kept = lock(&self.kept);
        self.feed.send(message.clone(), bytes);
        let Some(early) = kept.as_mut() else { return };
        // A message behind a gap is not kept: the gap would seem to be at the end.
        if early.missed > 0 || early.bytes.saturating_add(bytes) > self.bound {
            early.missed += 1;
        } else {
            early.bytes += bytes;
            early.messages.push(message.clone());
        }
    }

    /// Whether anyone gets the messages: a subscriber, or the first one to come.
    pub(crate) fn has_subscribers(&self) -> bool {
        self.open.load(Ordering::Acquire) || self.feed.has_subscribers()
    }

    /// Stops keeping messages: the first prompt is written.
    pub(crate) fn close(&self) {
        self.open.store(false, Ordering::Release);
    }

    /// Subscribes. The first subscriber gets the kept messages too.
    pub(crate) fn subscribe(&self) -> (Early, Subscriber<Message>) {
        let mut kept = lock(&self.kept);
        let listener = self.feed.subscribe();
        (kept.take().unwrap_or_default(), listener)
    }
}
