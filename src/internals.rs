//! Access to internals for `benches/micro`, and for the fuzz targets and their seeds in `tests/fuzz_seeds`. Compiled only
//! with the feature `__internals`, and not part of the API.

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::ToolServer;
use crate::actor::base::gate::Gate;
use crate::actor::outbound::{Outbound, OutboundReceiver};
use crate::actor::request::answer::Answer;
use crate::actor::request::ledger::Ledger;
use crate::actor::request::pending::{PendingRequest, RequestKind, RequestOrigin};
use crate::options::Limits;
use crate::tool::run::dispatch::McpSession;
use crate::tool::run::service::{Service, ServiceStep};
use crate::tool::{CallToolResult, Content};
use crate::wire::envelope::{Frame, Unreadable};
use crate::wire::fast::answer;
use crate::wire::fast::call::{CallLine, layers};
use crate::wire::fast::request_ids::RequestIds;
use crate::wire::line;
use crate::wire::rpc::Rpc;

/// The line codec, as the reader of an incarnation uses it.
#[derive(Debug)]
pub struct LineCodec(line::Lines);

impl LineCodec {
    /// A codec with this bound on the length of a line.
    pub fn new(bound: usize) -> Self {
        Self(line::Lines::new(bound))
    }

    /// Reads a chunk in as many reads as needed. Calls `take` with each line that ends in the chunk, or with the length
    /// of a line over the bound.
    pub fn push(&mut self, mut chunk: &[u8], mut take: impl FnMut(Result<&[u8], usize>)) {
        while !chunk.is_empty() {
            let room = self.0.room();
            let (read, rest) = chunk.split_at(chunk.len().min(room.capacity() - room.len()));
            room.extend_from_slice(read);
            chunk = rest;
            loop {
                match self.0.next() {
                    line::LineStep::Line(range) => take(Ok(self.0.bytes(range))),
                    line::LineStep::TooLong(bytes) => take(Err(bytes)),
                    line::LineStep::More => break,
                }
            }
        }
    }

    /// Returns the unfinished line at the end of the stream.
    pub fn rest(&mut self) -> Option<Result<Vec<u8>, usize>> {
        match self.0.rest() {
            line::LineStep::Line(range) => Some(Ok(self.0.bytes(range).to_vec())),
            line::LineStep::TooLong(bytes) => Some(Err(bytes)),
            line::LineStep::More => None,
        }
    }

    /// Size of the buffer after all finished lines were taken.
    pub fn memory(&mut self) -> usize {
        self.0.room().capacity()
    }
}

/// Whether the fast path reads the line as a tool call.
pub fn is_call(line: &[u8]) -> bool {
    CallLine::parse(line).is_some()
}

/// Whether the layers read the line as a frame.
pub fn is_frame(line: &[u8]) -> bool {
    Frame::parse(line).is_ok()
}

/// The line that answers a tool call with a text.
pub fn answer(request_id: &str, rpc_id: &str, text: String) -> Option<Vec<u8>> {
    let result = CallToolResult::new([Content::text(text)]);
    answer::result_line(Vec::with_capacity, request_id, Some(rpc_id), &result).ok()
}

/// The requests of one incarnation: ledger, gate and outbound queue.
#[allow(missing_debug_implementations, reason = "no part of the API")]
pub struct Books {
    ledger: Arc<Ledger>,
    origin: Arc<RequestOrigin>,
    _end: OutboundReceiver,
}

impl Books {
    /// Without requests.
    pub fn open() -> Self {
        let (outbound, end) = Outbound::new(1, &Limits::default());
        let gate = Arc::new(Gate::new(None, usize::MAX));
        let ledger = Arc::new(Ledger::new(0));
        let settled = ledger.leaving();
        let origin = Arc::new(RequestOrigin { outbound, settled, counting: Arc::default(), gate });
        Self { ledger, origin, _end: end }
    }

