//! Reads the stdout of one incarnation.
//!
//! ```text
//!                ┌─ requests ──────────► RequestDispatcher ─► tool servers, callbacks    at once
//!   one read ────┼─ messages ──────────► MessageFeeder ─────► conversation               then
//!                └─ answers, and ──────────────────────────► router                     behind all earlier messages
//!                   unserved requests    RequestDispatcher
//! ```
//!
//! The reader never waits for the consumer of messages. It waits only for actors that never block: for the conversation,
//! while more than `Limits::message_lane_bytes` are on their way to it; and for the router, while it has
//! answers to take.

use std::pin::pin;
use std::sync::Arc;

use memchr::memmem;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::Semaphore;
use tokio::task::yield_now;

use super::dispatch::RequestDispatcher;
use super::evidence::ExitEvidence;
use super::feeder::MessageFeeder;
use crate::actor::base::task::step_back;
use crate::actor::context::Shared;
use crate::actor::messages::router::RouterMessage;
use crate::actor::outbound::Outbound;
use crate::tool::run::pace::Pace;
use crate::wire::Message;
use crate::wire::envelope::{ControlReply, ControlRequest, Frame, Unreadable, UnservedRequest};
use crate::wire::fast::call::CallLine;
use crate::wire::line::{LineStep, Lines};

/// A control frame that has to wait for the messages before it.
enum OrderedFrame {
    /// The receiver of the answer may rely on earlier messages.
    Reply(Box<ControlReply>),
    /// The request may be about an earlier message, and nobody waits for its answer.
    Unserved(String, UnservedRequest),
}

pub(crate) struct StdoutReader {
    shared: Arc<Shared>,
    outbound: Outbound,
    feeder: MessageFeeder,
    evidence: Arc<ExitEvidence>,
    dispatcher: RequestDispatcher,
    /// Permits for answers in the mailbox of the router.
    replies: Arc<Semaphore>,
    /// Number of requests in the current read.
    requests: usize,
    /// Whether a turn is calling tools or streaming: more is read soon.
    busy: bool,
}

/// Most answers in the mailbox of the router.
const REPLIES: usize = 16;

/// Lines in the queue to stdin at which the reader lets the writer go first.
const MANY: usize = 256;

/// Number of requests in one read after which the reader lets them go first.
const FLOOD: usize = 150;

/// Bytes of a message that are searched for its type.
const TYPE_WITHIN: usize = 1 << 10;

impl StdoutReader {
    pub(crate) fn new(
        shared: Arc<Shared>,
        outbound: Outbound,
        feeder: MessageFeeder,
        evidence: Arc<ExitEvidence>,
    ) -> Self {
        let dispatcher = RequestDispatcher::new(shared.clone(), outbound.clone());
        let replies = Arc::new(Semaphore::new(REPLIES));
        Self { shared, outbound, feeder, evidence, dispatcher, replies, requests: 0, busy: false }
    }

    /// Reads until the stream ends, and the conversation has received everything. `Err` is the error of the stream.
    pub(crate) async fn run(mut self, stdout: impl AsyncRead + Unpin) -> Result<(), String> {
        let end = self.read_lines(stdout).await;
        self.feeder.catch_up().await.ok();
        end
    }

    async fn read_lines(&mut self, mut stdout: impl AsyncRead + Unpin) -> Result<(), String> {
        let mut lines = Lines::new(self.shared.options().limits.line_bytes);
        loop {
            match self.read(&mut stdout, &mut lines).await {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => return Err(error.to_string()),
            }
            loop {
                let step = lines.next();
                if step == LineStep::More {
                    break;
                }
                // Boxed, so that the reader's own future stays small.
                if let Some(frame) = self.step(step, &lines) {
                    Box::pin(self.ordered(frame)).await;
                }
            }
            let requests = std::mem::take(&mut self.requests);
            if requests > 0 && !self.feeder.batches.is_empty() {
                // Requests go first: the feeder parses the messages of this read beside them.
                step_back().await;
            } else if requests >= FLOOD || (requests > 0 && self.outbound.queued() >= MANY) {
                // Handlers and the writer go first: otherwise the requests of a flood pile up before the first answer is
                // written. A handler that blocks this thread holds the reader up for at most `Pace::STUCK`.
                tokio::time::timeout(Pace::STUCK, yield_now()).await.ok();
            }
            self.feeder.hand_over().await.map_err(|_| "the message feeder has ended")?;
        }
        // A last line without a line end counts; a CLI that died in mid-line leaves half a line.
        let step = lines.rest();
        if let Some(frame) = self.step(step, &lines) {
            Box::pin(self.ordered(frame)).await;
        }
        Ok(())
    }

