//! A request of the CLI and the ways to answer it. The answer goes to the outbound queue of the incarnation that asked,
//! and can go to no other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde::Serialize;
use tokio::time::Instant;

use crate::actor::base::gate::Gate;
use crate::actor::outbound::{IncarnationEnded, Outbound};
use crate::lock::lock;
use crate::report::counters::Counting;
use crate::tool::run::cancel::Cancel;
use crate::wire::CallToolResult;
use crate::wire::envelope::CallbackRequest;
use crate::wire::fast::answer;
use crate::wire::fast::request_ids::RequestIds;
use crate::wire::outgoing::{self, McpResponse};
use crate::wire::rpc::{RpcError, RpcResponse};

/// The parts that all requests of one incarnation share.
pub(crate) struct RequestOrigin {
    pub(crate) outbound: Outbound,
    /// Called when a request is settled: removes it from the ledger.
    pub(crate) settled: Box<dyn Fn(&PendingRequest) + Send + Sync>,
    pub(crate) counting: Arc<Counting>,
    /// Counts the requests in flight of the session.
    pub(crate) gate: Arc<Gate>,
}

/// The kind of a request, by who serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// A message to a tool server. Its errors are JSON-RPC errors inside a successful answer.
    Mcp,
    Permission,
    Hook,
    Elicitation,
    Dialog,
    /// Meant for another machine, and left without an answer.
    Silent,
    Unknown,
}

impl RequestKind {
    pub(crate) fn of_callback(callback: &CallbackRequest) -> Self {
        match callback {
            CallbackRequest::Permission(_) => RequestKind::Permission,
            CallbackRequest::Hook { .. } => RequestKind::Hook,
            CallbackRequest::Elicitation(_) => RequestKind::Elicitation,
            CallbackRequest::Dialog { .. } => RequestKind::Dialog,
        }
    }

    /// The name in spans and snapshots.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            RequestKind::Mcp => "mcp_message",
            RequestKind::Permission => "can_use_tool",
            RequestKind::Hook => "hook_callback",
            RequestKind::Elicitation => "elicitation",
            RequestKind::Dialog => "request_user_dialog",
            RequestKind::Silent => "silent",
            RequestKind::Unknown => "unknown",
        }
    }

    /// Whether the CLI lists such requests as pending in its answer to `initialize`.
    pub(super) fn is_listed(self) -> bool {
        matches!(self, RequestKind::Permission | RequestKind::Dialog | RequestKind::Elicitation)
    }
}

/// The way a request was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    Answered,
    Cancelled,
    Refused,
    Orphaned,
}

/// A request of the CLI, and everything that is needed to answer it.
pub(crate) struct PendingRequest {
    ids: RequestIds,
    pub(crate) kind: RequestKind,
    pub(crate) received: Instant,
    /// Cancelled when nobody waits for the answer any more.
    pub(crate) cancel: Cancel,
    /// Taken when the request is settled, so that the span closes then. A running handler keeps the span open with a
    /// clone of its own.
    span: Mutex<tracing::Span>,
    /// Whether there is a span. Without a subscriber the mutex is never locked.
    traced: bool,
    /// Swapped to false when the request is settled: the first outcome wins.
    open: AtomicBool,
    origin: Arc<RequestOrigin>,
    /// Counts the requests in flight of the tool server that is asked.
    server_gate: Option<Arc<Gate>>,
}

impl PendingRequest {
    /// Opens a request: counts it, and enters its gates.
    pub(crate) fn open(
        origin: &Arc<RequestOrigin>,
        ids: RequestIds,
        kind: RequestKind,
        server_gate: Option<Arc<Gate>>,
        span: tracing::Span,
    ) -> Self {
        origin.counting.requests.one();
        let pending = Self {
            ids,
            kind,
            received: Instant::now(),
            cancel: Cancel::default(),
            traced: !span.is_none(),
            span: Mutex::new(span),
            open: AtomicBool::new(true),
            origin: origin.clone(),
            server_gate,
        };
        pending.gates().for_each(|gate| gate.in_flight.add(1));
        pending
    }

    pub(crate) fn ids(&self) -> &RequestIds {
        &self.ids
    }

    pub(crate) fn request_id(&self) -> &str {
        self.ids.request_id()
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.outbound().epoch()
    }

