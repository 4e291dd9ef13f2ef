//! Takes messages from the reader to the conversation.
//!
//! ```text
//!   reader ── push, push_lost ──► batch ── hand_over ──► FeederTask ── messages ──► conversation
//!                (one read)        ≤ Limits::message_lane_bytes, until the conversation has taken them
//! ```
//!
//! The reader only collects the lines of one read, and hands them over after the control frames of that read were sent.
//! A task beside the reader parses the lines, a few at a time while requests of the CLI are in flight: so a call does
//! not wait for messages before or after it. One task keeps the order of messages, of lost lines, and of the mirror's
//! entries. Whoever needs to know what was said earlier waits for a flush.

use std::ops::Range;
use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc, oneshot};

use super::evidence::ExitEvidence;
use crate::actor::base::task::{Task, step_back};
use crate::actor::context::Shared;
use crate::actor::messages::conversation::{CliEvent, ConversationMessage, LanePermit};
use crate::message::of_mirror_frame;
use crate::report::Event;
use crate::wire::Message;
use crate::wire::envelope::{Frame, Unreadable};

/// Lines of one read, in order.
#[derive(Default)]
pub(super) struct LineBatch {
    bytes: Vec<u8>,
    /// Bytes of all messages, parsed ones included.
    weight: usize,
    lines: Vec<FedLine>,
}

enum FedLine {
    /// A message at this range of the batch.
    Message(Range<usize>),
    /// A message that was too long to be copied, and is parsed already.
    Parsed(Message),
    /// A line of `bytes` bytes that is not a frame.
    Lost { reason: String, bytes: usize },
}

/// A message of more bytes is parsed by the reader: a copy of the line would be held in memory as well.
const LONG: usize = 1 << 20;

enum FeederItem {
    /// Boxed: an empty queue has room for 32 items.
    Batch(Box<(LineBatch, Option<LanePermit>)>),
    /// Send when all earlier items were told to the conversation.
    Flush(oneshot::Sender<()>),
}

/// The reader's end.
pub(crate) struct MessageFeeder {
    queue: mpsc::UnboundedSender<FeederItem>,
    lane: Arc<Semaphore>,
    /// Size of the lane, in bytes.
    most: usize,
    pub(super) batches: Vec<LineBatch>,
    /// Whether lines were handed over since the last `catch_up`.
    behind: bool,
    parser: MessageParser,
}

/// Most messages, and most bytes of them, that are parsed before other tasks may run: while requests are in flight, and
/// while none are.
const FEW: (usize, usize) = (8, 4 << 10);
const MANY: (usize, usize) = (256, 64 << 10);

impl MessageFeeder {
    /// Starts the feeder's task, which ends with the last of this feeder and its flushes, or when the [`Task`] is
    /// dropped.
    pub(crate) fn new(shared: &Arc<Shared>, epoch: u64, evidence: Arc<ExitEvidence>) -> (Self, Task) {
        let (sender, queue) = mpsc::unbounded_channel();
        let most = shared.options().limits.message_lane_bytes.clamp(1, MOST);
        let parser = MessageParser { shared: shared.clone(), evidence };
        let task = Task::spawn(FeederTask::new(parser.clone(), epoch).run(queue));
        let lane = Arc::new(Semaphore::new(most));
        (Self { queue: sender, lane, most, batches: Vec::new(), behind: false, parser }, task)
    }

    /// A function that has the task send when the conversation was told everything that was handed over. The sender is
    /// dropped if the task has ended.
    pub(crate) fn flush(&self) -> impl Fn(oneshot::Sender<()>) + Send + Sync + use<> {
        let queue = self.queue.clone();
        move |done| drop(queue.send(FeederItem::Flush(done)))
    }

    /// Collects a line that is a message, or looks like one.
    pub(super) fn push(&mut self, line: &[u8]) {
        let parsed = if line.len() > LONG {
            match self.parser.parse(line) {
                Ok(message) => Some(message),
                Err(reason) => return self.push_lost(reason, line.len()),
            }
        } else {
            None
        };
        // A message larger than the whole lane goes alone.
        let batch = match self.batches.last_mut() {
            Some(batch) if batch.weight + line.len() <= self.most => batch,
            _ => self.new_batch(),
        };
        batch.weight += line.len();
        batch.lines.push(match parsed {
            Some(message) => FedLine::Parsed(message),
            None => {
                let start = batch.bytes.len();
                batch.bytes.extend_from_slice(line);
                FedLine::Message(start..batch.bytes.len())
            }
        });
    }

    /// Collects that a line is lost, which may have been a message that somebody waits for.
    pub(super) fn push_lost(&mut self, reason: String, bytes: usize) {
        let batch = match self.batches.last_mut() {
            Some(batch) => batch,
            None => self.new_batch(),
        };
        batch.lines.push(FedLine::Lost { reason, bytes });
    }

    fn new_batch(&mut self) -> &mut LineBatch {
        self.batches.push(LineBatch::default());
        let last = self.batches.len() - 1;
        &mut self.batches[last]
    }

    /// Sends the collected lines to the task. Waits while more than `Limits::message_lane_bytes` are on their way; a
    /// larger message waits until the lane is empty.
    pub(super) async fn hand_over(&mut self) -> Result<(), ()> {
        for batch in self.batches.drain(..) {
            let bytes = u32::try_from(batch.weight.min(self.most)).unwrap_or(u32::MAX);
            let permit = self.lane.clone().acquire_many_owned(bytes).await.ok().map(Arc::new);
            self.queue.send(FeederItem::Batch(Box::new((batch, permit)))).map_err(|_| ())?;
            self.behind = true;
        }
        Ok(())
    }

