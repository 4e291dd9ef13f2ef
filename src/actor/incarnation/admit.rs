//! Admits the requests that were read: enters them in the ledger, refuses those over a limit, and sends the others to
//! the actors that serve them.

use std::sync::Arc;

use ractor::MessagingErr;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::follow::FollowedRouter;
use crate::actor::base::gate::Gate;
use crate::actor::context::Shared;
use crate::actor::messages::inbound::{InboundBody, McpBatch, McpMessage};
use crate::actor::messages::mcp_server::ServerMessage;
use crate::actor::messages::permits::MailboxPermit;
use crate::actor::messages::router::RouterMessage;
use crate::actor::outbound::Outbound;
use crate::actor::request::answer::Answer;
use crate::actor::request::ledger::{Admission, Ledger};
use crate::actor::request::pending::{Full, PendingRequest, RequestOrigin};
use crate::actor::router::routes::{Route, RoutedCount};
use crate::report::Event;
use crate::wire::envelope::{CallbackRequest, UnservedRequest};
use crate::wire::fast::request_ids::RequestIds;
use crate::wire::rpc::{Rpc, RpcError};

/// A request between its line and the mailbox of the actor that serves it.
pub(super) struct InboundRequest {
    pub(super) ids: RequestIds,
    pub(super) body: InboundBody,
    /// The route to its tool server when the line was read.
    pub(super) route: Option<Arc<Route>>,
    /// Whether the CLI lists the request as pending, so that it may be known.
    pub(super) replayed: bool,
}

pub(super) struct Admitter {
    shared: Arc<Shared>,
    outbound: Outbound,
    router: FollowedRouter,
    routed: RoutedCount,
    /// Permits for control frames in mailboxes.
    mailboxes: Arc<Semaphore>,
    /// Requests that were read and not entered; at most `batch`.
    read: Vec<InboundRequest>,
    batch: usize,
    /// Messages for the router, in order.
    for_router: Vec<RouterMessage>,
    // Empty between calls, and kept for their capacity.
    entered: Vec<(Answer, Option<Admission>)>,
    batches: Vec<(Arc<Route>, McpBatch)>,
}

/// Most requests that are entered at once.
const BATCH: usize = 256;
/// The answer to a request after the deadline of the session's watchdog.
const TOO_LATE: &str = "the session may not act any more: the deadline of its watchdog has passed";

