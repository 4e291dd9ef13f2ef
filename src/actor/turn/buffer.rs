//! The unread messages of one turn: in memory, then in a temporary file, in order.
//!
//! ```text
//!   conversation                                    file (a ring, `ring_file.rs`)                   Turn
//!   ── push ──►  tail, on its way to the file ──►  ░░░░░░░░░░░░░░░░░░░░░░░░░  ──►  head, in memory ── take ──►
//!          │     ≤ Limits::spilling_bytes           ≤ Limits::spilled_bytes        ≤ Limits::unread_bytes
//!          └─ straight into the head while it has room and nothing waits behind it ─►┘
//! ```
//!
//! Messages in the tail are younger than messages in the file, and those are younger than messages in the head: order
//! is kept. `push` and `take` lock for a moment and never wait. The [mover](super::mover) moves messages between memory
//! and file.
//!
//! When a bound is reached or the file cannot be written, the next `push` that finds no room fails with the error that
//! ends the turn. Messages accepted before are still read, in order. The mover belongs to the [`TurnBuffer`] and so to
//! the turn: dropping the turn ends the mover and closes the file.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use super::ring_file::record_bytes;
use super::unread::{MessageQueue, UnreadMessage, is_partial};
use crate::Options;
use crate::actor::base::task::Task;
use crate::error::{Error, ErrorKind};
use crate::lock::lock;
use crate::options::UnreadPartials;
use crate::report::Outcome;
use crate::report::counters::Counting;
use crate::wire::Message;

/// The bounds of a turn's unread messages, in bytes.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    /// Bytes in memory that wait for the reader.
    pub(super) unread: usize,
    /// Bytes in memory on their way to the file.
    pub(super) spilling: usize,
    /// Bytes in the file; 0 for no file.
    pub(super) spilled: u64,
    pub(super) partials: UnreadPartials,
    pub(super) dir: Option<PathBuf>,
}

impl Bounds {
    pub(super) fn of(options: &Options) -> Self {
        Self {
            unread: options.limits.unread_bytes,
            spilling: options.limits.spilling_bytes,
            spilled: options.limits.spilled_bytes,
            partials: options.unread_partials,
            dir: options.spill_dir.clone(),
        }
    }
}

/// The next item of a turn, with the number of partial messages that were dropped right before it.
#[derive(Debug)]
pub(super) enum NextItem {
    Message(Message, u64),
    /// The end of the turn. There is no outcome if the conversation ended without one.
    End(Option<Outcome>, u64),
}

/// The unread messages of one turn.
#[derive(Debug)]
pub(super) struct TurnBuffer {
    pub(super) bounds: Bounds,
    counting: Arc<Counting>,
    state: Mutex<BufferState>,
    /// Wakes the mover when there may be something to move.
    pub(super) work: Notify,
}

#[derive(Debug, Default)]
pub(super) struct BufferState {
    /// The oldest messages: the reader takes from here.
    pub(super) head: MessageQueue,
    /// The youngest messages, on their way to the file.
    pub(super) tail: MessageQueue,
    /// Number of the tail's first messages that are being written to the file.
    pub(super) writing: usize,
    /// Whether messages are being read from the file.
    pub(super) reading: bool,
    /// Position in the file of the oldest unread message.
    pub(super) read_at: u64,
    /// Position in the file behind the youngest message.
    pub(super) write_at: u64,
    /// Whether the file occupies space that can be given back.
    pub(super) stale: bool,
    /// Partial messages that were dropped after the youngest message in the buffer.
    missed: u64,
    /// All partial messages that were dropped.
    missed_in_all: u64,
    /// Set to forget the messages in the file when the work on the file is done.
    pub(super) discarding: bool,
    /// The error that keeps the file from being written.
    pub(super) broken: Option<Arc<io::Error>>,
    /// The error that keeps the messages in the file from being read.
    pub(super) lost: Option<Arc<io::Error>>,
    outcome: Option<Outcome>,
    /// Whether the turn has ended.
    pub(super) ended: bool,
    /// Whether the reader is gone.
    pub(super) closed: bool,
    reader: Option<Waker>,
    pub(super) mover: Option<Task>,
}

impl BufferState {
    /// Unread bytes in the file.
    pub(super) fn in_file(&self) -> u64 {
        self.write_at - self.read_at
    }

