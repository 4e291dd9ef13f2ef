//! The messages of one turn that nobody has read yet: in memory, then in a temporary file, in order.
//!
//! ```text
//!   conversation                                    file (a ring, `spool.rs`)                       Turn
//!   ── push ──►  tail, on its way to the file ──►  ░░░░░░░░░░░░░░░░░░░░░░░░░  ──►  head, in memory ── take ──►
//!          │     ≤ Limits::spilling_bytes           ≤ Limits::spilled_bytes        ≤ Limits::unread_bytes
//!          └─ straight into the head while it has room and nothing waits behind it ─►┘
//! ```
//!
//! Whatever is in the tail is younger than whatever is in the file, and that is younger than whatever is in the head: so
//! order is kept. `push` and `take` take a lock for a moment and never wait. Between the two works the *mover*, one task
//! for each turn that needs it, which does the file's work on blocking threads, one piece at a time:
//!
//! ```text
//!                 first surplus                      job
//!   (no mover) ─────────────────► Waiting ◄────────────────────► at work on a blocking thread
//!                                    │  ▲   work: tail to file, file to head, space given back
//!                                    │  └── woken by push, take, end
//!                                    └────► over: turn ended and nothing left to move, or the reader has gone
//! ```
//!
//! When a bound is reached, or the file cannot be written, the next `push` that finds no room is refused with the error
//! that the turn ends with. What was accepted before that is still read, in order. The task belongs to the [`Backlog`],
//! and so to the turn: dropping the turn ends the task and closes the file.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use super::spool::{Done, Job, PORTION, Spool, record_bytes};
use super::work::Task;
use crate::error::{Error, ErrorKind};
use crate::options::{Options, UnreadPartials};
use crate::report::Outcome;
use crate::report::counters::Counting;
use crate::wire::Message;

/// How much may wait, and where.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    /// In memory.
    unread: usize,
    /// In memory, on its way to the file.
    spilling: usize,
    /// In the file; 0 for none.
    spilled: u64,
    partials: UnreadPartials,
    dir: Option<PathBuf>,
}

impl Bounds {
    pub(crate) fn of(options: &Options) -> Self {
        Self {
            unread: options.limits.unread_bytes,
            spilling: options.limits.spilling_bytes,
            spilled: options.limits.spilled_bytes,
            partials: options.unread_partials,
            dir: options.spill_dir.clone(),
        }
    }
}

/// A message that waits.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) message: Message,
    /// Partial messages that were dropped between the one before it and this one.
    pub(crate) missed: u64,
}

impl Entry {
    fn bytes(&self) -> usize {
        bytes(&self.message)
    }

    fn is_partial(&self) -> bool {
        is_partial(&self.message)
    }
}

fn bytes(message: &Message) -> usize {
    message.bytes()
}

fn is_partial(message: &Message) -> bool {
    // Also one whose shape is not known.
    matches!(message, Message::StreamEvent(_)) || message.kind() == "stream_event"
}

/// What is read next.
#[derive(Debug)]
pub(crate) enum Taken {
    /// A message, and how many partial ones were dropped right before it.
    Message(Message, u64),
    /// The end; without an outcome if the conversation has ended without a word. With how many partial messages were
    /// dropped right before it.
    End(Option<Outcome>, u64),
}

/// The unread messages of one turn.
#[derive(Debug)]
pub(crate) struct Backlog {
    bounds: Bounds,
    counting: Arc<Counting>,
    queue: Mutex<Queue>,
    /// There may be something for the mover to do.
    work: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    head: Line,
    tail: Line,
    /// How many of the tail's first entries are being written at the moment.
    in_flight: usize,
    reading: bool,
    /// Positions in the file.
    read_at: u64,
    write_at: u64,
    /// Whether the file holds space that is not needed any more.
    stale: bool,
    /// Partial messages that were dropped after the youngest that waits.
    missed: u64,
    /// Partial messages that were dropped.
    missed_in_all: u64,
    /// What waits in the file is not wanted any more; to be forgotten when the mover's job is done.
    discarding: bool,
    /// Why the file takes no more.
    broken: Option<Arc<io::Error>>,
    /// Why what is in the file cannot be read.
    lost: Option<Arc<io::Error>>,
    outcome: Option<Outcome>,
    /// Nothing more will come.
    ended: bool,
    /// Nobody reads any more.
    closed: bool,
    reader: Option<Waker>,
    mover: Option<Task>,
}

