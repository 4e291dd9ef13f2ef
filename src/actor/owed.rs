//! One request of the CLI, from its arrival to its answer.
//!
//! ```text
//!   Received ── a handler's task starts ──► Dispatched
//!      │                                        │
//!      └────────────────┬───────────────────────┘
//!                       │ settle: the first wins, whoever it is; later ones are counted as late and write nothing
//!      ┌────────────────┼──────────────┬───────────────────┐
//!      ▼                ▼              ▼                   ▼
//!   Answered         Cancelled      Refused             Orphaned
//!   by the one who   with an error  with an error:      not at all: withdrawn, a duplicate,
//!   was asked        or in time     nobody can or may   or its incarnation has ended
//! ```
//!
//! The duty to answer is an [`Answer`]: made with the request, consumed by the first outcome, and an error to the
//! CLI when it is dropped. So a request that is lost (in the mailbox of an actor that died, in a task that was
//! aborted) is answered all the same. An answer goes to the lane of the request's own incarnation and can go
//! nowhere else.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use serde::Serialize;
use tokio::time::Instant;

use super::admission::Gate;
use super::lane::{Ended, Lane};
use super::ledger::Ledger;
use crate::report::counters::Counting;
use crate::tool::cancel::Cancel;
use crate::wire::CallToolResult;
use crate::wire::answer;
use crate::wire::envelope::{self, McpResponse};
use crate::wire::head::Head;
use crate::wire::rpc::{Response, RpcError};

/// How a request was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Settled {
    Answered = 2,
    Cancelled = 3,
    Refused = 4,
    Orphaned = 5,
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It has come; no handler works at it yet.
    Received,
    /// A handler works at it.
    Dispatched,
    /// It is over.
    Settled(Settled),
}

/// The life of a request: the machine above, without IO, as one atomic number.
#[derive(Debug, Default)]
pub(crate) struct Life(AtomicU8);

impl Life {
    const RECEIVED: u8 = 0;
    const DISPATCHED: u8 = 1;

    pub(crate) fn stage(&self) -> Stage {
        match self.0.load(Ordering::Acquire) {
            Self::RECEIVED => Stage::Received,
            Self::DISPATCHED => Stage::Dispatched,
            settled => Stage::Settled(Settled::from_number(settled)),
        }
    }

    /// A handler starts; false if that is not what happens next in this life.
    pub(crate) fn dispatch(&self) -> bool {
        self.0.compare_exchange(Self::RECEIVED, Self::DISPATCHED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Settles it; false if somebody else was first.
    pub(crate) fn settle(&self, how: Settled) -> bool {
        let open = |now: u8| (now <= Self::DISPATCHED).then_some(how as u8);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, open).is_ok()
    }

    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.stage(), Stage::Settled(_))
    }
}

impl Settled {
    const ALL: [Settled; 4] = [Settled::Answered, Settled::Cancelled, Settled::Refused, Settled::Orphaned];

    fn from_number(number: u8) -> Self {
        // Only the numbers of these are ever written.
        Self::ALL.into_iter().find(|settled| *settled as u8 == number).unwrap_or(Settled::Orphaned)
    }
}

/// Where requests come from: one incarnation, and the books that are kept on it. What all its requests share.
#[derive(Debug)]
pub(crate) struct Asker {
    pub(crate) lane: Lane,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) counting: Arc<Counting>,
    /// The requests in flight of the whole session.
    pub(crate) gate: Arc<Gate>,
}

/// A request of the CLI, and everything that is needed to answer it.
pub(crate) struct Owed {
    head: Head,
    /// What it is: `mcp_message`, `can_use_tool`, …
    pub(crate) kind: &'static str,
    pub(crate) received: Instant,
    /// Cancelled when nobody waits for the answer any more.
    pub(crate) cancel: Cancel,
    pub(crate) span: tracing::Span,
    /// Whether it is an `mcp_message`, whose errors are JSON-RPC errors inside a successful answer.
    mcp: bool,
    life: Life,
    /// Whether the task of its handler has ended in no way worth a word.
    handled: AtomicBool,
    asker: Arc<Asker>,
    /// For an `mcp_message` to a server that is there.
    server_gate: Option<Arc<Gate>>,
}

