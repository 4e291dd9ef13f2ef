//! The pipe to the host: frames out, and which of our requests were answered.

use std::collections::HashMap;
use std::io::{self, BufWriter, Stdout, Write};
use std::process;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

pub(crate) struct Wire {
    out: BufWriter<Stdout>,
    pub(crate) uuids: Uuids,
    pub(crate) session_id: String,
    /// Every control request sent, by the number in its `request_id`.
    requests: Vec<Request>,
    /// The next JSON-RPC id of each server.
    next_rpc: HashMap<String, u64>,
    /// Number of turns that have begun.
    pub(crate) turns: u64,
    /// Requests of this turn, notices aside, that are not answered.
    pub(crate) open: u64,
    /// Answers for requests already answered, and for requests never sent.
    pub(crate) duplicates: u64,
    pub(crate) unknown: u64,
}

/// A control request of ours.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) what: What,
    /// The JSON-RPC id of a call.
    pub(crate) rpc: u64,
    /// The turn it was sent in.
    turn: u64,
    answered: bool,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum What {
    /// The MCP `initialize` of the server with this index.
    Handshake(usize),
    /// The call with this number.
    Call(u64),
    Hang,
    Ping,
    OfNoKnownSubtype,
    /// Something whose answer says nothing.
    Notice,
}

impl Wire {
    pub(crate) fn new(mut uuids: Uuids, session_id: Option<String>) -> Self {
        Self {
            out: BufWriter::with_capacity(1 << 18, io::stdout()),
            session_id: session_id.unwrap_or_else(|| uuids.next()),
            uuids,
            requests: Vec::new(),
            next_rpc: HashMap::new(),
            turns: 0,
            open: 0,
            duplicates: 0,
            unknown: 0,
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    pub(crate) fn send(&mut self, frame: &Value) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, frame)?;
        self.out.write_all(b"\n")
    }

    /// Sends a message of the conversation.
    pub(crate) fn message(&mut self, mut frame: Value) -> io::Result<()> {
        frame["uuid"] = json!(self.uuids.next());
        frame["session_id"] = json!(self.session_id);
        self.send(&frame)
    }

    pub(crate) fn answer(&mut self, request_id: Value, response: Value) -> io::Result<()> {
        let response = json!({"subtype": "success", "request_id": request_id, "response": response});
        self.send(&json!({"type": "control_response", "response": response}))
    }

    pub(crate) fn refuse(&mut self, request_id: Value, error: &str) -> io::Result<()> {
        let response = json!({"subtype": "error", "request_id": request_id, "error": error});
        self.send(&json!({"type": "control_response", "response": response}))
    }

    /// Sends a control request under a `request_id` of its own; returns the frame.
    pub(crate) fn request(&mut self, what: What, rpc: u64, request: Value) -> io::Result<Value> {
        self.open += u64::from(what.is_of_turn());
        let request_id = self.uuids.of(self.requests.len());
        self.requests.push(Request { what, rpc, turn: self.turns, answered: false });
        let frame = json!({"type": "control_request", "request_id": request_id, "request": request});
        self.send(&frame)?;
        Ok(frame)
    }

    /// Sends a JSON-RPC request; returns its id and the frame.
    pub(crate) fn ask(
        &mut self,
        what: What,
        server: &str,
        method: &str,
        params: Value,
    ) -> io::Result<(u64, Value)> {
        // The ids 0 and 1 belong to the handshake, which a manifest makes unnecessary.
        let next = self.next_rpc.entry(server.to_owned()).or_insert(2);
        let rpc = *next;
        *next += 1;
        let message = json!({"jsonrpc": "2.0", "id": rpc, "method": method, "params": params});
        let request = json!({"subtype": "mcp_message", "server_name": server, "message": message});
        Ok((rpc, self.request(what, rpc, request)?))
    }

    /// Begins the MCP session of a server, whose JSON-RPC ids count from 0.
    pub(crate) fn handshake(&mut self, index: usize, server: &str, version: &str) -> io::Result<()> {
        self.next_rpc.insert(server.to_owned(), 0);
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "claude-code", "version": version}});
        self.ask(What::Handshake(index), server, "initialize", params).map(drop)
    }

    pub(crate) fn notify(&mut self, server: &str, method: &str, params: Value) -> io::Result<()> {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        let request = json!({"subtype": "mcp_message", "server_name": server, "message": message});
        self.request(What::Notice, 0, request).map(drop)
    }

    /// Tells the server that nobody waits for this call any more.
    pub(crate) fn cancel(&mut self, server: &str, rpc: u64) -> io::Result<()> {
        self.notify(server, "notifications/cancelled", json!({"requestId": rpc, "reason": "cancelled"}))
    }

    /// The JSON-RPC ids of this turn's calls that are not answered.
    pub(crate) fn open_calls(&self) -> Vec<u64> {
        let is_open = |request: &&Request| {
            request.turn == self.turns
                && !request.answered
                && matches!(request.what, What::Call(_) | What::Hang)
        };
        self.requests.iter().filter(is_open).map(|request| request.rpc).collect()
    }

    /// Notes an answer. Returns the request it settles, unless that one's turn is over.
    pub(crate) fn settle(&mut self, response: &Value) -> Option<Request> {
        let number = response["request_id"].as_str().and_then(|id| self.uuids.number_of(id));
        let Some(request) = number.and_then(|number| self.requests.get_mut(number)) else {
            self.unknown += 1;
            return None;
        };
        if request.answered {
            self.duplicates += 1;
            return None;
        }
        request.answered = true;
        if request.what.is_of_turn() {
            if request.turn != self.turns {
                return None;
            }
            self.open -= 1;
        }
        Some(*request)
    }

    pub(crate) fn begin_turn(&mut self) {
        self.turns += 1;
        self.open = 0;
    }
}

impl What {
    fn is_of_turn(self) -> bool {
        !matches!(self, Self::Handshake(_) | Self::Notice)
    }
}

/// UUIDs of a fixed form: this process, then a number. Those of requests count up from 0, all others down.
pub(crate) struct Uuids {
    prefix: String,
    others: u64,
}

impl Uuids {
    pub(crate) fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
        let (high, middle, low) = (now >> 24 & 0xffff, now >> 12 & 0xfff, now & 0xfff);
        let prefix = format!("{:08x}-{high:04x}-4{middle:03x}-8{low:03x}-", process::id());
        Self { prefix, others: 1 << 48 }
    }

    pub(crate) fn next(&mut self) -> String {
        self.others -= 1;
        format!("{}{:012x}", self.prefix, self.others)
    }

    fn of(&self, number: usize) -> String {
        format!("{}{number:012x}", self.prefix)
    }

    fn number_of(&self, uuid: &str) -> Option<usize> {
        usize::from_str_radix(uuid.strip_prefix(&self.prefix)?, 16).ok()
    }
}
