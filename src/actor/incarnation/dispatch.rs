//! Admits the CLI's requests as they are read, and forwards them to tool servers and callbacks.
//!
//! ```text
//!   read ─► opened: an Answer ─► entered in the ledger ─► the queue of a tool server
//!                 │                      │                the callbacks
//!                 │                      │                unserved: refused here, or not answered
//!                 │                      └─ at capacity, or past the watchdog's deadline: refused
//!                 └─ a duplicate, known, or of an incarnation that has ended: not answered
//! ```

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::actor::base::gate::Gate;
use crate::actor::context::Shared;
use crate::actor::messages::children::CallbacksMessage;
use crate::actor::outbound::Outbound;
use crate::actor::request::answer::Answer;
use crate::actor::request::ledger::Admission;
use crate::actor::request::pending::{PendingRequest, RequestKind, RequestOrigin};
use crate::actor::servers::queue::McpMessage;
use crate::actor::servers::roster::InsideServer;
use crate::report::Event;
use crate::wire::brief::Short;
use crate::wire::envelope::{CallbackRequest, ControlRequest, UnservedRequest};
use crate::wire::fast::call::CallLine;
use crate::wire::fast::request_ids::RequestIds;
use crate::wire::rpc::{Rpc, RpcError};

/// The answer to a request after the deadline of the session's watchdog.
const TOO_LATE: &str = "the session may not act any more: the deadline of its watchdog has passed";

/// Admits and forwards the requests of one incarnation.
pub(super) struct RequestDispatcher {
    shared: Arc<Shared>,
    origin: Arc<RequestOrigin>,
    /// Permits for requests in the mailbox of the callbacks.
    callbacks_room: Arc<Semaphore>,
}

impl RequestDispatcher {
    pub(super) fn new(shared: Arc<Shared>, outbound: Outbound) -> Self {
        let origin = RequestOrigin {
            outbound,
            settled: shared.ledger.leaving(),
            counting: shared.counting.clone(),
            gate: shared.gate.clone(),
        };
        let room = shared.options().limits.calls_in_flight.min(Semaphore::MAX_PERMITS);
        Self { shared, origin: Arc::new(origin), callbacks_room: Arc::new(Semaphore::new(room)) }
    }

    /// Forwards a tool call that was read in one pass. False for an unknown or a mounted server, whose messages are read as
    /// JSON-RPC.
    pub(super) fn call(&self, call: &CallLine<'_>) -> bool {
        let Some(server) = self.server(&call.server).filter(|server| !server.spec.is_mounted()) else {
            return false;
        };
        let message = McpMessage::Call(call.arguments.map(ToOwned::to_owned));
        if let Some(answer) =
            self.admit(call.ids(), RequestKind::Mcp, Some(server.gate.clone()), false, false)
        {
            server.queue.push(answer, message);
        }
        true
    }

    /// Forwards a request. A `replayed` one is listed by the CLI as pending, and may be known.
    pub(super) fn request(&self, request_id: &str, body: ControlRequest, replayed: bool) {
        match body {
            ControlRequest::Mcp { server, rpc } => self.mcp(request_id, &server, rpc, replayed),
            ControlRequest::Callback(body) => self.callback(request_id, body, replayed),
            ControlRequest::Unserved(body) => self.unserved(request_id, body, replayed),
        }
    }

    fn mcp(&self, request_id: &str, server: &str, rpc: Rpc, replayed: bool) {
        let rpc_id = match &rpc {
            Rpc::Request { id, .. } => Some(id.get()),
            _ => None,
        };
        let ids = RequestIds::rpc(request_id, rpc_id);
        // A notification may cancel a call.
        let ignores_limits = matches!(rpc, Rpc::Notification { .. });
        let found = self.server(server);
        let gate = found.as_ref().map(|server| server.gate.clone());
        let Some(answer) = self.admit(ids, RequestKind::Mcp, gate, ignores_limits, replayed) else { return };
        match found {
            Some(server) => server.queue.push(answer, McpMessage::Rpc(rpc)),
            None => {
                self.shared.counting.not_found.one();
                answer.pending().refuse(&RpcError::unknown_server(server));
            }
        }
    }

