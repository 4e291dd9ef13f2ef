//! The unread messages of one turn, in memory and in order.
//!
//! `push` and `poll_take` lock for a moment and never wait. A `push` past `Limits::unread_bytes` fails with the error
//! that ends the turn; messages accepted before can still be read. A message larger than the bound is accepted if no
//! other waits.

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use super::unread::{MessageQueue, UnreadMessage, is_partial};
use crate::Options;
use crate::error::{Error, ErrorKind};
use crate::lock::lock;
use crate::options::UnreadPartials;
use crate::report::Outcome;
use crate::report::counters::Counting;
use crate::wire::Message;

/// The bounds of a turn's unread messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Bytes that wait for the reader.
    pub(super) unread: usize,
    pub(super) partials: UnreadPartials,
}

impl Bounds {
    pub(super) fn of(options: &Options) -> Self {
        Self { unread: options.limits.unread_bytes, partials: options.unread_partials }
    }
}

/// The next item of a turn, with the number of partial messages that were dropped right before it.
pub(super) enum NextItem {
    Message(Message, u64),
    /// The end of the turn. There is no outcome if the conversation ended without one.
    End(Option<Outcome>, u64),
}

/// The unread messages of one turn.
pub(super) struct TurnBuffer {
    bounds: Bounds,
    counting: Arc<Counting>,
    state: Mutex<BufferState>,
}

#[derive(Debug, Default)]
struct BufferState {
    queue: MessageQueue,
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

impl TurnBuffer {
    pub(super) fn new(bounds: Bounds, counting: Arc<Counting>) -> Self {
        Self { bounds, counting, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, BufferState> {
        lock(&self.state)
    }

    /// Adds messages in order. Returns the number of messages that were dropped because the reader is gone.
    ///
    /// # Errors
    /// `Overflow` past the bound: the error that the turn ends with, and the number of messages behind the refused
    /// one.
    pub(super) fn push(
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
        let unread = self.bounds.unread;
        let fits = |state: &BufferState| {
            state.queue.entries.is_empty() || state.queue.bytes + message.bytes() <= unread
        };
        if !fits(state) && self.bounds.partials == UnreadPartials::DropFirst {
            self.drop_partials(state, is_partial(&message));
            if !fits(state) && is_partial(&message) {
                self.dropped(state, 1, 1);
                return Ok(());
            }
        }
        if !fits(state) {
            let text =
                format!("the messages of the turn were not read, and {unread} bytes of them were waiting");
            let help = "read them, drop the turn, or raise `limits.unread_bytes`";
            return Err(Error::new(ErrorKind::Overflow, text).with_help(help));
        }
        let missed = std::mem::take(&mut state.missed);
        state.queue.push(UnreadMessage { message, missed });
        Ok(())
    }

    /// Counts dropped partial messages. `missed` of them came after the youngest message in the queue.
    fn dropped(&self, state: &mut BufferState, dropped: u64, missed: u64) {
        state.missed += missed;
        state.missed_in_all += dropped;
        self.counting.dropped_partials.add(dropped);
    }

    /// Makes room by dropping partial messages. For a new partial message this is done only while many can be dropped: a
    /// pass over the queue costs more than the one message.
    fn drop_partials(&self, state: &mut BufferState, for_partial: bool) {
        let least = if for_partial { self.bounds.unread / 4 } else { 0 };
        if state.queue.partial_bytes > least {
            // Drops a quarter at a time, so that not every push passes over the whole queue.
            let (dropped, missed) = state.queue.drop_partials(self.bounds.unread / 4 * 3);
            self.dropped(state, dropped, missed);
        }
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
        if let Some(UnreadMessage { message, missed }) = state.queue.pop() {
            return Poll::Ready(NextItem::Message(message, missed));
        }
        if state.ended {
            return Poll::Ready(NextItem::End(state.outcome.take(), std::mem::take(&mut state.missed)));
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Drops all unread messages. Returns how many partial messages were dropped before for want of room.
    pub(super) fn discard(&self) -> u64 {
        let mut state = self.state();
        let waiting = std::mem::take(&mut state.queue);
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
        let waiting = std::mem::take(&mut state.queue);
        drop(state);
        drop(waiting);
    }

    /// Unread bytes of JSON.
    pub(super) fn unread(&self) -> usize {
        self.state().queue.bytes
    }
}
