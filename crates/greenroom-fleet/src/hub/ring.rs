//! The last messages of a turn, until its readers have read them.

use std::collections::VecDeque;

use greenroom::Message;

/// Messages that a slow reader may be behind.
pub(super) const MOST: usize = 4096;
/// Bytes of the messages that a slow reader may be behind. One message may be longer.
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

/// What a reader hears.
#[derive(Debug)]
pub(crate) enum Heard {
    /// The next message. Complete messages before it may have been missed; they are in the backend.
    Message(LiveMessage),
    /// The reader was too slow for this number of partial messages.
    Missed(u64),
    /// The records of the prompt have changed, or may have.
    Look,
}

/// The last messages of a turn, until its readers have read them.
#[derive(Debug, Default)]
pub(super) struct MessageRing {
    items: VecDeque<Item>,
    /// The position of the first item. Each message has a position, from 0.
    first: u64,
    bytes: usize,
    /// Partial messages that were shown so far.
    partials: u64,
    /// Readers that want messages.
    readers: usize,
    /// Readers of both kinds.
    users: usize,
    /// Feeds that are open. Two only while one owner takes over from another.
    pub(super) feeds: usize,
    /// Changes of the records so far.
    pub(super) looks: u64,
    /// The record that the last look has found. `None`: nobody has looked since the last reader came.
    seen: Option<SeenRecord>,
}

/// The last message of a turn, and `true` if it has ended. `None`: there is no record that can be read.
pub(super) type SeenRecord = Option<(u64, bool)>;

#[derive(Debug)]
struct Item {
    live: LiveMessage,
    /// Readers that have not read the message.
    unread: usize,
    /// Partial messages before this one.
    partials: u64,
}

/// The place of a reader in a ring.
#[derive(Debug)]
pub(super) struct ReaderPlace {
    /// The position of the next message. `None`: the reader wants no messages.
    at: Option<u64>,
    /// Partial messages before the next message.
    partials: u64,
    looks: u64,
}

impl MessageRing {
    /// Adds a reader, from now on.
    pub(super) fn join(&mut self, messages: bool) -> ReaderPlace {
        self.users += 1;
        self.seen = None;
        self.readers += usize::from(messages);
        ReaderPlace { at: messages.then(|| self.end()), partials: self.partials, looks: self.looks }
    }

    /// Removes a reader.
    pub(super) fn leave(&mut self, place: &ReaderPlace) {
        self.users -= 1;
        let Some(at) = place.at else { return };
        self.readers -= 1;
        let unread = usize::try_from(at.saturating_sub(self.first)).unwrap_or(usize::MAX);
        for item in self.items.iter_mut().skip(unread) {
            item.unread -= 1;
        }
        self.drop_read();
    }

    pub(super) fn is_unused(&self) -> bool {
        self.users == 0 && self.feeds == 0
    }

    /// Notes the record that a look has found. `true`: it has changed, or may have, so the readers are to read it.
    pub(super) fn is_news(&mut self, record: SeenRecord) -> bool {
        let is_news = self.seen.replace(record) != Some(record);
        self.looks += u64::from(is_news);
        is_news
    }

    /// Adds a message. Past the bounds the oldest messages are dropped.
    pub(super) fn push(&mut self, live: LiveMessage) {
        let partials = self.partials;
        self.partials += u64::from(!live.complete);
        if self.readers == 0 {
            self.first += 1;
            return;
        }
        self.bytes += bytes(&live);
        self.items.push_back(Item { live, unread: self.readers, partials });
        while self.items.len() > 1 && (self.items.len() > MOST || self.bytes > MOST_BYTES) {
            self.drop_first();
        }
    }

    /// The next thing for a reader to hear.
    pub(super) fn take(&mut self, place: &mut ReaderPlace) -> Option<Heard> {
        if let Some(at) = &mut place.at {
            if *at < self.first {
                *at = self.first;
                let partials = self.items.front().map_or(self.partials, |item| item.partials);
                let missed = partials - place.partials;
                place.partials = partials;
                if missed > 0 {
                    return Some(Heard::Missed(missed));
                }
            }
            let index = usize::try_from(*at - self.first).unwrap_or(usize::MAX);
            if let Some(item) = self.items.get_mut(index) {
                let live = item.live.clone();
                item.unread -= 1;
                *at += 1;
                place.partials = item.partials + u64::from(!live.complete);
                self.drop_read();
                return Some(Heard::Message(live));
            }
        }
        let news = place.looks != self.looks;
        place.looks = self.looks;
        news.then_some(Heard::Look)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// The position of the next message to be shown.
    fn end(&self) -> u64 {
        self.first + self.items.len() as u64
    }

    /// Drops messages that all readers have read.
    fn drop_read(&mut self) {
        while self.items.front().is_some_and(|item| item.unread == 0) {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        if let Some(item) = self.items.pop_front() {
            self.bytes -= bytes(&item.live);
            self.first += 1;
        }
    }
}

fn bytes(live: &LiveMessage) -> usize {
    live.message.raw().get().len()
}
