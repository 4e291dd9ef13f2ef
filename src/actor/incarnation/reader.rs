//! Reads the stdout of one incarnation: sends requests to the actors that serve them, and messages to the conversation.
//!
//! Messages go by the [feeder](super::feeder), which parses them; the control frames of a read go first.
//!
//! The reader never waits for the consumer of messages. It waits only for actors that wait for nobody: for the
//! conversation, while more than `Limits::message_lane_bytes` are on their way to it; for the actors that serve
//! requests, while as many control frames as `Limits::calls_in_flight` are in their mailboxes; and for the next router
//! when one has ended.

use std::pin::pin;
use std::sync::Arc;

use memchr::memmem;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::admit::{Admitter, InboundRequest};
use super::evidence::ExitEvidence;
use super::feeder::MessageFeeder;
use crate::actor::base::task::step_back;
use crate::actor::context::Shared;
use crate::actor::messages::inbound::{InboundBody, McpMessage};
use crate::actor::messages::router::RouterMessage;
use crate::actor::outbound::Outbound;
use crate::wire::Message;
use crate::wire::envelope::{ControlReply, ControlRequest, Frame, Unreadable, UnservedRequest};
use crate::wire::fast::call::CallLine;
use crate::wire::fast::request_ids::RequestIds;
use crate::wire::line::{LineStep, Lines};
use crate::wire::rpc::Rpc;

/// A control frame that has to wait for the messages before it, or for the requests.
enum OrderedFrame {
    Reply(Box<ControlReply>),
    Withdrawn(String),
    Unserved(String, UnservedRequest),
}

pub(crate) struct StdoutReader {
    shared: Arc<Shared>,
    outbound: Outbound,
    feeder: MessageFeeder,
    evidence: Arc<ExitEvidence>,
    admitter: Admitter,
    /// Whether a turn is calling tools or streaming: more is read soon.
    busy: bool,
}

/// Bytes of a message that are searched for its type.
const TYPE_WITHIN: usize = 1 << 10;

impl StdoutReader {
    pub(crate) fn new(
        shared: Arc<Shared>,
        outbound: Outbound,
        feeder: MessageFeeder,
        evidence: Arc<ExitEvidence>,
    ) -> Self {
        let admitter = Admitter::new(shared.clone(), outbound.clone());
        Self { shared, outbound, feeder, evidence, admitter, busy: false }
    }

    /// Reads until the stream ends, and the conversation was told everything. `Err` is the error of the stream.
    pub(crate) async fn run(mut self, stdout: impl AsyncRead + Unpin) -> Result<(), String> {
        let end = self.read_lines(stdout).await;
        self.catch_up().await;
        end
    }

    async fn read_lines(&mut self, mut stdout: impl AsyncRead + Unpin) -> Result<(), String> {
        let mut lines = Lines::new(self.shared.options().limits.line_bytes);
        loop {
            match read(&mut stdout, &mut lines, self.busy).await {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => return Err(error.to_string()),
            }
            self.admitter.refresh();
            loop {
                let step = lines.next();
                if step == LineStep::More {
                    break;
                }
                // No future for most lines: it would be as large as the longest wait needs.
                if let Some(frame) = self.step(step, &lines) {
                    Box::pin(self.ordered(frame)).await;
                }
                if self.admitter.is_batch_full() {
                    self.admitter.enter().await;
                }
            }
            // Control frames first: the feeder parses the messages of this read beside them.
            let called = self.admitter.has_requests();
            self.admitter.enter().await;
            if called && self.feeder.has_lines() {
                step_back().await;
            }
            self.feeder.hand_over().await.map_err(|_| "whoever reads its messages has ended")?;
        }
        // A last line without a line end counts; a CLI that died in mid-line leaves half a line.
        let step = lines.rest();
        if let Some(frame) = self.step(step, &lines) {
            Box::pin(self.ordered(frame)).await;
        }
        self.admitter.enter().await;
        Ok(())
    }

    /// Collects a line, or gives back a frame that has to wait.
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

    /// Waits until the conversation was told all earlier messages.
    async fn catch_up(&mut self) {
        // Without the feeder's task the reader ends soon.
        self.feeder.catch_up().await.ok();
    }

