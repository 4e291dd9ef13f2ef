//! Messages on their way from the reader of the pipe to the conversation.
//!
//! ```text
//!   reader ── line, lost ──► batch ── hand_over ──► the task of the intake ── messages ──► conversation
//!             (of one read)        ≤ Limits::message_lane_bytes, until the conversation has taken it
//! ```
//!
//! The reader only collects the lines of one read, and hands them over when the control frames of that read are on their
//! way. What the lines say is read by a task beside it, a few at a time while requests of the CLI are in flight: so a call
//! does not wait for messages, whether they came before it or after. One task keeps the order: of messages, of lines that
//! are lost, and of what the mirror is given. Who has to know what was said before something else waits for the task
//! ([`Flush`]).

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ractor::ActorRef;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::conversation::ConversationMessage;
use super::shared::Shared;
use super::work::{Task, step_back};
use crate::report::Event;
use crate::wire::Message;
use crate::wire::envelope::{Frame, Unreadable};

/// What was seen that explains an end.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Lines that were no frames.
    pub(crate) noise: AtomicU64,
    /// An error result with which the CLI may be about to exit on purpose.
    last_error: Mutex<Option<ErrorSeen>>,
    /// Whether there is one: most messages only have to take note that there is none.
    has_error: AtomicBool,
}

/// An error result.
#[derive(Clone, Debug)]
pub(crate) struct ErrorSeen {
    pub(crate) text: String,
    /// Whether it is about the start of the CLI itself: its sandbox, its settings.
    pub(crate) of_start: bool,
}

impl Seen {
    pub(crate) fn last_error(&self) -> Option<ErrorSeen> {
        self.error().clone()
    }

    fn error(&self) -> MutexGuard<'_, Option<ErrorSeen>> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, message: &Message) {
        let error = match message {
            Message::Result(result) if !result.is_success() => {
                let of_start = result.startup_failure_reason.is_some();
                result.error_text().map(|text| ErrorSeen { text, of_start })
            }
            // These may come between an error result and the exit that it announces.
            Message::System(system)
                if matches!(
                    &*system.subtype,
                    "session_state_changed" | "session_writes_lost" | "plugin_install"
                ) =>
            {
                return;
            }
            Message::CommandLifecycle(_) => return,
            _ => None,
        };
        // Only the task of the intake writes here.
        if error.is_some() || self.has_error.load(Ordering::Relaxed) {
            self.has_error.store(error.is_some(), Ordering::Relaxed);
            *self.error() = error;
        }
    }
}

/// Messages on their way to the conversation, in bytes.
#[derive(Default)]
pub(crate) struct Weight(Option<OwnedSemaphorePermit>);

impl Weight {
    /// The weight of so many bytes of it, or what is left.
    fn split(&mut self, bytes: usize) -> Self {
        let part = self.0.as_mut().and_then(|permit| permit.split(bytes));
        Self(part.or_else(|| self.0.take()))
    }
}

/// Lines of one read, in order.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Of all messages, those that were read at once among them.
    weight: usize,
    lines: Vec<Line>,
}

enum Line {
    /// It stands at this range of the batch.
    Message(Range<usize>),
    /// It was too long to be copied, and is read already.
    Read(Message),
    /// It is no frame, for this reason, and was so long.
    Lost { reason: String, bytes: usize },
}

/// A message longer than this is read where it stands: a copy of it would be held as well.
const LONG: usize = 1 << 20;

enum Item {
    /// Boxed: the queue holds room for 32 of these while it is empty.
    Batch(Box<(Batch, Weight)>),
    /// Say when all before it was told.
    Flush(oneshot::Sender<()>),
}

/// The end of the intake: its task is no more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended;

/// The reader's end.
pub(crate) struct Intake {
    queue: mpsc::UnboundedSender<Item>,
    on_the_way: Arc<Semaphore>,
    /// The most that is on its way at once, in bytes.
    most: usize,
    batches: Vec<Batch>,
    /// Whether something was handed over since the task was last waited for.
    behind: bool,
    lines: Lines,
}

/// Whoever waits for what was handed over.
#[derive(Clone, Debug)]
pub(crate) struct Flush(mpsc::UnboundedSender<Item>);

/// How many messages are read before others may run, and how many bytes of them: while requests are in flight, and while
/// none are.
const FEW: (usize, usize) = (8, 4 << 10);
const MANY: (usize, usize) = (256, 64 << 10);

