//! What the fuzz targets in `fuzz/` reach of the inside. Compiled with `--cfg fuzzing` only, and no part of the API.

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::tool::dispatch::{McpSession, Service, Step as McpStep};
use crate::wire::answer;
use crate::wire::call::layers;
use crate::wire::envelope::{self, Unreadable};
use crate::wire::line::{self, Step};
use crate::wire::rpc::Rpc;
use crate::{CallToolResult, Content, ToolServer};

/// A line, or the length of one that was over the bound.
pub type Line = Result<Vec<u8>, usize>;

/// The codec, as the reader of an incarnation uses it.
#[derive(Debug)]
pub struct Lines(line::Lines);

impl Lines {
    /// With this bound on the length of a line.
    pub fn new(bound: usize) -> Self {
        Self(line::Lines::new(bound))
    }

    /// Reads a chunk, in as many reads as it takes, and returns the lines that end in it.
    pub fn push(&mut self, mut chunk: &[u8]) -> Vec<Line> {
        let mut lines = Vec::new();
        while !chunk.is_empty() {
            let room = self.0.room();
            let (read, rest) = chunk.split_at(chunk.len().min(room.capacity() - room.len()));
            room.extend_from_slice(read);
            chunk = rest;
            loop {
                match self.0.next() {
                    Step::Line(range) => lines.push(Ok(self.0.bytes(range).to_vec())),
                    Step::TooLong(bytes) => lines.push(Err(bytes)),
                    Step::More => break,
                }
            }
        }
        lines
    }

    /// What is left at the end of the stream.
    pub fn rest(&mut self) -> Option<Line> {
        match self.0.rest() {
            Step::Line(range) => Some(Ok(self.0.bytes(range).to_vec())),
            Step::TooLong(bytes) => Some(Err(bytes)),
            Step::More => None,
        }
    }

    /// The bytes that it has room for, once what was handed out is gone.
    pub fn memory(&mut self) -> usize {
        self.0.room().capacity()
    }
}

/// Serialised JSON as a line.
pub fn into_line(json: Vec<u8>) -> Vec<u8> {
    line::into_line(json)
}

/// The answer to a call, written at once and as the layers write it.
pub fn answers(request_id: &str, text: &str) -> [Vec<u8>; 2] {
    let result = CallToolResult::new([Content::text(text)]);
    [answer::result_line, answer::layers::result_line]
        .map(|write| write(request_id, Some("7"), &result).unwrap_or_default())
}

/// What a line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A request of the CLI, by its id.
    Request(String),
    /// An answer of the CLI, by the id of what was asked.
    Response(String),
    /// A withdrawal, by the id of what was asked.
    Cancel(String),
    /// A sign of life.
    KeepAlive,
    /// Part of the conversation.
    Message,
    /// Nothing but white space.
    Blank,
    /// Some other text.
    Noise,
    /// It starts like a frame and is none.
    Malformed,
}

/// Tells a line apart.
pub fn frame(line: &[u8]) -> Frame {
    match envelope::Frame::parse(line) {
        Ok(envelope::Frame::Request { request_id, .. }) => Frame::Request(request_id),
        Ok(envelope::Frame::Response(reply)) => Frame::Response(reply.request_id),
        Ok(envelope::Frame::Cancel { request_id }) => Frame::Cancel(request_id),
        Ok(envelope::Frame::KeepAlive) => Frame::KeepAlive,
        Ok(envelope::Frame::Message) => Frame::Message,
        Err(Unreadable::Blank) => Frame::Blank,
        Err(Unreadable::Noise) => Frame::Noise,
        Err(Unreadable::Malformed(_)) => Frame::Malformed,
    }
}

/// What a call says: request id, server, JSON-RPC id, tool, arguments, id of the tool's use, progress token.
pub type Call = (String, String, String, String, Option<String>, Option<String>, Option<String>);

/// A tool call in one pass; `None` if the line is not plainly one.
pub fn call(line: &[u8]) -> Option<Call> {
    layers::fast(line)
}

/// The same layer by layer; `None` if the line is none.
pub fn call_by_layers(line: &[u8]) -> Option<Call> {
    layers::slow(line)
}

/// The MCP session of a server, which tells what a message asks for and runs no handler.
#[allow(missing_debug_implementations, reason = "no part of the API")]
pub struct Dispatch(McpSession);

impl Dispatch {
    /// A session that has seen nothing yet.
    pub fn new(server: &ToolServer) -> Self {
        Self(McpSession::new(Arc::new(server.spec().clone()), 16))
    }

    /// The id, as JSON, under which a message has to be answered; `None` if it must not be.
    pub fn answered_under(&mut self, message: &RawValue) -> Option<String> {
        match self.0.step(Rpc::parse(message)) {
            McpStep::Reply { id, .. } | McpStep::Call { id, .. } | McpStep::Run { id, .. } => {
                Some(id.get().to_owned())
            }
            McpStep::Cancelled(_) | McpStep::Answered { .. } | McpStep::Ack => None,
        }
    }
}