impl Admitter {
    pub(super) fn new(shared: Arc<Shared>, outbound: Outbound) -> Self {
        let frames = shared.options().limits.calls_in_flight.min(Semaphore::MAX_PERMITS);
        Self {
            router: FollowedRouter::new(shared.clone(), outbound.clone()),
            shared,
            outbound,
            routed: RoutedCount::default(),
            mailboxes: Arc::new(Semaphore::new(frames)),
            read: Vec::new(),
            batch: frames.clamp(1, BATCH),
            for_router: Vec::new(),
            entered: Vec::new(),
            batches: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, request: InboundRequest) {
        self.read.push(request);
    }

    pub(super) fn has_requests(&self) -> bool {
        !self.read.is_empty()
    }

    pub(super) fn is_batch_full(&self) -> bool {
        self.read.len() >= self.batch
    }

    pub(super) fn route(&self, server: &str) -> Option<&Arc<Route>> {
        self.router.route(server)
    }

    /// Takes over the current router and its routes.
    pub(super) fn refresh(&mut self) {
        self.router.refresh();
    }

    pub(super) fn open_request(&self, request_id: &str) -> Option<Arc<PendingRequest>> {
        self.router.link()?.ledger.get(request_id)
    }

    /// Enters the requests that were read in the ledger, and sends them on.
    pub(super) async fn enter(&mut self) {
        if !self.read.is_empty() && !self.enter_now() {
            Box::pin(self.enter_waiting()).await;
        }
    }

    /// Enters the requests if nothing has to be waited for; false if something is left to do.
    fn enter_now(&mut self) -> bool {
        let Ok(frames) = u32::try_from(self.read.len()) else { return false };
        let Some((ledger, origin)) = self.router.ledger_now() else { return false };
        let Ok(permit) = self.mailboxes.clone().try_acquire_many_owned(frames) else { return false };
        self.enter_with(&ledger, &origin, MailboxPermit::new(Some(permit)));
        self.for_router.is_empty()
    }

    async fn enter_waiting(&mut self) {
        if !self.read.is_empty() {
            let permit = self.permit(self.read.len()).await;
            let (ledger, origin) = self.router.ledger().await;
            self.enter_with(&ledger, &origin, permit);
        }
        for message in std::mem::take(&mut self.for_router) {
            self.send_to_router(message).await;
        }
    }

    /// Enters all requests under one lock of the ledger, without user code under it: a span runs the application's
    /// subscriber.
    fn enter_with(&mut self, ledger: &Ledger, origin: &Arc<RequestOrigin>, permit: MailboxPermit) {
        let mut read = std::mem::take(&mut self.read);
        let mut entered = std::mem::take(&mut self.entered);
        let received = Instant::now();
        for request in &mut read {
            let kind = request.body.kind();
            let ids = std::mem::take(&mut request.ids);
            let span = self.shared.request_span(ids.request_id(), kind.as_str(), self.outbound.epoch());
            let gate = self.server_gate(request);
            entered.push((Answer::open(origin, ids, kind, received, gate, span), None));
        }
        if let Some(mut ledger) = ledger.admissions(self.shared.options().limits.calls_in_flight) {
            for ((answer, admission), request) in entered.iter_mut().zip(&read) {
                *admission = Some(ledger.admit(answer.pending(), request.replayed));
            }
        }
        self.send(&mut read, &mut entered, permit);
        (self.read, self.entered) = (read, entered);
    }

    fn server_gate(&self, request: &InboundRequest) -> Option<Arc<Gate>> {
        let InboundBody::Mcp { server, .. } = &request.body else { return None };
        let gate = request.route.as_ref().and_then(|route| route.gate.clone());
        gate.or_else(|| self.shared.roster.borrow().gate(server).cloned())
    }

    /// Sends the admitted requests: to their servers by the published routes, and all others to the router.
    fn send(
        &mut self,
        read: &mut Vec<InboundRequest>,
        entered: &mut Vec<(Answer, Option<Admission>)>,
        mut permit: MailboxPermit,
    ) {
        let mut batches = std::mem::take(&mut self.batches);
        let requests = read.len();
        for (request, (answer, admission)) in read.drain(..).zip(entered.drain(..)) {
            let InboundRequest { body, route, .. } = request;
            let Some(answer) = self.admitted(answer, admission, &body) else { continue };
            match (body, route) {
                // While an earlier message is with the router, later ones go there too: nothing overtakes it.
                (InboundBody::Mcp { message, .. }, Some(route)) if !self.routed.any() => {
                    match batches.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &route)) {
                        Some((_, batch)) => batch.push(answer, message, requests),
                        None => batches.push((route, McpBatch::One(answer, message))),
                    }
                }
                (body, _) => {
                    let message = self.to_router(answer, body, permit.split(1));
                    self.for_router.push(message);
                }
            }
        }
        let mut failed = Vec::new();
        for (route, batch) in batches.drain(..) {
            let asked = ServerMessage::Asked { permit: permit.split(batch.len()), batch };
            let Err(error) = route.actor.cast(asked) else { continue };
            // The server has ended: the router will learn whether there is a next one.
            if let MessagingErr::SendErr(ServerMessage::Asked { batch, mut permit }) = error {
                failed.extend(batch.into_iter().map(|(answer, message)| {
                    let body = InboundBody::Mcp { server: route.server.clone(), message };
                    self.to_router(answer, body, permit.split(1))
                }));
            }
        }
        // In front: these were read before the first message that was for the router anyway.
        self.for_router.splice(0..0, failed);
        self.batches = batches;
    }

    fn to_router(&self, answer: Answer, body: InboundBody, permit: MailboxPermit) -> RouterMessage {
        let routed = matches!(body, InboundBody::Mcp { .. }).then(|| self.routed.begin());
        RouterMessage::Request { answer, body, permit, routed }
    }

    /// Gives the answer back if the request is to be served.
    fn admitted(&self, answer: Answer, admission: Option<Admission>, body: &InboundBody) -> Option<Answer> {
        let pending = answer.pending();
        let request_id = pending.request_id();
        match admission {
            Some(Admission::Admitted) if self.deadline_has_passed() => {
                pending.refuse(&RpcError::internal(TOO_LATE))
            }
            Some(Admission::Admitted) => match pending.full() {
                Some(full) if !self.passes_full(body) => self.refuse(pending, full),
                _ => return Some(answer),
            },
            Some(Admission::Ended) => answer.without_answer(),
            Some(Admission::Known) => {
                tracing::debug!(request_id, "pending by the CLI's list, and known here");
                answer.without_answer();
            }
            Some(Admission::Duplicate) => {
                self.shared.counting.duplicate_requests.one();
                tracing::warn!(request_id, "the CLI used a request id again while it was in flight");
                answer.without_answer();
            }
            // No router, because the session is ending: the drop answers with an error.
            None => {}
        }
        None
    }

    /// Whether a request comes through above the limits: a message that may end a call, which is served at once; and a request that
    /// gets no answer.
    fn passes_full(&self, body: &InboundBody) -> bool {
        match body {
            InboundBody::Mcp { message: McpMessage::Rpc(rpc), .. } => {
                matches!(rpc, Rpc::Notification { .. })
            }
            InboundBody::Unserved(UnservedRequest::Silent { .. }) => true,
            InboundBody::Callback(CallbackRequest::Dialog { kind, .. }) => {
                !self.shared.spec.handlers.declare(kind.as_deref())
            }
            _ => false,
        }
    }

    /// True when the session's watchdog has ended the CLI, or does so now. A host that was stopped finds requests in the pipe then.
    fn deadline_has_passed(&self) -> bool {
        self.shared.spec.watchdog.as_ref().is_some_and(|watchdog| !watchdog.holds())
    }

    fn refuse(&self, pending: &PendingRequest, full: Full) {
        self.shared.counting.at_capacity.one();
        let (event, refusal) = match pending.full_gate(full) {
            Some(gate) => {
                let event = || Event::AtCapacity { server: gate.server.clone(), limit: gate.limit };
                (gate.is_news().then(event), gate.refusal())
            }
            None => {
                let bytes = self.outbound.bytes();
                let event = || Event::OutboundFull { epoch: self.outbound.epoch(), limit: bytes.limit() };
                (bytes.is_news().then(event), bytes.refusal())
            }
        };
        if let Some(event) = event {
            self.shared.emit(event);
        }
        pending.refuse(&RpcError::internal(refusal));
    }

    /// Waits for permits for `frames` control frames; never more than `batch`.
    pub(super) async fn permit(&self, frames: usize) -> MailboxPermit {
        let frames = u32::try_from(frames).unwrap_or(u32::MAX);
        MailboxPermit::new(self.mailboxes.clone().acquire_many_owned(frames).await.ok())
    }

    /// Sends a message to the router, or to the next one if it has just ended.
    pub(super) async fn send_to_router(&mut self, mut message: RouterMessage) {
        while let Some(router) = self.router.link() {
            let Err(MessagingErr::SendErr(back)) = router.actor.cast(message) else { return };
            if let RouterMessage::Request { answer, .. } = &back
                && !answer.pending().is_open()
            {
                // The router answered its requests when it ended.
                return;
            }
            message = back;
            self.router.next().await;
        }
        // No router, because the session is ending: the drop answers a request with an error.
    }
}