    fn callback(&self, request_id: &str, body: CallbackRequest, replayed: bool) {
        let is_undeclared_dialog = match &body {
            CallbackRequest::Dialog { kind, .. } => !self.shared.spec.handlers.declare(kind.as_deref()),
            _ => false,
        };
        let (ids, kind) = (RequestIds::control(request_id), RequestKind::of_callback(&body));
        let Some(answer) = self.admit(ids, kind, None, is_undeclared_dialog, replayed) else { return };
        if is_undeclared_dialog {
            // Any answer would count as the user's; the CLI settles the dialog at its own deadline.
            return answer.pending().orphan();
        }
        // A withdrawn request is in flight no more, and is still in the mailbox.
        let Ok(permit) = self.callbacks_room.clone().try_acquire_owned() else {
            self.shared.counting.at_capacity.one();
            let text = "at capacity: too many requests wait for the callbacks";
            return answer.pending().refuse(&RpcError::internal(text));
        };
        // Cloned: nothing is dropped under the lock.
        let callbacks = self.shared.callbacks.read().clone();
        if let Some(callbacks) = callbacks {
            // Callbacks that have just ended drop the answer, which answers with an error.
            callbacks.cast(CallbacksMessage::Request { answer, body, permit }).ok();
        }
    }

    fn unserved(&self, request_id: &str, body: UnservedRequest, replayed: bool) {
        let silent = matches!(body, UnservedRequest::Silent { .. });
        let kind = if silent { RequestKind::Silent } else { RequestKind::Unknown };
        let Some(answer) = self.admit(RequestIds::control(request_id), kind, None, silent, replayed) else {
            return;
        };
        match body {
            UnservedRequest::Silent { subtype } => {
                self.shared.counting.silent_requests.one();
                tracing::debug!(subtype, "a request that is meant for another machine");
                answer.pending().orphan();
            }
            UnservedRequest::Unknown { subtype } => {
                self.shared.counting.unknown_requests.one();
                let text = format!("Unsupported control request subtype: {}", Short(&subtype));
                answer.pending().refuse_unsupported(&text);
            }
            UnservedRequest::Incomplete { subtype, missing } => {
                let text = format!("a {subtype} request without `{missing}`");
                answer.pending().refuse(&RpcError::internal(text));
            }
        }
    }

    /// The CLI withdraws a request.
    pub(super) fn withdraw(&self, request_id: &str) {
        match self.shared.ledger.get(request_id) {
            Some(pending) => {
                tracing::debug!(parent: &pending.span(), "withdrawn by the CLI");
                pending.orphan();
            }
            None => self.shared.counting.unmatched_cancels.one(),
        }
    }

    fn server(&self, name: &str) -> Option<Arc<InsideServer>> {
        self.shared.roster.read().server(name).cloned()
    }

    /// Opens a request and enters it in the ledger; `None` if the request is settled already. `gate` counts the
    /// requests in flight of its server.
    fn admit(
        &self,
        ids: RequestIds,
        kind: RequestKind,
        gate: Option<Arc<Gate>>,
        ignores_limits: bool,
        replayed: bool,
    ) -> Option<Answer> {
        let span = tracing::info_span!(
            parent: &*self.shared.turn_span.read(),
            "control_request",
            request_id = ids.request_id(),
            kind = kind.as_str(),
            epoch = self.origin.outbound.epoch(),
            outcome = tracing::field::Empty,
        );
        let answer = Answer::new(PendingRequest::open(&self.origin, ids, kind, gate, span));
        let pending = answer.pending();
        let request_id = pending.request_id();
        match self.shared.ledger.enter(pending, replayed) {
            // The watchdog has ended the CLI, or does so now: a host that was stopped finds requests in the pipe then.
            Admission::Admitted
                if self.shared.spec.watchdog.as_ref().is_some_and(|watchdog| !watchdog.holds()) =>
            {
                pending.refuse(&RpcError::internal(TOO_LATE));
            }
            Admission::Admitted if !ignores_limits && self.is_refused(pending) => {}
            Admission::Admitted => return Some(answer),
            Admission::Ended => answer.pending().orphan(),
            Admission::Known => {
                tracing::debug!(request_id, "pending by the CLI's list, and known here");
                answer.pending().orphan();
            }
            Admission::Duplicate => {
                self.shared.counting.duplicate_requests.one();
                tracing::warn!(request_id, "the CLI used a request id again while it was in flight");
                answer.pending().orphan();
            }
        }
        None
    }

    /// Refuses a request that is over a limit. The request has entered its gates already: only the reader enters requests, so
    /// a gate that is over its limit is over by this one.
    fn is_refused(&self, pending: &PendingRequest) -> bool {
        let bytes = pending.outbound().bytes();
        let (event, refusal) = if let Some(gate) = pending.gates().find(|gate| gate.is_over()) {
            let event = || Event::AtCapacity { server: gate.server.clone(), limit: gate.in_flight.limit };
            (gate.in_flight.is_news().then(event), gate.refusal())
        } else if bytes.is_full() {
            let event = || Event::OutboundFull { epoch: pending.epoch(), limit: bytes.queued.limit };
            (bytes.queued.is_news().then(event), bytes.refusal())
        } else {
            return false;
        };
        self.shared.counting.at_capacity.one();
        if let Some(event) = event {
            self.shared.emit(event);
        }
        pending.refuse(&RpcError::internal(refusal));
        true
    }
}