    /// Enters the requests of one read and settles all of them. Returns their number.
    pub fn round(&self, request_ids: &[String]) -> usize {
        let answers = request_ids.iter().map(|request_id| {
            let ids = RequestIds::rpc(request_id, Some("1"));
            let (kind, span) = (RequestKind::Mcp, tracing::Span::none());
            let answer = Answer::new(PendingRequest::open(&self.origin, ids, kind, None, span));
            self.ledger.enter(answer.pending(), false);
            answer
        });
        let answers: Vec<_> = answers.collect();
        let settled = answers.len();
        answers.iter().for_each(|answer| answer.pending().orphan());
        settled
    }
}

/// The dispatch of an MCP session, which runs no handler.
#[allow(missing_debug_implementations, reason = "no part of the API")]
pub struct McpDispatch(McpSession);

impl McpDispatch {
    /// A new session.
    pub fn new(server: &ToolServer) -> Self {
        Self(McpSession::new(Arc::new(server.spec().clone())))
    }

    /// Whether the JSON-RPC message is a tool call.
    pub fn is_call(&mut self, message: &RawValue) -> bool {
        matches!(self.0.step(Rpc::parse(message)), ServiceStep::Call { .. })
    }

    /// The id, as JSON, with which the message must be answered; `None` if it needs no answer.
    pub fn answered_under(&mut self, message: &RawValue) -> Option<String> {
        match self.0.step(Rpc::parse(message)) {
            ServiceStep::Reply { id, .. } | ServiceStep::Call { id, .. } | ServiceStep::Run { id, .. } => {
                Some(id.get().to_owned())
            }
            ServiceStep::Cancelled(_) | ServiceStep::Unasked | ServiceStep::Ack => None,
        }
    }
}

/// Serialised JSON as a line.
pub fn into_line(json: Vec<u8>) -> Vec<u8> {
    line::into_line(json)
}

/// The line that answers a call, from the fast path and from the layers.
pub fn answers(request_id: &str, text: &str) -> [Vec<u8>; 2] {
    let result = CallToolResult::new([Content::text(text)]);
    let fast = answer::result_line(Vec::with_capacity, request_id, Some("7"), &result);
    let layers = answer::layers::result_line(request_id, Some("7"), &result);
    [fast, layers].map(Result::unwrap_or_default)
}

/// The kind of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// A request of the CLI, with its id.
    Request(String),
    /// An answer of the CLI, with the id of the request.
    Response(String),
    /// A withdrawal, with the id of the request.
    Cancel(String),
    /// A sign of life.
    KeepAlive,
    /// Part of the conversation.
    Message,
    /// White space only.
    Blank,
    /// Other text.
    Noise,
    /// Starts like a frame, but is not a frame.
    Malformed,
}

/// Returns the kind of a line.
pub fn frame(line: &[u8]) -> FrameKind {
    match Frame::parse(line) {
        Ok(Frame::Request { request_id, .. }) => FrameKind::Request(request_id),
        Ok(Frame::Response(reply)) => FrameKind::Response(reply.request_id),
        Ok(Frame::Cancel { request_id }) => FrameKind::Cancel(request_id),
        Ok(Frame::KeepAlive) => FrameKind::KeepAlive,
        Ok(Frame::Message) => FrameKind::Message,
        Err(Unreadable::Blank) => FrameKind::Blank,
        Err(Unreadable::Noise) => FrameKind::Noise,
        Err(Unreadable::Malformed(_)) => FrameKind::Malformed,
    }
}

/// The parts of a call: request id, server, JSON-RPC id, tool, arguments, tool use id, progress token.
pub type CallParts = (String, String, String, String, Option<String>, Option<String>, Option<String>);

/// A tool call, read by the fast path; `None` if the fast path does not take the line.
pub fn call(line: &[u8]) -> Option<CallParts> {
    layers::fast(line)
}

/// A tool call, read by the layers; `None` if the line is no call.
pub fn call_by_layers(line: &[u8]) -> Option<CallParts> {
    layers::slow(line)
}
