//! What `benches/micro` reaches of the inside. Compiled with the feature `__internals` only, and no part of the API.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::ToolServer;
use crate::actor::admission::Gate;
use crate::actor::lane::{Lane, LaneEnd};
use crate::actor::ledger::Ledger;
use crate::actor::owed::{Answer, Asker, NewOwed};
use crate::options::Limits;
use crate::tool::dispatch::{McpSession, Service, Step};
use crate::wire::call::Call;
use crate::wire::envelope::Frame;
use crate::wire::head::{Head, Parts};
use crate::wire::rpc::Rpc;
use crate::wire::{answer, line};

/// The codec, as the reader of an incarnation uses it.
#[derive(Debug)]
pub struct Lines(line::Lines);

impl Lines {
    /// With this bound on the length of a line.
    pub fn new(bound: usize) -> Self {
        Self(line::Lines::new(bound))
    }

    /// Reads a chunk, in as many reads as it takes. How many bytes are in the lines that end in it.
    pub fn push(&mut self, mut chunk: &[u8]) -> usize {
        let mut bytes = 0;
        while !chunk.is_empty() {
            let room = self.0.room();
            let (read, rest) = chunk.split_at(chunk.len().min(room.capacity() - room.len()));
            room.extend_from_slice(read);
            chunk = rest;
            loop {
                match self.0.next() {
                    line::Step::Line(range) => bytes += self.0.bytes(range).len(),
                    line::Step::TooLong(length) => bytes += length,
                    line::Step::More => break,
                }
            }
        }
        bytes
    }
}

/// Whether a line is plainly a tool call, read in one pass.
pub fn is_call(line: &[u8]) -> bool {
    Call::parse(line).is_some()
}

/// Whether a line is a frame, layer by layer.
pub fn is_frame(line: &[u8]) -> bool {
    Frame::parse(line).is_ok()
}

/// The answer to a tool call with one text, as a line.
pub fn answer(request_id: &str, rpc_id: &str, text: String) -> Option<Vec<u8>> {
    let result = crate::CallToolResult::new([crate::Content::text(text)]);
    answer::result_line(request_id, Some(rpc_id), &result).ok()
}

/// The books of one incarnation.
#[allow(missing_debug_implementations, reason = "no part of the API")]
pub struct Books {
    asker: Arc<Asker>,
    _end: LaneEnd,
}

impl Books {
    /// Books with nothing in them.
    pub fn open() -> Self {
        let (lane, end) = Lane::new(1, &Limits::default());
        let gate = Arc::new(Gate::new(None, usize::MAX));
        let asker = Asker { lane, ledger: Arc::<Ledger>::default(), counting: Arc::default(), gate };
        Self { asker: Arc::new(asker), _end: end }
    }

    /// Enters that many requests in one read, and settles them all.
    pub fn round(&self, request_ids: &[String]) -> usize {
        let mut answers = Vec::with_capacity(request_ids.len());
        if let Some(mut admissions) = self.asker.ledger.admissions(0) {
            for request_id in request_ids {
                let new = NewOwed {
                    head: Head::new(Parts { request_id, rpc_id: Some("1"), ..Parts::default() }),
                    kind: "mcp_message",
                    mcp: true,
                    received: Instant::now(),
                    server_gate: None,
                    span: tracing::Span::none(),
                };
                let answer = Answer::new(&self.asker, new);
                admissions.admit(answer.owed(), false);
                answers.push(answer);
            }
        }
        let settled = answers.len();
        answers.into_iter().for_each(Answer::without_answer);
        self.asker.ledger.sweep(0);
        settled
    }
}

/// The MCP session of a server, which tells what a message asks for and runs no handler.
#[allow(missing_debug_implementations, reason = "no part of the API")]
pub struct Dispatch(McpSession);

impl Dispatch {
    /// A session that has seen nothing yet.
    pub fn new(server: &ToolServer) -> Self {
        Self(McpSession::new(Arc::new(server.spec().clone()), 16))
    }

    /// Whether a JSON-RPC message is a call of a tool.
    pub fn is_call(&mut self, message: &RawValue) -> bool {
        matches!(self.0.step(Rpc::parse(message)), Step::Call { .. })
    }
}