    /// Hands over the collected lines, and waits until the conversation was told all of them.
    pub(super) async fn catch_up(&mut self) -> Result<(), ()> {
        self.hand_over().await?;
        if std::mem::take(&mut self.behind) {
            let (done, flushed) = oneshot::channel();
            self.queue.send(FeederItem::Flush(done)).map_err(|_| ())?;
            flushed.await.ok();
        }
        Ok(())
    }
}

/// Most permits that a semaphore has, and that `acquire_many` takes.
const MOST: usize =
    if Semaphore::MAX_PERMITS < u32::MAX as usize { Semaphore::MAX_PERMITS } else { u32::MAX as usize };

/// Parses lines as messages, and counts them.
#[derive(Clone)]
struct MessageParser {
    shared: Arc<Shared>,
    evidence: Arc<ExitEvidence>,
}

impl MessageParser {
    /// `Err` says why the line is not a message.
    fn parse(&self, line: &[u8]) -> Result<Message, String> {
        let message = match std::str::from_utf8(line) {
            Ok(text) => Message::parse(text),
            // The reader took the line for a message by its first bytes; it may be no frame at all.
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
        self.evidence.note_noise();
        match unreadable {
            Unreadable::Malformed(reason) => reason,
            Unreadable::Blank | Unreadable::Noise => "it is no JSON".to_owned(),
        }
    }
}

/// The task: parses lines, and tells the conversation.
struct FeederTask {
    parser: MessageParser,
    epoch: u64,
    /// Messages that were parsed and not told yet, and their bytes.
    messages: Vec<Message>,
    bytes: usize,
    /// Permit of the current batch.
    permit: Option<LanePermit>,
}

impl FeederTask {
    fn new(parser: MessageParser, epoch: u64) -> Self {
        Self { parser, epoch, messages: Vec::new(), bytes: 0, permit: None }
    }

    async fn run(mut self, mut queue: mpsc::UnboundedReceiver<FeederItem>) {
        while let Some(item) = queue.recv().await {
            match item {
                FeederItem::Batch(batch) => {
                    self.batch(batch.0, batch.1).await;
                    if !queue.is_empty() {
                        // The conversation waits for this thread if no other one takes it. Without a step back it would wait
                        // until the scheduler ends this task's time, more than a hundred reads later.
                        step_back().await;
                    }
                }
                // The receiver may have been dropped.
                FeederItem::Flush(done) => drop(done.send(())),
            }
        }
    }

    async fn batch(&mut self, batch: LineBatch, permit: Option<LanePermit>) {
        if self.is_called() {
            // The handlers of the same read go first.
            step_back().await;
        }
        self.permit = permit;
        let mut left = batch.lines.len();
        for line in batch.lines {
            match line {
                FedLine::Message(range) => {
                    self.bytes += range.len();
                    if self.messages.is_empty() {
                        self.messages.reserve_exact(left.min(self.at_once().0));
                    }
                    let line = &batch.bytes[range];
                    match self.parser.parse(line) {
                        Ok(message) => self.message(message),
                        Err(reason) => self.lost(reason, line.len()),
                    }
                }
                FedLine::Parsed(message) => {
                    self.bytes += message.bytes();
                    self.message(message);
                }
                FedLine::Lost { reason, bytes } => self.lost(reason, bytes),
            }
            left -= 1;
            let (messages, bytes) = self.at_once();
            if left > 0 && (self.messages.len() >= messages || self.bytes >= bytes) {
                self.tell();
                step_back().await;
            }
        }
        self.tell();
        // The conversation holds it until it has taken the messages.
        self.permit = None;
    }

    /// Whether requests of the CLI are in flight, which go first.
    fn is_called(&self) -> bool {
        self.parser.shared.gate.in_flight.count() > 0
    }

    fn at_once(&self) -> (usize, usize) {
        if self.is_called() { FEW } else { MANY }
    }

    fn tell(&mut self) {
        self.bytes = 0;
        let messages = std::mem::take(&mut self.messages);
        if messages.is_empty() {
            return;
        }
        let (epoch, permit) = (self.epoch, self.permit.clone());
        let told = ConversationMessage::Messages { epoch, messages, permit };
        self.parser.shared.tell_conversation(told);
    }

    /// Tells that a line is lost, behind the messages before it.
    fn lost(&mut self, reason: String, bytes: usize) {
        self.tell();
        let epoch = self.epoch;
        self.parser.shared.emit(Event::LineSkipped { epoch, reason: reason.clone(), bytes });
        let told = ConversationMessage::Cli(CliEvent::LineLost { epoch, reason });
        self.parser.shared.tell_conversation(told);
    }

    fn message(&mut self, message: Message) {
        if let Some(mirror) = self.parser.shared.mirror().cloned()
            && message.kind() == "transcript_mirror"
        {
            // For the store only. It gets the entries in order with the results that the conversation is told.
            self.tell();
            let said = of_mirror_frame(message.raw());
            if !said.is_empty() {
                self.parser.shared.tell_conversation(ConversationMessage::Cli(CliEvent::Spent(said)));
            }
            return mirror.push(message.raw());
        }
        self.parser.evidence.note(&message);
        self.messages.push(message);
    }
}
