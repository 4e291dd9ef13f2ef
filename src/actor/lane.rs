//! The way to one incarnation's stdin: a queue, and the task that writes from it.
//!
//! A lane belongs to one incarnation and ends with it: what was made for one can reach no other. Lines are
//! written whole: the writer is a task that nobody cancels except by giving the incarnation up.
//!
//! What bounds the queue: notifications of tools wait for room (`Limits::notifications_queued`); everything else goes
//! in at once, up to `Limits::lines_queued`. A CLI that asks and asks while it does not read its answers reaches that,
//! and is given up.

use std::future::poll_fn;
use std::io::IoSlice;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::error::Elapsed;
use tokio_util::sync::CancellationToken;

use super::admission::Gate;
use super::work::step_back;
use crate::options::Limits;
use crate::wire::line::into_line;

/// The sending end. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    queue: mpsc::UnboundedSender<Item>,
    room: Arc<Semaphore>,
    state: Arc<LaneState>,
}

#[derive(Debug)]
struct LaneState {
    epoch: u64,
    /// Lines that wait to be written.
    queued: AtomicUsize,
    bound: usize,
    /// Cancelled when more lines wait than there may.
    overflowed: CancellationToken,
    /// Whether the incarnation is known to be ending, so that nothing more is worth writing.
    ending: AtomicBool,
    /// What became of the last prompt.
    prompt: AtomicU8,
    /// Whether the handshake is done, and all that was set at run time is in force again.
    ready: AtomicBool,
}

const NO_PROMPT: u8 = 0;
const WRITTEN: u8 = 1;
const BEGUN: u8 = 2;

/// The receiving end, for the writer.
#[derive(Debug)]
pub(crate) struct LaneEnd {
    queue: mpsc::UnboundedReceiver<Item>,
    state: Arc<LaneState>,
    /// Tells whether more answers may come at once.
    gate: Option<Arc<Gate>>,
}

impl LaneEnd {
    /// For the answers to the requests that are counted here.
    pub(crate) fn answers_to(self, gate: Arc<Gate>) -> Self {
        Self { gate: Some(gate), ..self }
    }
}

#[derive(Debug)]
enum Item {
    Line {
        bytes: Vec<u8>,
        _room: Option<OwnedSemaphorePermit>,
    },
    /// Nothing more will come: close stdin.
    Close,
}

/// The incarnation of the lane has ended; the line was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended;

impl Lane {
    pub(crate) fn new(epoch: u64, limits: &Limits) -> (Self, LaneEnd) {
        let (sender, queue) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(limits.notifications_queued.min(Semaphore::MAX_PERMITS)));
        let state = Arc::new(LaneState {
            epoch,
            queued: AtomicUsize::new(0),
            bound: limits.lines_queued,
            overflowed: CancellationToken::new(),
            ending: AtomicBool::new(false),
            prompt: AtomicU8::new(NO_PROMPT),
            ready: AtomicBool::new(false),
        });
        (Self { queue: sender, room, state: state.clone() }, LaneEnd { queue, state, gate: None })
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.state.epoch
    }

    /// Lines that wait to be written.
    pub(crate) fn queued(&self) -> usize {
        self.state.queued.load(Ordering::Relaxed)
    }

    /// Resolves when more lines wait than there may.
    pub(crate) async fn overflowed(&self) {
        self.state.overflowed.cancelled().await;
    }

    /// Resolves when its writer is no more.
    pub(crate) async fn ended(&self) {
        self.queue.closed().await;
    }

    /// From now on nothing is taken: the incarnation is ending, and nobody would read it.
    pub(crate) fn end(&self) {
        self.state.ending.store(true, Ordering::Release);
    }

    /// The handshake is done.
    pub(crate) fn set_ready(&self) {
        self.state.ready.store(true, Ordering::Release);
    }

    /// Whether the application may ask this incarnation. Before, what it sets would be overwritten by what is set again.
    pub(crate) fn is_ready(&self) -> bool {
        self.state.ready.load(Ordering::Acquire)
    }

    /// Queues a prompt.
    pub(crate) fn send_prompt(&self, json: Vec<u8>) -> Result<(), Ended> {
        self.state.prompt.store(WRITTEN, Ordering::Release);
        self.send(json)
    }

    /// Whether this incarnation was given a prompt.
    pub(crate) fn was_prompted(&self) -> bool {
        self.state.prompt.load(Ordering::Relaxed) != NO_PROMPT
    }

    /// Whether it is not known yet that the CLI works at the last prompt.
    pub(crate) fn awaits_begin(&self) -> bool {
        self.state.prompt.load(Ordering::Acquire) == WRITTEN
    }

    /// The CLI works at something since the last prompt. Noted when it is read, before the conversation is told: what was
    /// read may be lost with the incarnation, and that it has begun must not be.
    pub(crate) fn note_begin(&self) {
        self.state.prompt.store(BEGUN, Ordering::Release);
    }

    /// Whether the CLI works at something since the last prompt.
    pub(crate) fn has_begun(&self) -> bool {
        self.state.prompt.load(Ordering::Acquire) == BEGUN
    }

    /// Queues a JSON text as a line.
    pub(crate) fn send(&self, json: Vec<u8>) -> Result<(), Ended> {
        self.push(json, None)
    }

    /// Queues a whole line, with its end.
    pub(crate) fn send_line(&self, line: Vec<u8>) -> Result<(), Ended> {
        self.push_line(line, None)
    }

    /// Queues a JSON text as a line once there is room for it.
    pub(crate) async fn send_with_room(&self, json: Vec<u8>) -> Result<(), Ended> {
        tokio::select! {
            room = self.room.clone().acquire_owned() => self.push(json, room.ok()),
            () = self.queue.closed() => Err(Ended),
        }
    }

    /// Closes stdin after what is queued.
    pub(crate) fn close(&self) {
        // A lane that has ended is closed already.
        self.queue.send(Item::Close).ok();
    }

    fn push(&self, json: Vec<u8>, room: Option<OwnedSemaphorePermit>) -> Result<(), Ended> {
        self.push_line(into_line(json), room)
    }

    fn push_line(&self, bytes: Vec<u8>, room: Option<OwnedSemaphorePermit>) -> Result<(), Ended> {
        if self.state.ending.load(Ordering::Acquire) {
            return Err(Ended);
        }
        if self.state.queued.fetch_add(1, Ordering::Relaxed) >= self.state.bound {
            self.state.overflowed.cancel();
        }
        self.queue.send(Item::Line { bytes, _room: room }).map_err(|_| {
            self.state.queued.fetch_sub(1, Ordering::Relaxed);
            Ended
        })
    }
}