/// What an [`Owed`] is made from, beside where it comes from.
pub(crate) struct NewOwed {
    pub(crate) head: Head,
    pub(crate) kind: &'static str,
    pub(crate) mcp: bool,
    pub(crate) received: Instant,
    pub(crate) server_gate: Option<Arc<Gate>>,
    pub(crate) span: tracing::Span,
}

impl Owed {
    /// What it is called by.
    pub(crate) fn head(&self) -> &Head {
        &self.head
    }

    pub(crate) fn request_id(&self) -> &str {
        self.head.request_id()
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.asker.lane.epoch()
    }

    pub(crate) fn lane(&self) -> &Lane {
        &self.asker.lane
    }

    pub(crate) fn is_open(&self) -> bool {
        self.life.is_open()
    }

    /// What counts the requests of the session.
    pub(crate) fn gate(&self) -> &Gate {
        &self.asker.gate
    }

    /// The task of its handler has ended, and there is nothing to tell of that.
    pub(crate) fn set_handled(&self) {
        self.handled.store(true, Ordering::Release);
    }

    pub(crate) fn is_handled(&self) -> bool {
        self.handled.load(Ordering::Acquire)
    }

    /// A handler starts to work at it.
    pub(crate) fn dispatched(&self) {
        self.life.dispatch();
    }

    pub(crate) fn is_dispatched(&self) -> bool {
        self.life.stage() == Stage::Dispatched
    }

    /// Answers a tool call, as the one who was asked.
    pub(crate) fn mcp_result(&self, result: &CallToolResult) {
        if self.settle(Settled::Answered) {
            self.write_result(result);
        }
    }

    /// Answers another JSON-RPC request with a result, as the one who was asked.
    pub(crate) fn mcp_value(&self, result: impl Serialize) {
        if self.settle(Settled::Answered) {
            self.write_mcp(Response::result(self.head.raw_rpc_id(), result));
        }
    }

    /// Answers a JSON-RPC request with an error, as the one who was asked.
    pub(crate) fn mcp_error(&self, error: &RpcError) {
        if self.settle(Settled::Answered) {
            self.write_error(error, None);
        }
    }

    /// The same in place of the one who was asked, because it took too long.
    pub(crate) fn mcp_timed_out_error(&self, error: &RpcError) {
        if self.settle(Settled::Cancelled) {
            self.write_error(error, None);
        }
    }

    /// Answers a tool call in place of the one who was asked, because it took too long.
    pub(crate) fn mcp_timed_out(&self, result: &CallToolResult) {
        if self.settle(Settled::Cancelled) {
            self.write_result(result);
        }
    }

    /// Acknowledges a JSON-RPC notification or response.
    pub(crate) fn mcp_ack(&self) {
        if self.settle(Settled::Answered) {
            // No JSON-RPC answer exists for it; this is what the official TypeScript SDK sends.
            self.write_mcp(serde_json::json!({ "jsonrpc": "2.0", "result": {}, "id": 0 }));
        }
    }

    /// Answers a request that is no JSON-RPC one.
    pub(crate) fn success(&self, body: impl Serialize) {
        if self.settle(Settled::Answered) {
            self.write(envelope::success(self.request_id(), body));
        }
    }

    /// The same in place of the one who was asked, because it took too long.
    pub(crate) fn timed_out(&self, body: impl Serialize) {
        if self.settle(Settled::Cancelled) {
            self.write(envelope::success(self.request_id(), body));
        }
    }

    /// Answers with an error for one who cannot or may not answer.
    pub(crate) fn refuse(&self, error: &RpcError) {
        if self.settle(Settled::Refused) {
            self.write_error(error, None);
        }
    }

    /// Answers a request whose subtype is not known.
    pub(crate) fn refuse_unsupported(&self, message: &str) {
        if self.settle(Settled::Refused) {
            self.write_error(&RpcError::internal(message), Some("unsupported_request"));
        }
    }

    /// Answers that it is cancelled, and tells the one who was asked.
    pub(crate) fn cancel(&self) -> bool {
        let first = self.settle(Settled::Cancelled);
        if first {
            self.write_error(&RpcError::cancelled(), None);
        }
        self.cancel.cancel();
        first
    }

    /// Gives the request up without an answer, and tells the one who was asked.
    pub(crate) fn orphan(&self) -> bool {
        let first = self.settle(Settled::Orphaned);
        self.cancel.cancel();
        first
    }

