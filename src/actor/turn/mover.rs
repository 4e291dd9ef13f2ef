//! The mover of a turn: one task that moves unread messages from memory to the file and back.
//!
//! ```text
//!                 tail not empty                     work
//!   (no mover) ─────────────────► waiting ◄────────────────────► working on a blocking thread
//!                                    │  ▲   tail to file, file to head, space given back
//!                                    │  └── woken by push, take, end
//!                                    └────► over: turn ended and nothing left to move, or the reader is gone
//! ```

use std::io;
use std::sync::Arc;

use super::buffer::TurnBuffer;
use super::ring_file::{FileDone, FileWork, PORTION, RingFile};
use super::unread::UnreadMessage;
use crate::actor::base::task::Task;

/// The mover's next step.
pub(super) enum MoverStep {
    Work(FileWork),
    /// Waits for `TurnBuffer::work`.
    Wait,
    Over,
}

impl TurnBuffer {
    /// Starts the mover if it does not run and there is something to move.
    pub(super) fn start_mover(self: &Arc<Self>) {
        let mut queue = self.state();
        if queue.mover.is_none() && !queue.closed && !queue.tail.entries.is_empty() {
            queue.mover = Some(Task::spawn(run_mover(self.clone())));
        }
    }

    /// Chooses the next work on the file, and moves messages in memory that need no file.
    pub(super) fn next(&self) -> MoverStep {
        let queue = &mut *self.state();
        if queue.closed {
            return MoverStep::Over;
        }
        if queue.in_file() == 0 {
            // The reader has caught up: messages need not go through the file.
            while let Some(front) = queue.tail.entries.front()
                && queue.head.bytes + front.bytes() <= self.bounds.unread
                && let Some(entry) = queue.tail.pop()
            {
                queue.head.push(entry);
            }
            queue.wake_reader();
        }
        let mut job =
            FileWork { write_at: queue.write_at, bound: self.bounds.spilled, ..FileWork::default() };
        if queue.broken.is_none() {
            let mut size = 0;
            let fits = |entry: &&UnreadMessage| {
                size += entry.bytes();
                size <= PORTION || size == entry.bytes()
            };
            job.write = queue.tail.entries.iter().take_while(fits).cloned().collect();
            job.dir = self.bounds.dir.clone();
        }
        if queue.head.entries.is_empty() && queue.in_file() > 0 && queue.lost.is_none() {
            job.read = Some((queue.read_at, queue.in_file(), self.bounds.unread.min(PORTION)));
        }
        job.truncate = queue.stale && queue.in_file() == 0;
        if job.truncate {
            queue.stale = false;
        } else if job.write.is_empty() && job.read.is_none() {
            let done = queue.broken.is_some() || queue.ended && queue.tail.entries.is_empty();
            return if done && queue.in_file() == 0 { MoverStep::Over } else { MoverStep::Wait };
        }
        queue.writing = job.write.len();
        queue.reading = job.read.is_some();
        MoverStep::Work(job)
    }

    /// Takes over what the work on the file has done.
    pub(super) fn done(&self, done: FileDone) {
        let queue = &mut *self.state();
        if queue.closed {
            return;
        }
        match done.written {
            Some(Ok(bytes)) => {
                queue.write_at += bytes;
                for _ in 0..queue.writing {
                    // The message is in the file now.
                    queue.tail.pop();
                }
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "unread messages cannot be written to a file");
                queue.broken = Some(Arc::new(error));
            }
            None => {}
        }
        match done.read {
            Some(Ok((entries, bytes))) => {
                queue.read_at += bytes;
                if !queue.discarding {
                    entries.into_iter().for_each(|entry| queue.head.push(entry));
                }
            }
            Some(Err(error)) => queue.lost = Some(Arc::new(error)),
            None => {}
        }
        queue.writing = 0;
        queue.reading = false;
        if std::mem::take(&mut queue.discarding) {
            queue.read_at = queue.write_at;
            queue.lost = None;
        }
        if queue.in_file() == 0 {
            queue.reset_file();
        }
        queue.wake_reader();
    }
}

/// Moves messages until there is nothing more to move.
pub(super) async fn run_mover(buffer: Arc<TurnBuffer>) {
    let mover = MoverGuard(buffer);
    let buffer = &mover.0;
    let mut file = RingFile::default();
    loop {
        match buffer.next() {
            MoverStep::Over => return,
            MoverStep::Wait => buffer.work.notified().await,
            MoverStep::Work(job) => {
                let work = tokio::task::spawn_blocking(move || {
                    let done = file.run(&job);
                    (file, done)
                });
                let Ok((back, done)) = work.await else { return };
                file = back;
                buffer.done(done);
            }
        }
    }
}

/// Ends the reader's wait for messages in the file when the mover ends.
pub(super) struct MoverGuard(pub(super) Arc<TurnBuffer>);

impl Drop for MoverGuard {
    fn drop(&mut self) {
        let queue = &mut *self.0.state();
        let ended = || Arc::new(io::Error::other("the runtime of the session has ended"));
        queue.writing = 0;
        if queue.in_file() > 0 && !queue.closed && !queue.discarding {
            queue.lost = Some(ended());
        }
        queue.broken.get_or_insert_with(ended);
        queue.wake_reader();
    }
}
