//! The queue to one incarnation's stdin. It ends with its incarnation, so an answer or a request that was made for one
//! incarnation reaches no other.
//!
//! - here: [`Outbound`], the sending end
//! - [`writer`]: the task that writes the lines
//! - [`bytes`]: the limit on the bytes in the queue
//! - [`spare`]: the buffer of a large line, for the next one
//!
//! Notifications of tools wait for room (`Limits::notifications_queued`). Everything else is queued at once, up to
//! `Limits::lines_queued`: a CLI that asks without reading its answers reaches that limit, and is restarted.

pub(crate) mod bytes;
mod spare;
pub(crate) mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use self::bytes::OutboundBytes;
use self::spare::SpareLine;
use crate::actor::base::gate::Gate;
use crate::options::Limits;
use crate::wire::line::into_line;

/// The sending end. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Outbound {
    queue: mpsc::UnboundedSender<OutboundItem>,
    /// Permits for notifications.
    room: Arc<Semaphore>,
    state: Arc<OutboundState>,
}

struct OutboundState {
    epoch: u64,
    /// Lines in the queue.
    queued: AtomicUsize,
    limit: usize,
    bytes: OutboundBytes,
    spare: SpareLine,
    /// Cancelled when more than `limit` lines are queued.
    overflowed: CancellationToken,
    phase: AtomicU8,
    /// Progress of the last prompt.
    prompt: AtomicU8,
}

// Bits of the phase of an incarnation. Application requests wait for `READY`; from `ENDING` on nothing is queued. An
// incarnation that ends in its handshake never was ready.
const HANDSHAKE: u8 = 0;
const READY: u8 = 1;
const ENDING: u8 = 2;

// Progress of the last prompt: none, written, or begun by the CLI.
const NO_PROMPT: u8 = 0;
const PROMPT_WRITTEN: u8 = 1;
const PROMPT_BEGUN: u8 = 2;

/// The receiving end, for the writer.
pub(crate) struct OutboundReceiver {
    queue: mpsc::UnboundedReceiver<OutboundItem>,
    state: Arc<OutboundState>,
    /// Tells whether more answers are about to be queued.
    gate: Option<Arc<Gate>>,
}

impl OutboundReceiver {
    /// Makes the writer wait for handlers that are about to begin: for answers to the requests that `gate` counts.
    pub(crate) fn answers_to(self, gate: Arc<Gate>) -> Self {
        Self { gate: Some(gate), ..self }
    }
}

enum OutboundItem {
    Line {
        bytes: Vec<u8>,
        /// A notification's permit, held until the notification is written.
        room: Option<OwnedSemaphorePermit>,
    },
    /// Close stdin.
    Close,
}

/// The incarnation has ended; the line was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IncarnationEnded;

