//! The things that the readers of a turn have not heard.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use greenroom::Message;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The interval at which a node announces to the others that a turn is read here.
pub(super) const AGAIN: Duration = Duration::from_secs(2);
/// Messages that a slow reader may be behind.
pub(super) const MOST: usize = 4096;
/// Bytes of the messages that a slow reader may be behind. One message may be longer. All readers of a turn are behind by its latest
/// messages, which they share, so this bounds the turn as well.
pub(super) const MOST_BYTES: usize = 4 << 20;

/// A message of a turn, as it is shown live.
#[derive(Clone, Debug)]
pub(crate) struct LiveMessage {
    /// The number of complete messages before this one.
    pub(crate) after: u64,
    /// False: a partial message, without a number of its own.
    pub(crate) complete: bool,
    pub(crate) message: Message,
}

/// The next thing for a reader: a message, or a reason to look.
#[derive(Debug)]
pub(crate) enum Heard {
    /// The next message. Complete messages before it may have been missed; they are in the backend.
    Message(LiveMessage),
    /// The reader was too slow for this number of partial messages.
    Missed(u64),
    /// The records of the prompt or its questions may have changed.
    Look,
}

/// The feeds and the readers of a turn.
#[derive(Default)]
pub(super) struct Audience {
    readers: BTreeMap<u64, Unheard>,
    /// Readers so far. A reader is called by its number.
    joined: u64,
    /// Feeds that are open. Two only while one owner takes over from another.
    pub(super) feeds: usize,
    /// The moment of the last announcement that the turn is read here.
    asked: Option<Instant>,
    /// The number of the next piece of text from another node. `None`: any number.
    next_piece: Option<u64>,
    /// A piece is missing: later pieces are ignored up to the next block.
    has_hole: bool,
    /// Wakes the readers.
    changed: Arc<Notify>,
}

/// The things that a reader has not heard.
#[derive(Default)]
struct Unheard {
    /// The reader wants partial messages.
    is_live: bool,
    messages: VecDeque<LiveMessage>,
    bytes: usize,
    /// Partial messages that were dropped before the first one.
    missed: u64,
    look: bool,
}

impl Audience {
    /// Adds a reader, from now on. Answers with its number, and with what wakes it.
    pub(super) fn join(&mut self, is_live: bool) -> (u64, Arc<Notify>) {
        self.joined += 1;
        self.readers.insert(self.joined, Unheard { is_live, ..Unheard::default() });
        (self.joined, self.changed.clone())
    }

    /// Removes a reader.
    pub(super) fn leave(&mut self, reader: u64) {
        self.readers.remove(&reader);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.readers.is_empty() && self.feeds == 0
    }

    /// Shows messages to the readers. Wake them after the lock is released.
    #[must_use]
    pub(super) fn show(&mut self, messages: impl IntoIterator<Item = LiveMessage>) -> Arc<Notify> {
        for live in messages {
            self.readers.values_mut().for_each(|reader| reader.push(&live));
        }
        self.changed.clone()
    }

    /// True if an announcement is due that the turn is read here. Notes the announcement.
    pub(super) fn asks(&mut self) -> bool {
        let is_read = self.feeds == 0 && self.readers.values().any(|reader| reader.is_live);
        let is_due = is_read && self.asked.is_none_or(|asked| asked.elapsed() >= AGAIN);
        if is_due {
            self.asked = Some(Instant::now());
        }
        is_due
    }

    /// True if readers may see this piece from the owner's node: it follows the last piece, or starts a block.
    pub(super) fn follows(&mut self, number: u64, starts: bool) -> bool {
        let follows = self.next_piece.is_none_or(|next| next == number);
        self.next_piece = number.checked_add(1);
        self.has_hole = !starts && (self.has_hole || !follows);
        // If the turn runs here, the piece is one of an earlier owner.
        !self.has_hole && self.feeds == 0
    }

    /// Has all readers look at the records of the prompt. Wake them after the lock is released.
    #[must_use]
    pub(super) fn look(&mut self) -> Arc<Notify> {
        self.readers.values_mut().for_each(|reader| reader.look = true);
        self.changed.clone()
    }

    /// The next thing for a reader to hear.
    pub(super) fn take(&mut self, reader: u64) -> Option<Heard> {
        let reader = self.readers.get_mut(&reader)?;
        if reader.missed > 0 {
            return Some(Heard::Missed(std::mem::take(&mut reader.missed)));
        }
        let message = reader.pop().map(Heard::Message);
        message.or_else(|| std::mem::take(&mut reader.look).then_some(Heard::Look))
    }

    /// The number of messages that the slowest reader is behind.
    #[cfg(test)]
    pub(super) fn behind(&self) -> usize {
        self.readers.values().map(|reader| reader.messages.len()).max().unwrap_or(0)
    }
}

impl Unheard {
    /// Adds a message. Past the bounds the oldest messages are dropped.
    fn push(&mut self, live: &LiveMessage) {
        self.messages.push_back(live.clone());
        self.bytes += bytes(live);
        while self.messages.len() > 1 && (self.messages.len() > MOST || self.bytes > MOST_BYTES) {
            let dropped = self.pop();
            self.missed += u64::from(dropped.is_some_and(|live| !live.complete));
        }
    }

    fn pop(&mut self) -> Option<LiveMessage> {
        let live = self.messages.pop_front()?;
        self.bytes -= bytes(&live);
        Some(live)
    }
}

fn bytes(live: &LiveMessage) -> usize {
    live.message.raw().get().len()
}