impl Intake {
    /// With the task that reads what is handed over; it ends with the last of both, or when it is dropped.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        epoch: u64,
        conversation: ActorRef<ConversationMessage>,
        seen: Arc<Seen>,
    ) -> (Self, Task) {
        let (sender, queue) = mpsc::unbounded_channel();
        let most = shared.options().limits.message_lane_bytes.clamp(1, MOST);
        let lines = Lines { shared: shared.clone(), seen };
        let task = Task::spawn(Told::new(lines.clone(), epoch, conversation).run(queue));
        (
            Self {
                queue: sender,
                on_the_way: Arc::new(Semaphore::new(most)),
                most,
                batches: Vec::new(),
                behind: false,
                lines,
            },
            task,
        )
    }

    pub(crate) fn flush(&self) -> Flush {
        Flush(self.queue.clone())
    }

    /// Collects a line that is a message, or a line that looks like one.
    pub(crate) fn line(&mut self, line: &[u8]) {
        let read = if line.len() > LONG {
            match self.lines.read(line) {
                Ok(message) => Some(message),
                Err(reason) => return self.lost(reason, line.len()),
            }
        } else {
            None
        };
        // A message larger than the whole lane goes alone.
        let batch = match self.batches.last_mut() {
            Some(batch) if batch.weight + line.len() <= self.most => batch,
            _ => self.begin(),
        };
        batch.weight += line.len();
        batch.lines.push(match read {
            Some(message) => Line::Read(message),
            None => {
                let start = batch.bytes.len();
                batch.bytes.extend_from_slice(line);
                Line::Message(start..batch.bytes.len())
            }
        });
    }

    /// Notes in its place that a line is lost. It may have been a message that somebody waits for.
    pub(crate) fn lost(&mut self, reason: String, bytes: usize) {
        let batch = match self.batches.last_mut() {
            Some(batch) => batch,
            None => self.begin(),
        };
        batch.lines.push(Line::Lost { reason, bytes });
    }

    fn begin(&mut self) -> &mut Batch {
        self.batches.push(Batch::default());
        let last = self.batches.len() - 1;
        &mut self.batches[last]
    }

    /// Whether something was collected.
    pub(crate) fn has_lines(&self) -> bool {
        !self.batches.is_empty()
    }

    /// Sends what was collected on its way. Waits while more than `Limits::message_lane_bytes` are; a message larger than
    /// that waits until there is nothing else.
    pub(crate) async fn hand_over(&mut self) -> Result<(), Ended> {
        for batch in self.batches.drain(..) {
            let bytes = u32::try_from(batch.weight.min(self.most)).unwrap_or(u32::MAX);
            let weight = Weight(self.on_the_way.clone().acquire_many_owned(bytes).await.ok());
            self.queue.send(Item::Batch(Box::new((batch, weight)))).map_err(|_| Ended)?;
            self.behind = true;
        }
        Ok(())
    }

    /// Hands over what was collected, and waits until the conversation was told all of it.
    pub(crate) async fn catch_up(&mut self) -> Result<(), Ended> {
        self.hand_over().await?;
        if std::mem::take(&mut self.behind) {
            self.flush().told().await;
        }
        Ok(())
    }
}

/// What a semaphore can count, and what can be asked of it at once.
const MOST: usize =
    if Semaphore::MAX_PERMITS < u32::MAX as usize { Semaphore::MAX_PERMITS } else { u32::MAX as usize };

impl Flush {
    /// Resolves when all that was handed over has been told to the conversation.
    pub(crate) async fn told(&self) {
        let (done, told) = oneshot::channel();
        // One that has ended tells nothing more.
        if self.0.send(Item::Flush(done)).is_ok() {
            told.await.ok();
        }
    }
}

/// Reads lines as messages.
#[derive(Clone)]
struct Lines {
    shared: Arc<Shared>,
    seen: Arc<Seen>,
}

impl Lines {
    /// Reads one, and counts what it is. `Err` says why it is no message.
    fn read(&self, line: &[u8]) -> Result<Message, String> {
        let message = match std::str::from_utf8(line) {
            Ok(text) => Message::parse(text),
            // What was told from a control frame by its looks may be no frame at all.
            Err(_) => match Frame::parse(line) {
                Ok(_) => Message::parse(&String::from_utf8_lossy(line)),
                Err(unreadable) => return Err(self.unreadable(unreadable)),
            },
        };
        match message {
            Ok(message) => {
                self.shared.counting.messages.one();
                Ok(message)
            }
            Err(error) => match Frame::parse(line) {
                Err(unreadable) => Err(self.unreadable(unreadable)),
                Ok(_) => {
                    self.shared.counting.malformed_lines.one();
                    Err(error.to_string())
                }
            },
        }
    }

    fn unreadable(&self, unreadable: Unreadable) -> String {
        self.shared.counting.malformed_lines.one();
        self.seen.noise.fetch_add(1, Ordering::Relaxed);
        match unreadable {
            Unreadable::Malformed(reason) => reason,
            // What looks like a message is neither.
            Unreadable::Blank | Unreadable::Noise => "it is no JSON".to_owned(),
        }
    }
}