    pub(crate) fn outbound(&self) -> &Outbound {
        &self.origin.outbound
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// The span of the request; none once the request is settled.
    pub(crate) fn span(&self) -> tracing::Span {
        if self.traced { lock(&self.span).clone() } else { tracing::Span::none() }
    }

    /// Counts the requests in flight of the session.
    pub(crate) fn gate(&self) -> &Gate {
        &self.origin.gate
    }

    /// The gates that count the request: of the session, and of its tool server.
    pub(crate) fn gates(&self) -> impl Iterator<Item = &Gate> {
        [Some(self.gate()), self.server_gate.as_deref()].into_iter().flatten()
    }

    /// Waits until the answer may be queued for the CLI's stdin; `None` if it may be queued now.
    pub(crate) fn room(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let outbound = self.outbound();
        outbound.bytes().is_full().then(|| {
            let outbound = outbound.clone();
            async move { outbound.bytes().room().await }
        })
    }

    /// Answers a tool call with a result: that of its handler, or one that says that the handler took too long.
    pub(crate) fn mcp_result(&self, how: Settled, result: &CallToolResult) {
        if !self.settle(how) {
            return;
        }
        let buffer = |room| self.outbound().buffer(room);
        match answer::result_line(buffer, self.request_id(), self.ids.rpc_id(), result) {
            Ok(line) => self.queue(|outbound| outbound.send_line(line)),
            Err(error) => self.write(Err(error)),
        }
    }

    /// Answers a JSON-RPC request with the result of its handler.
    pub(crate) fn mcp_value(&self, result: impl Serialize) {
        if self.settle(Settled::Answered) {
            self.write_mcp(RpcResponse::result(self.ids.raw_rpc_id(), result));
        }
    }

    /// Acknowledges a JSON-RPC notification or response.
    pub(crate) fn mcp_ack(&self) {
        if self.settle(Settled::Answered) {
            // JSON-RPC has no answer to these; the official TypeScript SDK sends this one.
            self.write_mcp(serde_json::json!({ "jsonrpc": "2.0", "result": {}, "id": 0 }));
        }
    }

    /// Answers a control request: with the result of its handler, or because the handler took too long.
    pub(crate) fn success(&self, how: Settled, body: impl Serialize) {
        if self.settle(how) {
            self.write(outgoing::success(self.request_id(), body));
        }
    }

    /// Answers with an error of the handler, or with the error of a limit.
    pub(crate) fn fail(&self, how: Settled, error: &RpcError) {
        if self.settle(how) {
            self.write_error(error, None);
        }
    }

    /// Answers with an error, because no handler can or may answer.
    pub(crate) fn refuse(&self, error: &RpcError) {
        self.fail(Settled::Refused, error);
    }

    /// Answers a request whose subtype is unknown.
    pub(crate) fn refuse_unsupported(&self, message: &str) {
        if self.settle(Settled::Refused) {
            self.write_error(&RpcError::internal(message), Some("unsupported_request"));
        }
    }

    /// Answers that the request is cancelled, and cancels its handler.
    pub(crate) fn cancel(&self) -> bool {
        let first = self.settle(Settled::Cancelled);
        if first {
            self.write_error(&RpcError::cancelled(), None);
        }
        self.cancel.cancel();
        first
    }

    /// Settles the request without an answer, and cancels its handler.
    pub(crate) fn orphan(&self) {
        self.withhold();
    }

    /// Like [`orphan`](Self::orphan). Returns whether the request was open.
    pub(crate) fn withhold(&self) -> bool {
        let first = self.settle(Settled::Orphaned);
        self.cancel.cancel();
        first
    }

    fn settle(&self, how: Settled) -> bool {
        let counting = &self.origin.counting;
        if !self.open.swap(false, Ordering::AcqRel) {
            counting.late_answers.one();
            return false;
        }
        for gate in self.gates() {
            gate.in_flight.remove(1);
        }
        // Before the subscriber runs, which may take its time.
        (self.origin.settled)(self);
        let (count, outcome) = match how {
            Settled::Answered => (&counting.answered, "answered"),
            Settled::Cancelled => (&counting.cancelled, "cancelled"),
            Settled::Refused => (&counting.refused, "refused"),
            Settled::Orphaned => (&counting.orphaned, "orphaned"),
        };
        count.one();
        if self.traced {
            // Dropped after the lock is released: closing a span runs the application's subscriber.
            let span = std::mem::replace(&mut *lock(&self.span), tracing::Span::none());
            span.record("outcome", outcome);
        }
        true
    }

    fn write_error(&self, error: &RpcError, code: Option<&str>) {
        match self.kind {
            RequestKind::Mcp => self.write_mcp(RpcResponse::<()>::error(self.ids.raw_rpc_id(), error)),
            _ => {
                self.queue(|outbound| outbound.send(outgoing::error(self.request_id(), &error.message, code)))
            }
        }
    }

    fn write_mcp(&self, message: impl Serialize) {
        self.write(outgoing::success(self.request_id(), McpResponse { mcp_response: message }));
    }

    fn write(&self, json: serde_json::Result<Vec<u8>>) {
        match json {
            Ok(json) => self.queue(|outbound| outbound.send(json)),
            // An error consists of texts, which always serialise.
            Err(error) => {
                let error = RpcError::internal(format!("the answer does not serialise: {error}"));
                self.write_error(&error, None);
            }
        }
    }

    fn queue(&self, send: impl FnOnce(&Outbound) -> Result<(), IncarnationEnded>) {
        if send(self.outbound()).is_err() {
            tracing::debug!(
                request_id = self.request_id(),
                epoch = self.epoch(),
                "answered an incarnation that has ended"
            );
        }
    }
}