/// Why nothing more can be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WriteError {
    /// It is not read.
    Stalled(String),
    /// It is closed, or broken otherwise.
    Broken(String),
}

/// How many lines are written at once at most.
const BATCH: usize = 256;

/// With so many lines nothing more is waited for.
const FULL: usize = 16;

/// A line of this many bytes is written from where it is, without a copy.
const LARGE: usize = 8 << 10;

/// How much room for a batch is kept while more is to be expected.
const KEPT: usize = 64 << 10;

/// The same when nothing is in flight.
const KEPT_QUIET: usize = 512;

/// Writes lines until the lane is closed or writing fails; then closes `writer`.
///
/// While handlers are about to begin, it lets them go first, and writes what they have said in one go. When there are none, it
/// writes at once.
///
/// # Errors
/// What writing said, or that nothing could be written for `stall`.
pub(crate) async fn write_lines(
    mut lane: LaneEnd,
    mut writer: impl AsyncWrite + Unpin,
    stall: Duration,
) -> Result<(), WriteError> {
    let mut items = Vec::new();
    let mut bytes = Vec::new();
    let mut closing = false;
    while !closing && lane.queue.recv_many(&mut items, BATCH).await > 0 {
        if items.len() < FULL && lane.gate.as_ref().is_some_and(|gate| gate.is_beginning()) {
            step_back().await;
            while items.len() < BATCH
                && let Ok(item) = lane.queue.try_recv()
            {
                items.push(item);
            }
        }
        let small = |item: &Item| match item {
            Item::Line { bytes, .. } if bytes.len() < LARGE => bytes.len(),
            Item::Line { .. } | Item::Close => 0,
        };
        if items.len() > 1 {
            bytes.reserve(items.iter().map(small).sum());
        }
        // One by itself is written from where it is.
        let large = if items.len() > 1 { LARGE } else { 0 };
        let mut lines = 0;
        for item in &items {
            match item {
                // What was queued after the close has no one to read it.
                Item::Line { bytes: line, .. } if !closing => {
                    lines += 1;
                    if line.len() < large {
                        bytes.extend_from_slice(line);
                    } else {
                        write_all(&mut writer, &bytes, line, stall).await?;
                        bytes.clear();
                    }
                }
                Item::Line { .. } => lines += 1,
                Item::Close => closing = true,
            }
        }
        write_all(&mut writer, &bytes, &[], stall).await?;
        match in_time(stall, writer.flush()).await {
            Ok(flushed) => flushed.map_err(|error| WriteError::Broken(error.to_string()))?,
            Err(_) => return Err(stalled(stall)),
        }
        // Gives the room for notifications back, now that they are written.
        items.clear();
        lane.state.queued.fetch_sub(lines, Ordering::Relaxed);
        bytes.clear();
        let quiet = lane.queue.is_empty() && lane.gate.as_ref().is_none_or(|gate| gate.in_flight() == 0);
        bytes.shrink_to(if quiet { KEPT_QUIET } else { KEPT });
        if quiet {
            items.shrink_to(FULL);
        }
    }
    match tokio::time::timeout(stall, writer.shutdown()).await {
        Ok(closed) => closed.map_err(|error| WriteError::Broken(error.to_string())),
        Err(_) => Err(stalled(stall)),
    }
}

