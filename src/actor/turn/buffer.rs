//! The unread messages of one turn, in memory and in order.
//!
//! `push` and `poll_take` lock for a moment and never wait. A `push` past `Limits::unread_bytes` fails with the error
//! that ends the turn; messages accepted before can still be read. A message larger than the bound is accepted if no
//! other waits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use crate::error::{Error, ErrorKind};
use crate::lock::lock;
use crate::options::UnreadPartials;
use crate::report::Outcome;
use crate::report::counters::Counting;
use crate::wire::Message;

/// The next item of a turn, with the number of partial messages that were dropped right before it.
pub(super) enum NextItem {
    Message(Message, u64),
    /// The end of the turn. There is no outcome if the conversation ended without one.
    End(Option<Outcome>, u64),
}

/// The unread messages of one turn.
pub(in crate::actor) struct TurnBuffer {
    /// Most bytes that wait for the reader.
    most: usize,
    partials: UnreadPartials,
    counting: Arc<Counting>,
    state: Mutex<BufferState>,
}

#[derive(Default)]
struct BufferState {
    /// The messages, oldest first, each with the number of partial messages that were dropped right before it.
    queue: VecDeque<(Message, u64)>,
    bytes: usize,
    partial_bytes: usize,
    /// Partial messages that were dropped after the youngest message in the queue.
    missed: u64,
    /// All partial messages that were dropped.
    missed_in_all: u64,
    outcome: Option<Outcome>,
    /// Whether the turn has ended.
    ended: bool,
    /// Whether the reader is gone.
    closed: bool,
    reader: Option<Waker>,
}

fn is_partial(message: &Message) -> bool {
    // By kind too, so that a partial message of an unknown shape counts.
    matches!(message, Message::StreamEvent(_)) || message.kind() == "stream_event"
}

impl BufferState {
    fn push(&mut self, message: Message) {
        self.bytes += message.bytes();
        if is_partial(&message) {
            self.partial_bytes += message.bytes();
        }
        self.queue.push_back((message, std::mem::take(&mut self.missed)));
    }

    fn left(&mut self, message: &Message) {
        self.bytes -= message.bytes();
        if is_partial(message) {
            self.partial_bytes -= message.bytes();
        }
    }

    /// Drops partial messages, the oldest first, until at most `down_to` bytes are left. Returns how many were dropped.
    fn drop_partials(&mut self, down_to: usize) -> u64 {
        let (mut dropped, mut gap) = (0, 0);
        for (message, missed) in std::mem::take(&mut self.queue) {
            if is_partial(&message) && self.bytes > down_to {
                self.left(&message);
                dropped += 1;
                gap += missed + 1;
            } else {
                self.queue.push_back((message, missed + std::mem::take(&mut gap)));
            }
        }
        self.missed += gap;
        dropped
    }

    /// Takes all messages out; they are dropped after the lock is released.
    fn take_all(&mut self) -> VecDeque<(Message, u64)> {
        (self.bytes, self.partial_bytes) = (0, 0);
        std::mem::take(&mut self.queue)
    }
}

impl TurnBuffer {
    pub(super) fn new(most: usize, partials: UnreadPartials, counting: Arc<Counting>) -> Self {
        Self { most, partials, counting, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, BufferState> {
        lock(&self.state)
    }

    /// Adds messages in order. Returns the number of messages that were dropped because the reader is gone.
    ///
    /// # Errors
    /// `Overflow` past the bound: the error that the turn ends with, and the number of messages behind the refused
    /// one.
    pub(in crate::actor) fn push(
        &self,
        mut messages: impl ExactSizeIterator<Item = Message>,
    ) -> Result<u64, (Error, u64)> {
        let mut state = self.state();
        if state.closed {
            return Ok(messages.len() as u64);
        }
        let mut pushed = Ok(0);
        while let Some(message) = messages.next() {
            if let Err(error) = self.put(&mut state, message) {
                pushed = Err((error, messages.len() as u64));
                break;
            }
        }
        let reader = state.reader.take();
        drop(state);
        // After the lock is released: the reader takes it at once.
        reader.into_iter().for_each(Waker::wake);
        pushed
    }

    fn put(&self, state: &mut BufferState, message: Message) -> Result<(), Error> {
        let (most, partial) = (self.most, is_partial(&message));
        let fits = |state: &BufferState| state.queue.is_empty() || state.bytes + message.bytes() <= most;
        if !fits(state) && self.partials == UnreadPartials::DropFirst {
            // For a new partial message only while many can be dropped: a pass over the queue costs more than the one
            // message.
            if state.partial_bytes > if partial { most / 4 } else { 0 } {
                // Drops a quarter at a time, so that not every push passes over the whole queue.
                let dropped = state.drop_partials(most / 4 * 3);
                self.dropped(state, dropped);
            }
            if !fits(state) && partial {
                state.missed += 1;
                self.dropped(state, 1);
                return Ok(());
            }
        }
        if !fits(state) {
            let text =
                format!("the messages of the turn were not read, and {most} bytes of them were waiting");
            let help = "read them, drop the turn, or raise `limits.unread_bytes`";
            return Err(Error::new(ErrorKind::Overflow, text).with_help(help));
        }
        state.push(message);
        Ok(())
    }

    /// Counts dropped partial messages.
    fn dropped(&self, state: &mut BufferState, dropped: u64) {
        state.missed_in_all += dropped;
        self.counting.dropped_partials.add(dropped);
    }

    /// Ends the turn: no message follows.
    pub(super) fn end(&self, outcome: Option<Outcome>) {
        let mut state = self.state();
        if !state.ended {
            state.ended = true;
            state.outcome = outcome;
            let reader = state.reader.take();
            drop(state);
            reader.into_iter().for_each(Waker::wake);
        }
    }

    /// Takes the next item. Takes nothing when it returns `Pending`.
    pub(super) fn poll_take(&self, cx: &mut Context<'_>) -> Poll<NextItem> {
        let mut state = self.state();
        if let Some((message, missed)) = state.queue.pop_front() {
            state.left(&message);
            return Poll::Ready(NextItem::Message(message, missed));
        }
        if state.ended {
            return Poll::Ready(NextItem::End(state.outcome.take(), std::mem::take(&mut state.missed)));
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Waits for a message or for the end. Takes nothing.
    pub(super) fn poll_begun(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.ended || !state.queue.is_empty() {
            return Poll::Ready(());
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Drops all unread messages. Returns how many partial messages were dropped before for want of room.
    pub(super) fn discard(&self) -> u64 {
        let mut state = self.state();
        let waiting = state.take_all();
        state.missed = 0;
        let missed = state.missed_in_all;
        drop(state);
        drop(waiting);
        missed
    }

    /// Drops everything: the reader is gone.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let waiting = state.take_all();
        drop(state);
        drop(waiting);
    }

    /// Unread bytes of JSON.
    pub(in crate::actor) fn unread(&self) -> usize {
        self.state().bytes
    }
}