    /// Handles a line. Returns a frame that must wait for earlier messages.
    fn step(&mut self, step: LineStep, lines: &Lines) -> Option<OrderedFrame> {
        match step {
            LineStep::Line(range) => return self.line(lines.bytes(range)),
            LineStep::TooLong(bytes) => {
                self.shared.counting.overlong_lines.one();
                let limit = self.shared.options().limits.line_bytes;
                self.feeder.push_lost(format!("longer than `limits.line_bytes` ({limit})"), bytes);
            }
            LineStep::More => {}
        }
        None
    }

    fn line(&mut self, line: &[u8]) -> Option<OrderedFrame> {
        if Message::is_plainly(line) {
            self.busy |= line.starts_with(b"{\"type\":\"stream_event\"");
            self.message(line);
            return None;
        }
        if let Some(call) = CallLine::parse(line)
            && self.dispatcher.call(&call)
        {
            self.requests += 1;
            self.busy = true;
            return None;
        }
        match Frame::parse(line) {
            Ok(Frame::Request { request_id, body: ControlRequest::Unserved(body) }) => {
                return Some(OrderedFrame::Unserved(request_id, body));
            }
            Ok(Frame::Request { request_id, body }) => {
                self.requests += 1;
                self.dispatcher.request(&request_id, body, false);
            }
            Ok(Frame::Response(reply)) => return Some(OrderedFrame::Reply(Box::new(reply))),
            Ok(Frame::Cancel { request_id }) => self.dispatcher.withdraw(&request_id),
            Ok(Frame::Message) => self.message(line),
            Ok(Frame::KeepAlive) => {}
            Err(Unreadable::Blank | Unreadable::Noise) => {
                self.shared.counting.noise_lines.one();
                self.evidence.note_noise();
                tracing::debug!(parent: &self.shared.span, line = %String::from_utf8_lossy(&line[..line.len().min(200)]), "not a frame");
            }
            Err(Unreadable::Malformed(reason)) => {
                self.shared.counting.malformed_lines.one();
                self.evidence.note_noise();
                self.feeder.push_lost(reason, line.len());
            }
        }
        None
    }

    fn message(&mut self, line: &[u8]) {
        if self.outbound.awaits_begin() && Message::begins_turn(line) {
            self.outbound.note_begin();
        }
        // A false match costs one reallocation of the read buffer.
        if self.busy && memmem::find(&line[..line.len().min(TYPE_WITHIN)], b"\"result\"").is_some() {
            self.busy = false;
        }
        self.feeder.push(line);
    }

    /// Forwards a control frame after the conversation has received all earlier messages.
    async fn ordered(&mut self, frame: OrderedFrame) {
        self.feeder.catch_up().await.ok();
        match frame {
            OrderedFrame::Reply(mut reply) => {
                let pending = std::mem::take(&mut reply.pending);
                self.answered(*reply).await;
                for (request_id, body) in pending {
                    self.dispatcher.request(&request_id, body, true);
                }
            }
            OrderedFrame::Unserved(request_id, body) => {
                self.requests += 1;
                self.dispatcher.request(&request_id, ControlRequest::Unserved(body), false);
            }
        }
    }

    /// Notes what an answer sets, and sends it to the router. Waits for room in the router's mailbox.
    async fn answered(&self, reply: ControlReply) {
        let was_setting = self.shared.settings.answered(&reply);
        // The semaphore is never closed.
        let permit = self.replies.clone().acquire_owned().await.ok();
        let router = self.shared.router.borrow().clone();
        if let Some(router) = router {
            // A router that has ended has failed its requests.
            router.cast(RouterMessage::Reply { reply, was_setting, permit }).ok();
        }
    }

    /// Reads what there is. Idle buffers are freed while the stream is pending, unless a turn is busy.
    async fn read(&self, stdout: &mut (impl AsyncRead + Unpin), lines: &mut Lines) -> std::io::Result<usize> {
        std::future::poll_fn(|cx| {
            let polled = pin!(stdout.read_buf(lines.room())).poll(cx);
            if polled.is_pending() && !self.busy {
                lines.rest_now();
                self.outbound.free_spare();
            }
            polled
        })
        .await
    }
}