/// Writes the one and then the other.
async fn write_all(
    writer: &mut (impl AsyncWrite + Unpin),
    mut first: &[u8],
    mut second: &[u8],
    stall: Duration,
) -> Result<(), WriteError> {
    while !first.is_empty() || !second.is_empty() {
        let writing = async {
            match (first, second) {
                (first, []) => writer.write(first).await,
                ([], second) => writer.write(second).await,
                (first, second) => writer.write_vectored(&[IoSlice::new(first), IoSlice::new(second)]).await,
            }
        };
        // The limit is for progress, not for the whole: a slow reader is no dead one.
        match in_time(stall, writing).await {
            Ok(Ok(0)) => return Err(WriteError::Broken("it takes no more bytes".into())),
            Ok(Ok(written)) => {
                let of_first = written.min(first.len());
                first = &first[of_first..];
                second = &second[written - of_first..];
            }
            Ok(Err(error)) => return Err(WriteError::Broken(error.to_string())),
            Err(_) => return Err(stalled(stall)),
        }
    }
    Ok(())
}

/// A time limit that costs nothing when there is nothing to wait for, which is most of the time.
async fn in_time<T>(limit: Duration, future: impl Future<Output = T>) -> Result<T, Elapsed> {
    let mut future = pin!(future);
    let at_once = poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => Poll::Ready(None),
    });
    match at_once.await {
        Some(done) => Ok(done),
        None => tokio::time::timeout(limit, future).await,
    }
}

fn stalled(stall: Duration) -> WriteError {
    WriteError::Stalled(format!("nothing could be written for {stall:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    fn limits(notifications_queued: usize, lines_queued: usize) -> Limits {
        Limits { notifications_queued, lines_queued, ..Limits::default() }
    }

    #[tokio::test]
    async fn a_queue_over_its_bound_is_noticed_and_an_ending_one_takes_nothing() {
        let (lane, _end) = Lane::new(1, &limits(1, 2));
        for _ in 0..2 {
            lane.send(b"{}".to_vec()).unwrap();
        }
        let waiting = lane.clone();
        assert!(futures_util::FutureExt::now_or_never(waiting.overflowed()).is_none());
        lane.send(b"{}".to_vec()).unwrap();
        lane.overflowed().await;
        lane.end();
        assert_eq!(lane.send(b"{}".to_vec()), Err(Ended));
    }

    #[tokio::test(start_paused = true)]
    async fn lines_are_written_in_order_and_then_stdin_is_closed() {
        let (lane, end) = Lane::new(1, &limits(4, 1000));
        for n in 0..1000 {
            lane.send(n.to_string().into_bytes()).unwrap();
        }
        lane.close();
        assert_eq!(lane.queued(), 1000);
        let (writer, mut reader) = tokio::io::duplex(16);
        let mut text = String::new();
        let (written, read) =
            tokio::join!(write_lines(end, writer, Duration::from_secs(1)), reader.read_to_string(&mut text));
        assert_eq!((written, read.unwrap()), (Ok(()), text.len()));
        assert_eq!(text.lines().collect::<Vec<_>>(), (0..1000).map(|n| n.to_string()).collect::<Vec<_>>());
        assert_eq!(lane.queued(), 0);
        assert_eq!(lane.send(b"late".to_vec()), Err(Ended));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_stops_is_noticed_and_a_slow_one_is_not_given_up() {
        let (lane, end) = Lane::new(1, &limits(4, 1000));
        lane.send(vec![b'1'; 100]).unwrap();
        let (writer, mut reader) = tokio::io::duplex(10);
        let slow = async {
            let mut byte = [0; 1];
            for _ in 0..60 {
                tokio::time::sleep(Duration::from_millis(900)).await;
                reader.read_exact(&mut byte).await.unwrap();
            }
            std::future::pending::<()>().await;
        };
        let started = tokio::time::Instant::now();
        let result = tokio::select! {
            result = write_lines(end, writer, Duration::from_secs(1)) => result,
            () = slow => unreachable!(),
        };
        assert_eq!(result, Err(WriteError::Stalled("nothing could be written for 1s".into())));
        assert!(started.elapsed() >= Duration::from_secs(54));
    }

    #[tokio::test(start_paused = true)]
    async fn notifications_wait_for_room_and_answers_do_not() {
        let (lane, end) = Lane::new(1, &limits(2, 1000));
        for _ in 0..2 {
            lane.send_with_room(b"{}".to_vec()).await.unwrap();
        }
        let third = lane.send_with_room(b"{}".to_vec());
        tokio::pin!(third);
        assert!(tokio::time::timeout(Duration::from_secs(9), &mut third).await.is_err());
        lane.send(b"{}".to_vec()).unwrap();
        drop(end);
        assert_eq!(third.await, Err(Ended));
    }
}