    fn gates(&self) -> impl Iterator<Item = &Gate> {
        [Some(&*self.asker.gate), self.server_gate.as_deref()].into_iter().flatten()
    }

    fn settle(&self, how: Settled) -> bool {
        if !self.life.settle(how) {
            self.asker.counting.late_answers.one();
            return false;
        }
        self.gates().for_each(Gate::leave);
        let counting = &self.asker.counting;
        let (counter, outcome) = match how {
            Settled::Answered => (&counting.answered, "answered"),
            Settled::Cancelled => (&counting.cancelled, "cancelled"),
            Settled::Refused => (&counting.refused, "refused"),
            Settled::Orphaned => (&counting.orphaned, "orphaned"),
        };
        counter.one();
        self.span.record("outcome", outcome);
        // What traces it is told when it is over.
        self.asker.ledger.settled(!self.span.is_none());
        true
    }

    fn write_error(&self, error: &RpcError, code: Option<&str>) {
        if self.mcp {
            self.write_mcp(Response::<()>::error(self.head.raw_rpc_id(), error));
        } else {
            self.write(Ok(envelope::error(self.request_id(), &error.message, code)));
        }
    }

    fn write_result(&self, result: &CallToolResult) {
        match answer::result_line(self.request_id(), self.head.rpc_id(), result) {
            Ok(line) => self.queue(|lane| lane.send_line(line)),
            Err(error) => self.write(Err(error)),
        }
    }

    fn write_mcp(&self, message: impl Serialize) {
        self.write(envelope::success(self.request_id(), McpResponse { mcp_response: message }));
    }

    fn write(&self, json: serde_json::Result<Vec<u8>>) {
        let json = json.unwrap_or_else(|error| {
            let message = format!("the answer does not serialise: {error}");
            if self.mcp {
                let error = RpcError::internal(message);
                let response = Response::<()>::error(self.head.raw_rpc_id(), &error);
                envelope::success(self.request_id(), McpResponse { mcp_response: response })
                    .unwrap_or_default()
            } else {
                envelope::error(self.request_id(), &message, None)
            }
        });
        self.queue(|lane| lane.send(json));
    }

    fn queue(&self, send: impl FnOnce(&Lane) -> Result<(), Ended>) {
        // A lane that has ended belongs to an incarnation that nobody can answer any more.
        if send(&self.asker.lane).is_err() {
            tracing::debug!(
                request_id = self.request_id(),
                epoch = self.epoch(),
                "answered an incarnation that has ended"
            );
        }
    }
}

impl fmt::Debug for Owed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owed")
            .field("request_id", &self.request_id())
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// The duty to answer one request. Dropped without an outcome, it answers with an error.
#[derive(Debug)]
pub(crate) struct Answer(Option<Arc<Owed>>);

impl Answer {
    /// Begins to owe an answer.
    pub(crate) fn new(asker: &Arc<Asker>, new: NewOwed) -> Self {
        asker.counting.requests.one();
        let owed = Owed {
            head: new.head,
            kind: new.kind,
            received: new.received,
            cancel: Cancel::default(),
            span: new.span,
            mcp: new.mcp,
            life: Life::default(),
            handled: AtomicBool::new(false),
            asker: asker.clone(),
            server_gate: new.server_gate,
        };
        owed.gates().for_each(Gate::enter);
        Self(Some(Arc::new(owed)))
    }

    /// What it is that is owed.
    pub(crate) fn owed(&self) -> &Arc<Owed> {
        match &self.0 {
            Some(owed) => owed,
            // `give_up` consumes `self`, and nothing else takes the value.
            None => unreachable!("an answer that was taken is still in use"),
        }
    }

    /// Gives the duty back without an outcome: someone else has it (a second request with the same id), or
    /// there must be no answer.
    pub(crate) fn without_answer(mut self) {
        if let Some(owed) = self.0.take() {
            owed.orphan();
        }
    }

    /// Hands the duty over to a holder of the [`Owed`], who has to settle it.
    pub(crate) fn hand_over(mut self) -> Arc<Owed> {
        match self.0.take() {
            Some(owed) => owed,
            None => unreachable!("an answer is handed over once"),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(owed) = &self.0
            && owed.is_open()
        {
            owed.refuse(&RpcError::internal(
                "the request was lost before it was answered: what should have answered it has ended",
            ));
            owed.cancel.cancel();
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