    fn line(&mut self, line: &[u8]) -> Option<OrderedFrame> {
        if Message::is_plainly(line) {
            self.busy |= line.starts_with(b"{\"type\":\"stream_event\"");
            self.message(line);
            return None;
        }
        if let Some(request) = self.plain_call(line) {
            self.busy = true;
            self.admitter.push(request);
            return None;
        }
        match Frame::parse(line) {
            Ok(Frame::Request { request_id, body: ControlRequest::Unserved(body) }) => {
                return Some(OrderedFrame::Unserved(request_id, body));
            }
            Ok(Frame::Request { request_id, body }) => self.request(&request_id, body, false),
            Ok(Frame::Response(reply)) => return Some(OrderedFrame::Reply(Box::new(reply))),
            Ok(Frame::Cancel { request_id }) => return Some(OrderedFrame::Withdrawn(request_id)),
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

    /// Sends a control frame behind the requests before it, and where its order to messages matters, behind those.
    async fn ordered(&mut self, frame: OrderedFrame) {
        self.admitter.enter().await;
        match frame {
            OrderedFrame::Reply(mut reply) => {
                let pending = std::mem::take(&mut reply.pending);
                // The receiver of the answer may rely on earlier messages.
                self.catch_up().await;
                let permit = self.admitter.permit(1).await;
                self.admitter.send_to_router(RouterMessage::Reply(*reply, permit)).await;
                for (request_id, body) in pending {
                    self.request(&request_id, body, true);
                    if self.admitter.is_batch_full() {
                        self.admitter.enter().await;
                    }
                }
            }
            OrderedFrame::Withdrawn(request_id) => match self.admitter.open_request(&request_id) {
                Some(pending) => {
                    tracing::debug!(parent: &pending.span(), "withdrawn by the CLI");
                    pending.orphan();
                }
                None => self.shared.counting.unmatched_cancels.one(),
            },
            OrderedFrame::Unserved(request_id, body) => {
                // The request may be about an earlier message, and nobody waits for its answer.
                self.catch_up().await;
                self.request(&request_id, ControlRequest::Unserved(body), false);
            }
        }
    }

    /// A tool call to a server with tools of its own and a route, read in one pass. `None` leaves the line to the
    /// layers.
    fn plain_call(&self, line: &[u8]) -> Option<InboundRequest> {
        let call = CallLine::parse(line)?;
        let route = self.admitter.route(&call.server).filter(|route| route.own_tools)?;
        let message = McpMessage::Call(call.arguments.map(ToOwned::to_owned));
        let body = InboundBody::Mcp { server: route.server.clone(), message };
        Some(InboundRequest { ids: call.ids(), body, route: Some(route.clone()), replayed: false })
    }

    /// Collects a request that was sent now, or is `replayed` in the list of pending ones.
    fn request(&mut self, request_id: &str, body: ControlRequest, replayed: bool) {
        let (ids, body, route) = match body {
            ControlRequest::Mcp { server, rpc } => {
                let rpc_id = match &rpc {
                    Rpc::Request { id, .. } => Some(id.get()),
                    _ => None,
                };
                let ids = RequestIds::rpc(request_id, rpc_id);
                let route = self.admitter.route(&server).cloned();
                let server = route.as_ref().map_or_else(|| Arc::from(server), |route| route.server.clone());
                (ids, InboundBody::Mcp { server, message: McpMessage::Rpc(rpc) }, route)
            }
            ControlRequest::Callback(body) => {
                (RequestIds::control(request_id), InboundBody::Callback(body), None)
            }
            ControlRequest::Unserved(body) => {
                (RequestIds::control(request_id), InboundBody::Unserved(body), None)
            }
        };
        self.admitter.push(InboundRequest { ids, body, route, replayed });
    }
}

/// Reads what there is. An idle buffer is shrunk while the stream is pending, unless a turn is busy.
async fn read(
    stdout: &mut (impl AsyncRead + Unpin),
    lines: &mut Lines,
    busy: bool,
) -> std::io::Result<usize> {
    std::future::poll_fn(|cx| {
        let polled = pin!(stdout.read_buf(lines.room())).poll(cx);
        if polled.is_pending() && !busy {
            lines.rest_now();
        }
        polled
    })
    .await
}