impl Outbound {
    pub(crate) fn new(epoch: u64, limits: &Limits) -> (Self, OutboundReceiver) {
        let (sender, queue) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(limits.notifications_queued.min(Semaphore::MAX_PERMITS)));
        let state = Arc::new(OutboundState {
            epoch,
            queued: AtomicUsize::new(0),
            limit: limits.lines_queued,
            bytes: OutboundBytes::new(limits.outbound_bytes),
            spare: SpareLine::default(),
            overflowed: CancellationToken::new(),
            phase: AtomicU8::new(HANDSHAKE),
            prompt: AtomicU8::new(NO_PROMPT),
        });
        (Self { queue: sender, room, state: state.clone() }, OutboundReceiver { queue, state, gate: None })
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.state.epoch
    }

    /// Number of lines in the queue.
    pub(crate) fn queued(&self) -> usize {
        self.state.queued.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes(&self) -> &OutboundBytes {
        &self.state.bytes
    }

    /// Resolves when more than `Limits::lines_queued` lines are queued.
    pub(crate) async fn overflowed(&self) {
        self.state.overflowed.cancelled().await;
    }

    /// Refuses lines from now on: the incarnation is ending, and would not read them.
    pub(crate) fn end(&self) {
        self.state.phase.fetch_or(ENDING, Ordering::AcqRel);
    }

    /// The handshake is done: the application may ask from now on.
    pub(crate) fn set_ready(&self) {
        self.state.phase.fetch_or(READY, Ordering::AcqRel);
    }

    /// Whether the application may ask this incarnation. A setting of the application that was sent earlier would be
    /// overwritten by the handshake, which sets earlier settings again.
    pub(crate) fn is_ready(&self) -> bool {
        self.state.phase.load(Ordering::Acquire) & READY != 0
    }

    /// Queues a prompt.
    pub(crate) fn send_prompt(&self, json: Vec<u8>) -> Result<(), IncarnationEnded> {
        // Before the push: the reader may note that the CLI has begun before this thread goes on.
        let before = self.state.prompt.swap(PROMPT_WRITTEN, Ordering::AcqRel);
        self.send(json).inspect_err(|IncarnationEnded| {
            // Taken back, unless a begin was noted meanwhile.
            self.state
                .prompt
                .compare_exchange(PROMPT_WRITTEN, before, Ordering::AcqRel, Ordering::Acquire)
                .ok();
        })
    }

    fn prompt_progress(&self) -> u8 {
        self.state.prompt.load(Ordering::Acquire)
    }

    /// Whether this incarnation was sent a prompt.
    pub(crate) fn was_prompted(&self) -> bool {
        self.prompt_progress() != NO_PROMPT
    }

    /// Whether the last prompt was written, and no message showed yet that the CLI works at it.
    pub(crate) fn awaits_begin(&self) -> bool {
        self.prompt_progress() == PROMPT_WRITTEN
    }

    /// Notes that the CLI works at the last prompt. The reader notes it before the conversation is told: a message may
    /// be lost with its incarnation, but a begun prompt must not be sent again.
    pub(crate) fn note_begin(&self) {
        self.state.prompt.store(PROMPT_BEGUN, Ordering::Release);
    }

    /// Whether the CLI works, or worked, at the last prompt.
    pub(crate) fn has_begun(&self) -> bool {
        self.prompt_progress() == PROMPT_BEGUN
    }

    /// An empty buffer for a line of about this many bytes.
    pub(crate) fn buffer(&self, room: usize) -> Vec<u8> {
        self.state.spare.take(room).unwrap_or_else(|| Vec::with_capacity(room))
    }

    /// Frees the spare buffer: no answer is about to be written.
    pub(crate) fn free_spare(&self) {
        self.state.spare.free();
    }

    /// Queues a JSON text as a line.
    pub(crate) fn send(&self, json: Vec<u8>) -> Result<(), IncarnationEnded> {
        self.push(into_line(json), None)
    }

    /// Queues a line that ends with its line end.
    pub(crate) fn send_line(&self, line: Vec<u8>) -> Result<(), IncarnationEnded> {
        self.push(line, None)
    }

    /// Queues a JSON text as a line once there is room: a permit for notifications, and bytes below the limit.
    pub(crate) async fn send_with_room(&self, json: Vec<u8>) -> Result<(), IncarnationEnded> {
        let room = async {
            let room = self.room.clone().acquire_owned().await;
            self.bytes().room().await;
            room.ok()
        };
        tokio::select! {
            room = room => self.push(into_line(json), room),
            () = self.queue.closed() => Err(IncarnationEnded),
        }
    }

    /// Closes stdin behind the queued lines.
    pub(crate) fn close(&self) {
        // A queue whose writer has ended is closed already.
        self.queue.send(OutboundItem::Close).ok();
    }

    fn push(&self, mut bytes: Vec<u8>, room: Option<OwnedSemaphorePermit>) -> Result<(), IncarnationEnded> {
        if self.state.phase.load(Ordering::Acquire) & ENDING != 0 {
            return Err(IncarnationEnded);
        }
        if self.state.queued.fetch_add(1, Ordering::Relaxed) >= self.state.limit {
            self.state.overflowed.cancel();
        }
        // The limit counts memory: a line that grew by doubling may hold twice its length.
        if bytes.len() >= writer::LARGE && bytes.capacity() - bytes.len() > bytes.len() / 8 {
            bytes.shrink_to_fit();
        }
        let held = bytes.capacity();
        self.state.bytes.add(held);
        self.queue.send(OutboundItem::Line { bytes, room }).map_err(|_| {
            self.state.queued.fetch_sub(1, Ordering::Relaxed);
            self.state.bytes.remove(held);
            IncarnationEnded
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(notifications_queued: usize, lines_queued: usize) -> Limits {
        Limits { notifications_queued, lines_queued, ..Limits::default() }
    }

    #[tokio::test]
    async fn a_queue_over_its_limit_is_noticed_and_an_ending_one_takes_nothing() {
        let (outbound, _receiver) = Outbound::new(1, &limits(1, 2));
        for _ in 0..2 {
            outbound.send(b"{}".to_vec()).unwrap();
        }
        let waiting = outbound.clone();
        assert!(futures_util::FutureExt::now_or_never(waiting.overflowed()).is_none());
        outbound.send(b"{}".to_vec()).unwrap();
        outbound.overflowed().await;
        outbound.end();
        assert_eq!(outbound.send(b"{}".to_vec()), Err(IncarnationEnded));
    }

    #[tokio::test]
    async fn a_refused_prompt_does_not_count_as_written() {
        let (outbound, _receiver) = Outbound::new(1, &limits(4, 1000));
        outbound.end();
        assert_eq!(outbound.send_prompt(b"{}".to_vec()), Err(IncarnationEnded));
        assert!(!outbound.was_prompted() && !outbound.awaits_begin());

        let (outbound, _receiver) = Outbound::new(1, &limits(4, 1000));
        outbound.send_prompt(b"{}".to_vec()).unwrap();
        outbound.note_begin();
        outbound.end();
        assert_eq!(outbound.send_prompt(b"{}".to_vec()), Err(IncarnationEnded));
        assert!(outbound.has_begun(), "the prompt before it has begun");
    }

    #[tokio::test(start_paused = true)]
    async fn notifications_wait_for_room_and_answers_do_not() {
        let (outbound, receiver) = Outbound::new(1, &limits(2, 1000));
        for _ in 0..2 {
            outbound.send_with_room(b"{}".to_vec()).await.unwrap();
        }
        let third = outbound.send_with_room(b"{}".to_vec());
        tokio::pin!(third);
        assert!(tokio::time::timeout(std::time::Duration::from_secs(9), &mut third).await.is_err());
        outbound.send(b"{}".to_vec()).unwrap();
        drop(receiver);
        assert_eq!(third.await, Err(IncarnationEnded));
    }
}
