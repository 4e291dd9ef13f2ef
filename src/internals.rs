//! Access to internals for the fuzz targets and their seeds in `tests/fuzz_seeds`. Compiled only with the feature
//! `__internals`, and not part of the API.

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::ToolServer;
use crate::tool::run::dispatch::McpSession;
use crate::tool::run::service::{Service, ServiceStep};
use crate::tool::{CallToolResult, Content};
use crate::wire::envelope::{Frame, Unreadable};
use crate::wire::fast::answer;
use crate::wire::fast::call::layers;
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

/// The dispatch of an MCP session, which runs no handler.
#[allow(missing_debug_implementations, reason = "no part of the API")]
pub struct McpDispatch(McpSession);

impl McpDispatch {
    /// A new session.
    pub fn new(server: &ToolServer) -> Self {
        Self(McpSession::new(Arc::new(server.spec().clone())))
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

/// The kind of a line, and the id of its request if it has one.
pub fn frame(line: &[u8]) -> (&'static str, Option<String>) {
    match Frame::parse(line) {
        Ok(Frame::Request { request_id, .. }) => ("request", Some(request_id)),
        Ok(Frame::Response(reply)) => ("response", Some(reply.request_id)),
        Ok(Frame::Cancel { request_id }) => ("cancel", Some(request_id)),
        Ok(Frame::KeepAlive) => ("keep-alive", None),
        Ok(Frame::Message) => ("message", None),
        Err(Unreadable::Blank) => ("blank", None),
        Err(Unreadable::Noise) => ("noise", None),
        Err(Unreadable::Malformed(_)) => ("malformed", None),
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