/// The task: reads lines, and tells the conversation.
struct Told {
    lines: Lines,
    epoch: u64,
    conversation: ActorRef<ConversationMessage>,
    /// What was read and not told yet, and how many bytes it is.
    messages: Vec<Message>,
    bytes: usize,
    /// Of the batch at work.
    weight: Weight,
}

impl Told {
    fn new(lines: Lines, epoch: u64, conversation: ActorRef<ConversationMessage>) -> Self {
        Self { lines, epoch, conversation, messages: Vec::new(), bytes: 0, weight: Weight::default() }
    }

    async fn run(mut self, mut queue: mpsc::UnboundedReceiver<Item>) {
        while let Some(item) = queue.recv().await {
            match item {
                Item::Batch(batch) => self.batch(batch.0, batch.1).await,
                // Nobody waits any more, or is told.
                Item::Flush(done) => drop(done.send(())),
            }
        }
    }

    async fn batch(&mut self, batch: Batch, weight: Weight) {
        if self.is_called() {
            // The control frames of the same read go first.
            step_back().await;
        }
        self.weight = weight;
        let mut left = batch.lines.len();
        for line in batch.lines {
            match line {
                Line::Message(range) => {
                    self.bytes += range.len();
                    if self.messages.is_empty() {
                        self.messages.reserve_exact(left.min(self.at_once().0));
                    }
                    let line = &batch.bytes[range];
                    match self.lines.read(line) {
                        Ok(message) => self.message(message),
                        Err(reason) => self.lost(reason, line.len()),
                    }
                }
                Line::Read(message) => {
                    self.bytes += message.bytes();
                    self.message(message);
                }
                Line::Lost { reason, bytes } => self.lost(reason, bytes),
            }
            left -= 1;
            let (messages, bytes) = self.at_once();
            if left > 0 && (self.messages.len() >= messages || self.bytes >= bytes) {
                self.tell();
                step_back().await;
            }
        }
        self.tell();
        // Of lines that were no messages, nothing is on its way any more.
        self.weight = Weight::default();
    }

    /// Whether requests of the CLI are in flight, which want to be answered.
    fn is_called(&self) -> bool {
        self.lines.shared.gate.in_flight() > 0
    }

    fn at_once(&self) -> (usize, usize) {
        if self.is_called() { FEW } else { MANY }
    }

    fn tell(&mut self) {
        let weight = self.weight.split(std::mem::take(&mut self.bytes));
        let messages = std::mem::take(&mut self.messages);
        if messages.is_empty() {
            return;
        }
        // A conversation that has ended takes the session with it.
        self.conversation.cast(ConversationMessage::Messages { epoch: self.epoch, messages, weight }).ok();
    }

    /// A line is lost. What came before it is told first.
    fn lost(&mut self, reason: String, bytes: usize) {
        self.tell();
        let epoch = self.epoch;
        self.lines.shared.emit(Event::LineSkipped { epoch, reason: reason.clone(), bytes });
        // A conversation that has ended takes the session with it.
        self.conversation.cast(ConversationMessage::LineLost { epoch, reason }).ok();
    }

    fn message(&mut self, message: Message) {
        if let Some(mirror) = self.lines.shared.mirror().cloned()
            && message.kind() == "transcript_mirror"
        {
            // Not for the application; and what it says comes before the result that follows, and after what came before.
            self.tell();
            return mirror.push(message.raw());
        }
        self.lines.seen.note(&message);
        self.messages.push(message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_weight_is_given_back_alone_and_the_last_part_takes_the_rest() {
        let lane = Arc::new(Semaphore::new(100));
        let mut whole = Weight(lane.clone().try_acquire_many_owned(90).ok());
        let part = whole.split(40);
        assert_eq!(lane.available_permits(), 10);
        drop(part);
        assert_eq!(lane.available_permits(), 50);
        // A message larger than the lane weighs less than its bytes.
        drop(whole.split(1000));
        assert_eq!(lane.available_permits(), 100);
        assert!(whole.split(1).0.is_none());
    }

    #[test]
    fn an_error_result_is_noted_until_something_else_is_said() {
        let seen = Seen::default();
        let note = |line: &str| {
            seen.note(&Message::parse(line).unwrap());
            seen.last_error().map(|error| error.text)
        };
        let error = r#"{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["no"]}"#;
        assert_eq!(note(r#"{"type":"assistant","message":{"content":[]}}"#), None);
        assert_eq!(note(error).as_deref(), Some("no"));
        let state = r#"{"type":"system","subtype":"session_state_changed","state":"idle"}"#;
        assert_eq!(note(state).as_deref(), Some("no"), "it comes before the exit that was announced");
        assert_eq!(note(r#"{"type":"stream_event","event":{"type":"ping"}}"#), None);
        assert_eq!(note(error).as_deref(), Some("no"));
        assert_eq!(note(r#"{"type":"result","subtype":"success","is_error":false,"result":""}"#), None);
    }
}