    /// Whether a new message must go behind messages in the tail or the file.
    fn is_spilling(&self) -> bool {
        !self.tail.entries.is_empty() || self.in_file() > 0
    }

    pub(super) fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// Starts the file again from its beginning: every message in it was read, or is not wanted.
    pub(super) fn reset_file(&mut self) {
        self.stale |= self.write_at > 0;
        (self.read_at, self.write_at) = (0, 0);
    }
}

impl TurnBuffer {
    pub(super) fn new(bounds: Bounds, counting: Arc<Counting>) -> Self {
        Self { bounds, counting, state: Mutex::default(), work: Notify::new() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, BufferState> {
        lock(&self.state)
    }

    /// Adds messages in order. Returns the number of messages that were dropped because the reader is gone.
    ///
    /// # Errors
    /// `Overflow` past the bounds: the error that the turn ends with, and the number of messages behind the refused
    /// one.
    pub(super) fn push(&self, messages: impl ExactSizeIterator<Item = Message>) -> Result<u64, (Error, u64)> {
        let (pushed, reader) = {
            let queue = &mut *self.state();
            (self.push_locked(queue, messages), queue.reader.take())
        };
        // After the lock is released: the reader takes it at once.
        reader.into_iter().for_each(Waker::wake);
        pushed
    }

    fn push_locked(
        &self,
        queue: &mut BufferState,
        mut messages: impl ExactSizeIterator<Item = Message>,
    ) -> Result<u64, (Error, u64)> {
        let mut dropped = 0;
        while let Some(message) = messages.next() {
            let taken = self.put(queue, message).map_err(|error| (error, messages.len() as u64))?;
            dropped += u64::from(!taken);
        }
        Ok(dropped)
    }

    /// Adds a message. Returns false if the reader is gone.
    fn put(&self, queue: &mut BufferState, message: Message) -> Result<bool, Error> {
        if queue.closed || queue.lost.is_some() {
            return Ok(false);
        }
        let size = message.bytes();
        let fits =
            |queue: &BufferState| !queue.is_spilling() && queue.head.bytes + size <= self.bounds.unread;
        if !fits(queue) && self.bounds.partials == UnreadPartials::DropFirst {
            self.drop_partials(queue, is_partial(&message));
            if !fits(queue) && is_partial(&message) {
                self.dropped(queue, 1, 1);
                return Ok(true);
            }
        }
        let into_head = fits(queue);
        if !into_head {
            self.has_room(queue, size)?;
        }
        let missed = std::mem::take(&mut queue.missed);
        let entry = UnreadMessage { message, missed };
        if into_head {
            queue.head.push(entry);
        } else {
            queue.tail.push(entry);
            self.work.notify_one();
        }
        Ok(true)
    }

    /// Counts dropped partial messages. `missed` of them came after the youngest message in the buffer.
    fn dropped(&self, queue: &mut BufferState, dropped: u64, missed: u64) {
        queue.missed += missed;
        queue.missed_in_all += dropped;
        self.counting.dropped_partials.add(dropped);
    }

    /// Makes room in the head by dropping partial messages. For a new partial message this is done only while many can
    /// be dropped: a pass over the head costs more than the one message.
    fn drop_partials(&self, queue: &mut BufferState, for_partial: bool) {
        let least = if for_partial { self.bounds.unread / 4 } else { 0 };
        if queue.is_spilling() || queue.head.partial_bytes <= least {
            return;
        }
        // Drops a quarter at a time, so that not every push passes over the whole head.
        let (dropped, missed) = queue.head.drop_partials(self.bounds.unread / 4 * 3);
        self.dropped(queue, dropped, missed);
    }

    /// Checks that the tail takes a message of this size.
    fn has_room(&self, queue: &BufferState, size: usize) -> Result<(), Error> {
        let Bounds { unread, spilling, spilled, .. } = self.bounds;
        let refused = |rest: String, help: &str| {
            let error =
                Error::new(ErrorKind::Overflow, format!("the messages of the turn were not read, {rest}"));
            Err(error.with_help(format!("read them, drop the turn, or {help}")))
        };
        if spilled == 0 {
            return refused(
                format!("and {unread} bytes of them were waiting"),
                "raise `limits.unread_bytes`",
            );
        }
        if let Some(cause) = &queue.broken {
            let text = format!("and the temporary file for them cannot be written: {cause}");
            return refused(text, "see to the folder (`spill_dir`)")
                .map_err(|error: Error| error.with_source(cause.clone()));
        }
        let on_the_way: u64 = queue.tail.bytes as u64 + record_bytes(0) * queue.tail.entries.len() as u64;
        if queue.in_file() + on_the_way + record_bytes(size) > spilled {
            let text = format!("and {unread} bytes of them were waiting in memory and {spilled} in a file");
            return refused(text, "raise `limits.spilled_bytes`");
        }
        if !queue.tail.entries.is_empty() && queue.tail.bytes + size > spilling {
            let text = format!("and {spilling} bytes of them were waiting for a file that is slow");
            return refused(text, "raise `limits.spilling_bytes`");
        }
        Ok(())
    }

    /// Ends the turn: no message follows.
    pub(super) fn end(&self, outcome: Option<Outcome>) {
        let mut queue = self.state();
        if !queue.ended {
            queue.ended = true;
            queue.outcome = outcome;
            queue.wake_reader();
            self.work.notify_one();
        }
    }

    /// Takes the next item. Takes nothing when it returns `Pending`.
    pub(super) fn poll_take(&self, cx: &mut Context<'_>) -> Poll<NextItem> {
        let mut queue = self.state();
        let taken = self.take(&mut queue);
        if taken.is_none() {
            queue.reader = Some(cx.waker().clone());
        }
        taken.map_or(Poll::Pending, Poll::Ready)
    }

    fn take(&self, queue: &mut BufferState) -> Option<NextItem> {
        let entry = match queue.head.pop() {
            Some(entry) => Some(entry),
            None if queue.lost.is_some() => None,
            None if queue.in_file() > 0 || queue.writing > 0 => {
                self.work.notify_one();
                return None;
            }
            None => queue.tail.pop(),
        };
        if queue.head.entries.is_empty() && queue.in_file() > 0 {
            self.work.notify_one();
        }
        if let Some(UnreadMessage { message, missed }) = entry {
            return Some(NextItem::Message(message, missed));
        }
        if let Some(cause) = queue.lost.clone() {
            let text = format!("messages of the turn that were waiting in a file cannot be read: {cause}");
            let error = Error::new(ErrorKind::Io, text).with_source(cause);
            let result = match queue.outcome.take() {
                Some(Outcome::Completed { result }) => Some(result),
                Some(Outcome::Interrupted { result, .. } | Outcome::Failed { result, .. }) => result,
                Some(Outcome::NotStarted { .. } | Outcome::Appended) | None => None,
            };
            queue.ended = true;
            return Some(NextItem::End(
                Some(Outcome::Failed { error, result }),
                std::mem::take(&mut queue.missed),
            ));
        }
        queue.ended.then(|| NextItem::End(queue.outcome.take(), std::mem::take(&mut queue.missed)))
    }

    /// Drops all unread messages. Returns how many partial messages were dropped before for want of room.
    pub(super) fn discard(&self) -> u64 {
        let mut queue = self.state();
        // Dropped after the lock is released.
        let head = std::mem::take(&mut queue.head);
        let writing = queue.writing;
        let tail = queue.tail.split_off(writing);
        queue.missed = 0;
        if writing > 0 || queue.reading {
            queue.discarding = true;
        } else {
            queue.reset_file();
        }
        self.work.notify_one();
        let missed = queue.missed_in_all;
        drop(queue);
        drop((head, tail));
        missed
    }

    /// Drops everything: the reader is gone.
    pub(super) fn close(&self) {
        let mut queue = self.state();
        queue.closed = true;
        let waiting = (std::mem::take(&mut queue.head), std::mem::take(&mut queue.tail), queue.mover.take());
        queue.writing = 0;
        queue.reset_file();
        drop(queue);
        drop(waiting);
    }

    /// Unread bytes of JSON in memory, including bytes on their way to the file.
    pub(super) fn in_memory(&self) -> usize {
        let queue = self.state();
        queue.head.bytes + queue.tail.bytes
    }

    /// Unread bytes in the file.
    pub(super) fn in_file(&self) -> u64 {
        self.state().in_file()
    }
}
