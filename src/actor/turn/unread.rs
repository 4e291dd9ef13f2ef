//! Unread messages in memory.

use std::collections::VecDeque;

use crate::wire::Message;

/// An unread message.
#[derive(Clone, Debug)]
pub(super) struct UnreadMessage {
    pub(super) message: Message,
    /// Partial messages that were dropped right before this message.
    pub(super) missed: u64,
}

impl UnreadMessage {
    pub(super) fn bytes(&self) -> usize {
        self.message.bytes()
    }

    fn is_partial(&self) -> bool {
        is_partial(&self.message)
    }
}

pub(super) fn is_partial(message: &Message) -> bool {
    // By kind too, so that a partial message of an unknown shape counts.
    matches!(message, Message::StreamEvent(_)) || message.kind() == "stream_event"
}

/// Messages in memory, oldest first.
#[derive(Debug, Default)]
pub(super) struct MessageQueue {
    pub(super) entries: VecDeque<UnreadMessage>,
    pub(super) bytes: usize,
    pub(super) partial_bytes: usize,
}

impl MessageQueue {
    pub(super) fn push(&mut self, entry: UnreadMessage) {
        self.bytes += entry.bytes();
        if entry.is_partial() {
            self.partial_bytes += entry.bytes();
        }
        self.entries.push_back(entry);
    }

    pub(super) fn pop(&mut self) -> Option<UnreadMessage> {
        let entry = self.entries.pop_front()?;
        self.bytes -= entry.bytes();
        if entry.is_partial() {
            self.partial_bytes -= entry.bytes();
        }
        Some(entry)
    }

    /// Drops partial messages, the oldest first, until at most `down_to` bytes are left. Returns how many were dropped,
    /// and how many of them after the youngest message that is left.
    pub(super) fn drop_partials(&mut self, down_to: usize) -> (u64, u64) {
        let (mut dropped, mut missed) = (0, 0);
        for mut entry in std::mem::take(&mut self.entries) {
            if entry.is_partial() && self.bytes > down_to {
                self.bytes -= entry.bytes();
                self.partial_bytes -= entry.bytes();
                dropped += 1;
                missed += entry.missed + 1;
            } else {
                entry.missed += std::mem::take(&mut missed);
                self.entries.push_back(entry);
            }
        }
        (dropped, missed)
    }
}