/// Messages in memory.
#[derive(Debug, Default)]
struct Line {
    entries: VecDeque<Entry>,
    bytes: usize,
    partial_bytes: usize,
}

impl Line {
    fn push(&mut self, entry: Entry) {
        self.bytes += entry.bytes();
        if entry.is_partial() {
            self.partial_bytes += entry.bytes();
        }
        self.entries.push_back(entry);
    }

    fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.bytes -= entry.bytes();
        if entry.is_partial() {
            self.partial_bytes -= entry.bytes();
        }
        Some(entry)
    }

    /// All but the first.
    fn split_off(&mut self, at: usize) -> Line {
        let mut rest = Line::default();
        for entry in self.entries.split_off(at) {
            rest.push(entry);
        }
        self.bytes -= rest.bytes;
        self.partial_bytes -= rest.partial_bytes;
        rest
    }

    /// Drops partial messages, the oldest first, until no more bytes are left than this. Returns how many were dropped,
    /// and how many after the youngest that is left.
    fn drop_partials(&mut self, down_to: usize) -> (u64, u64) {
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

impl Queue {
    /// Bytes of the file that were not read.
    fn in_file(&self) -> u64 {
        self.write_at - self.read_at
    }

    /// Whether what comes now has to go behind something that is no more in the head.
    fn is_spilling(&self) -> bool {
        !self.tail.entries.is_empty() || self.in_file() > 0
    }

    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// Everything in the file was read, or is not wanted.
    fn file_is_empty(&mut self) {
        self.stale |= self.write_at > 0;
        (self.read_at, self.write_at) = (0, 0);
    }
}

/// What the mover does next.
enum Next {
    Work(Job),
    Wait,
    Over,
}

impl Backlog {
    pub(crate) fn new(bounds: Bounds, counting: Arc<Counting>) -> Self {
        Self { bounds, counting, queue: Mutex::default(), work: Notify::new() }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Puts a message behind all others; false if nobody reads any more.
    pub(crate) fn push(&self, message: Message) -> Result<bool, Error> {
        let (pushed, reader) = {
            let queue = &mut *self.queue();
            (self.put(queue, message), queue.reader.take())
        };
        // When the lock is free again, for whoever is woken wants it.
        reader.into_iter().for_each(Waker::wake);
        pushed
    }

    /// Puts messages behind all others, in order; how many of them nobody reads any more. With an error, how many came
    /// behind the one that was refused.
    pub(crate) fn push_all(&self, messages: Vec<Message>) -> Result<u64, (Error, u64)> {
        let (pushed, reader) = {
            let queue = &mut *self.queue();
            let mut messages = messages.into_iter();
            let mut not_taken = 0;
            let pushed = loop {
                let Some(message) = messages.next() else { break Ok(not_taken) };
                match self.put(queue, message) {
                    Ok(taken) => not_taken += u64::from(!taken),
                    Err(error) => break Err((error, messages.len() as u64)),
                }
            };
            (pushed, queue.reader.take())
        };
        reader.into_iter().for_each(Waker::wake);
        pushed
    }

    fn put(&self, queue: &mut Queue, message: Message) -> Result<bool, Error> {
        if queue.closed || queue.lost.is_some() {
            return Ok(false);
        }
        let size = bytes(&message);
        let fits = |queue: &Queue| !queue.is_spilling() && queue.head.bytes + size <= self.bounds.unread;
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
        let entry = Entry { message, missed };
        if into_head {
            queue.head.push(entry);
        } else {
            queue.tail.push(entry);
            self.work.notify_one();
        }
        Ok(true)
    }

    /// Counts partial messages that were dropped, and notes how many of them after the youngest that waits.
    fn dropped(&self, queue: &mut Queue, dropped: u64, missed: u64) {
        queue.missed += missed;
        queue.missed_in_all += dropped;
        self.counting.dropped_partials.add(dropped);
    }

    /// Makes room in the head. To make it for one more partial message pays only while it is many that can be dropped.
    fn drop_partials(&self, queue: &mut Queue, for_partial: bool) {
        let least = if for_partial { self.bounds.unread / 4 } else { 0 };
        if queue.is_spilling() || queue.head.partial_bytes <= least {
            return;
        }
        // A quarter at a time, so that not every message has to look through all.
        let (dropped, missed) = queue.head.drop_partials(self.bounds.unread / 4 * 3);
        self.dropped(queue, dropped, missed);
    }

    /// Whether a message can be put on its way to the file.
    fn has_room(&self, queue: &Queue, size: usize) -> Result<(), Error> {
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

    /// Nothing more will come.
    pub(crate) fn end(&self, outcome: Option<Outcome>) {
        let mut queue = self.queue();
        if !queue.ended {
            queue.ended = true;
            queue.outcome = outcome;
            queue.wake_reader();
            self.work.notify_one();
        }
    }

    /// Takes the oldest message. When it says `Pending`, nothing was taken.
    pub(crate) fn poll_take(&self, cx: &mut Context<'_>) -> Poll<Taken> {
        let mut queue = self.queue();
        let taken = self.take(&mut queue);
        if taken.is_none() {
            queue.reader = Some(cx.waker().clone());
        }
        taken.map_or(Poll::Pending, Poll::Ready)
    }

    fn take(&self, queue: &mut Queue) -> Option<Taken> {
        let entry = match queue.head.pop() {
            Some(entry) => Some(entry),
            None if queue.lost.is_some() => None,
            None if queue.in_file() > 0 || queue.in_flight > 0 => {
                self.work.notify_one();
                return None;
            }
            None => queue.tail.pop(),
        };
        if queue.head.entries.is_empty() && queue.in_file() > 0 {
            self.work.notify_one();
        }
        if let Some(Entry { message, missed }) = entry {
            return Some(Taken::Message(message, missed));
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
            return Some(Taken::End(
                Some(Outcome::Failed { error, result }),
                std::mem::take(&mut queue.missed),
            ));
        }
        queue.ended.then(|| Taken::End(queue.outcome.take(), std::mem::take(&mut queue.missed)))
    }

    /// Drops all that waits now. Returns how many partial messages were dropped so far.
    pub(crate) fn discard(&self) -> u64 {
        let mut queue = self.queue();
        // Dropped when the lock is free again.
        let head = std::mem::take(&mut queue.head);
        let in_flight = queue.in_flight;
        let tail = queue.tail.split_off(in_flight);
        queue.missed = 0;
        if in_flight > 0 || queue.reading {
            queue.discarding = true;
        } else {
            queue.file_is_empty();
        }
        self.work.notify_one();
        let missed = queue.missed_in_all;
        drop(queue);
        drop((head, tail));
        missed
    }

    /// Nobody reads any more.
    pub(crate) fn close(&self) {
        let mut queue = self.queue();
        queue.closed = true;
        let waiting = (std::mem::take(&mut queue.head), std::mem::take(&mut queue.tail), queue.mover.take());
        queue.in_flight = 0;
        queue.file_is_empty();
        drop(queue);
        drop(waiting);
    }

    /// Bytes of JSON that wait in memory, those on their way to the file among them.
    pub(crate) fn in_memory(&self) -> usize {
        let queue = self.queue();
        queue.head.bytes + queue.tail.bytes
    }

    /// Bytes that wait in the file.
    pub(crate) fn in_file(&self) -> u64 {
        self.queue().in_file()
    }

    /// Starts the mover if there is something for it to do and it does not run.
    pub(crate) fn start_mover(self: &Arc<Self>) {
        let mut queue = self.queue();
        if queue.mover.is_none() && !queue.closed && !queue.tail.entries.is_empty() {
            queue.mover = Some(Task::spawn(run_mover(self.clone())));
        }
    }

    fn next(&self) -> Next {
        let queue = &mut *self.queue();
        if queue.closed {
            return Next::Over;
        }
        if queue.in_file() == 0 {
            // The reader has caught up: no detour.
            while let Some(front) = queue.tail.entries.front()
                && queue.head.bytes + front.bytes() <= self.bounds.unread
                && let Some(entry) = queue.tail.pop()
            {
                queue.head.push(entry);
            }
            queue.wake_reader();
        }
        let mut job = Job { write_at: queue.write_at, bound: self.bounds.spilled, ..Job::default() };
        if queue.broken.is_none() {
            let mut size = 0;
            let fits = |entry: &&Entry| {
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
            return if done && queue.in_file() == 0 { Next::Over } else { Next::Wait };
        }
        queue.in_flight = job.write.len();
        queue.reading = job.read.is_some();
        Next::Work(job)
    }

    fn done(&self, done: Done) {
        let queue = &mut *self.queue();
        if queue.closed {
            return;
        }
        match done.written {
            Some(Ok(bytes)) => {
                queue.write_at += bytes;
                for _ in 0..queue.in_flight {
                    // Dropped here: it is in the file.
                    queue.tail.pop();
                }
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "messages that are not read cannot be written to a file");
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
        queue.in_flight = 0;
        queue.reading = false;
        if std::mem::take(&mut queue.discarding) {
            queue.read_at = queue.write_at;
            queue.lost = None;
        }
        if queue.in_file() == 0 {
            queue.file_is_empty();
        }
        queue.wake_reader();
    }
}

/// Moves messages until there is nothing more to move.
async fn run_mover(backlog: Arc<Backlog>) {
    let mover = Mover(backlog);
    let backlog = &mover.0;
    let mut spool = Spool::default();
    loop {
        match backlog.next() {
            Next::Over => return,
            Next::Wait => backlog.work.notified().await,
            Next::Work(job) => {
                let work = tokio::task::spawn_blocking(move || {
                    let done = spool.run(&job);
                    (spool, done)
                });
                let Ok((back, done)) = work.await else { return };
                spool = back;
                backlog.done(done);
            }
        }
    }
}

/// Sees to it that nobody waits for a mover that has ended.
struct Mover(Arc<Backlog>);

impl Drop for Mover {
    fn drop(&mut self) {
        let queue = &mut *self.0.queue();
        let ended = || Arc::new(io::Error::other("the runtime of the session has ended"));
        queue.in_flight = 0;
        if queue.in_file() > 0 && !queue.closed && !queue.discarding {
            queue.lost = Some(ended());
        }
        queue.broken.get_or_insert_with(ended);
        queue.wake_reader();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(kind: &str, number: usize, length: usize) -> Message {
        let line =
            format!(r#"{{"type":"{kind}","n":{number},"event":{{}},"text":"{}"}}"#, "x".repeat(length));
        Message::parse(&line).unwrap()
    }

    fn bounds(unread: usize, spilling: usize, spilled: u64) -> Bounds {
        Bounds { unread, spilling, spilled, partials: UnreadPartials::Keep, dir: None }
    }

    /// What is read next, if anything is there.
    fn poll(backlog: &Backlog) -> Option<Taken> {
        match backlog.poll_take(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(taken) => Some(taken),
            Poll::Pending => None,
        }
    }

    fn number(message: &Message) -> u64 {
        message.field("n").unwrap().as_u64().unwrap()
    }

    /// The mover, a step at a time: a job is taken, and later it is done.
    struct Steps {
        spool: Spool,
        job: Option<Job>,
    }

    impl Steps {
        fn step(&mut self, backlog: &Backlog, fails: bool) {
            match self.job.take() {
                Some(job) => {
                    let mut done = self.spool.run(&job);
                    if fails && done.written.is_some() {
                        done.written = Some(Err(io::Error::other("no space")));
                    }
                    backlog.done(done);
                }
                None => {
                    if let Next::Work(job) = backlog.next() {
                        self.job = Some(job);
                    }
                }
            }
        }
    }

    #[derive(Clone, Debug)]
    enum Op {
        Push(usize),
        Partial(usize),
        Take,
        Step,
        Fail,
        Discard,
    }

    fn ops(rare: u32) -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            60 => (0usize..300).prop_map(Op::Push),
            30 => (0usize..300).prop_map(Op::Partial),
            50 => Just(Op::Take),
            60 => Just(Op::Step),
            rare => Just(Op::Fail),
            rare => Just(Op::Discard),
        ];
        proptest::collection::vec(op, 0..300)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

        /// Whatever the order of pushing, taking and moving: what was accepted is read, in order, once, and every gap is
        /// told where it is.
        #[test]
        fn whatever_is_accepted_is_read_in_order(
            ops in ops(1), unread in 1usize..1500, spilling in 1usize..1500, spilled in 0u64..3000, drops in any::<bool>(),
        ) {
            let partials = if drops { UnreadPartials::DropFirst } else { UnreadPartials::Keep };
            let counting = Arc::new(Counting::default());
            let backlog = Backlog::new(Bounds { partials, ..bounds(unread, spilling, spilled) }, counting.clone());
            let mut steps = Steps { spool: Spool::default(), job: None };
            // Of each that was pushed and not refused: its number, and whether it is partial.
            let mut waiting: VecDeque<(u64, bool)> = VecDeque::new();
            let (mut told, mut discarded) = (0, 0);
            let mut check = |taken: Taken, waiting: &mut VecDeque<(u64, bool)>| match taken {
                Taken::Message(message, missed) => {
                    for _ in 0..missed {
                        let (_, partial) = waiting.pop_front().unwrap();
                        assert!(partial, "a message was lost that is not partial");
                    }
                    assert_eq!(waiting.pop_front().map(|(number, _)| number), Some(number(&message)));
                    told += missed;
                    false
                }
                Taken::End(outcome, missed) => {
                    assert!(outcome.is_none());
                    assert_eq!(waiting.len() as u64, missed);
                    told += missed;
                    true
                }
            };
            for (at, op) in ops.into_iter().enumerate() {
                match op {
                    Op::Push(length) | Op::Partial(length) => {
                        let partial = matches!(op, Op::Partial(_));
                        let kind = if partial { "stream_event" } else { "chatter" };
                        if let Ok(taken) = backlog.push(message(kind, at, length)) {
                            assert!(taken);
                            waiting.push_back((at as u64, partial));
                        }
                    }
                    Op::Take => if let Some(taken) = poll(&backlog) {
                        prop_assert!(!check(taken, &mut waiting));
                    },
                    Op::Step => steps.step(&backlog, false),
                    Op::Fail => steps.step(&backlog, true),
                    // Only the whole of it can be checked, so nothing is on its way.
                    Op::Discard => if steps.job.is_none() {
                        discarded = backlog.discard();
                        waiting.clear();
                    },
                }
                let largest = 400;
                prop_assert!(backlog.in_memory() <= unread.max(largest) + spilling.max(largest));
                prop_assert!(backlog.in_file() <= spilled);
                prop_assert!(drops || counting.dropped_partials.get() == 0);
            }
            backlog.end(None);
            let mut idle = 0;
            loop {
                match poll(&backlog) {
                    Some(taken) => if check(taken, &mut waiting) { break },
                    None => { steps.step(&backlog, false); idle += 1; prop_assert!(idle < 2000, "it hangs") }
                }
            }
            let counted = counting.dropped_partials.get();
            prop_assert!(discarded <= counted && told <= counted);
            prop_assert!(discarded > 0 || told == counted);
            while steps.job.is_some() { steps.step(&backlog, false); }
            prop_assert!(matches!(backlog.next(), Next::Over | Next::Work(_)), "the mover does not end");
        }
    }

    #[test]
    fn partial_messages_go_first_and_the_gaps_are_told() {
        let one = message("stream_event", 0, 0).raw().get().len();
        let counting = Arc::new(Counting::default());
        let bounds = Bounds { partials: UnreadPartials::DropFirst, ..bounds(8 * one, 1, 0) };
        let backlog = Backlog::new(bounds, counting.clone());
        for number in 0..9 {
            // 0 and 5 are whole messages; of the others the oldest go.
            let kind = if number % 5 == 0 { "system_event" } else { "stream_event" };
            assert!(backlog.push(message(kind, number, 0)).unwrap());
        }
        backlog.end(None);
        let mut seen = Vec::new();
        while let Some(Taken::Message(message, missed)) = poll(&backlog) {
            seen.push((number(&message), missed));
        }
        assert_eq!(seen, [(0, 0), (3, 2), (4, 0), (5, 0), (6, 0), (7, 0), (8, 0)], "a quarter is dropped");
        assert_eq!(counting.dropped_partials.get(), 2);
    }

    #[tokio::test]
    async fn the_end_of_the_mover_is_told_to_the_reader() {
        let backlog = Arc::new(Backlog::new(bounds(1, 10_000, 10_000), Arc::default()));
        let mut steps = Steps { spool: Spool::default(), job: None };
        backlog.push(message("chatter", 1, 0)).unwrap();
        steps.step(&backlog, false);
        steps.step(&backlog, false);
        assert!(backlog.in_file() > 0 && backlog.in_memory() == 0);
        drop(Mover(backlog.clone()));
        match poll(&backlog) {
            Some(Taken::End(Some(Outcome::Failed { error, result: None }), 0)) => {
                assert_eq!(error.kind(), ErrorKind::Io);
            }
            other => panic!("{other:?}"),
        }
        assert!(!backlog.push(message("chatter", 2, 0)).unwrap());
    }
}
