//! Reads one incarnation's stdout: requests are entered in the ledger and go to whoever serves them, messages to the
//! conversation.
//!
//! Messages go by the intake, which reads what they say; a read's control frames go first.
//!
//! The reader never waits for whoever reads messages. It waits for two actors only, which wait for nobody: for the
//! conversation, when more than `Limits::message_lane_bytes` are on their way to it, and for
//! those who serve requests, when as many control frames are on their way to them as `Limits::calls_in_flight`, or when the
//! router has just ended.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use memchr::memmem;
use ractor::MessagingErr;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use super::admission::Gate;
use super::intake::{Intake, Seen};
use super::lane::Lane;
use super::ledger::{Admission, Ledger};
use super::mcp_server::{Batch, Incoming, ServerMessage};
use super::owed::{Answer, Asker, NewOwed};
use super::router::{Asked, RouterMessage};
use super::routes::{Detours, Route, RouterLink, Routes};
use super::shared::Shared;
use super::work::step_back;
use crate::report::Event;
use crate::wire::Message;
use crate::wire::call::Call;
use crate::wire::envelope::{Frame, Reply, Request, Unreadable};
use crate::wire::head::{Head, Parts};
use crate::wire::line::{Lines, Step};
use crate::wire::rpc::{Rpc, RpcError};

/// Control frames on their way to an actor, given back when it takes them or has ended.
pub(crate) struct Place {
    permit: Option<OwnedSemaphorePermit>,
}

impl Place {
    /// What has no bound here has one elsewhere.
    pub(crate) fn none() -> Self {
        Self { permit: None }
    }

    /// Some of them for themselves.
    fn split(&mut self, frames: usize) -> Self {
        Self { permit: self.permit.as_mut().and_then(|permit| permit.split(frames)) }
    }
}

/// A request that was read and is not entered yet.
struct Read {
    head: Head,
    body: Body,
    /// Whether it is one that the CLI lists as pending, and may be known.
    replayed: bool,
}

/// What it asks for.
enum Body {
    /// A tool server; the route to it, if there is one.
    Mcp { server: Arc<str>, incoming: Incoming, route: Option<Arc<Route>> },
    /// Something else.
    Other(Request),
}

/// A request that was read, once the ledger has been asked.
struct Entered {
    answer: Answer,
    body: Body,
    /// What had as many in flight before it as there may be.
    full: Option<Arc<Gate>>,
    replayed: bool,
    /// `None` without a router.
    admission: Option<Admission>,
}

/// A control frame that is no request, or one that nobody here serves.
enum Control {
    Reply(Box<Reply>),
    Withdrawn(String),
    Unserved(String, Request),
}

pub(crate) struct Reader {
    shared: Arc<Shared>,
    lane: Lane,
    intake: Intake,
    routers: watch::Receiver<Option<RouterLink>>,
    /// The router of the moment.
    router: Option<RouterLink>,
    routes: Arc<Routes>,
    /// What the requests of this incarnation and of this router share.
    asker: Option<Arc<Asker>>,
    detours: Detours,
    seen: Arc<Seen>,
    to_actors: Arc<Semaphore>,
    /// What is read and not entered yet; at most `batch`.
    read: Vec<Read>,
    /// The same once it is entered, and what of it goes to which server; empty but for a moment, and kept for their room.
    entered: Vec<Entered>,
    batches: Vec<(Arc<Route>, Batch)>,
    /// What goes to the router.
    for_router: Vec<RouterMessage>,
    batch: usize,
    /// Whether a turn is calling tools or streaming.
    busy: bool,
}

/// How far into a message its type is looked for.
const HEAD: usize = 1 << 10;

/// How many requests are entered at once at most.
const BATCH: usize = 256;

impl Reader {
    pub(crate) fn new(shared: Arc<Shared>, lane: Lane, intake: Intake, seen: Arc<Seen>) -> Self {
        let frames = shared.options().limits.calls_in_flight.min(Semaphore::MAX_PERMITS);
        let mut reader = Self {
            routers: shared.router.subscribe(),
            shared,
            lane,
            intake,
            router: None,
            routes: Arc::default(),
            asker: None,
            detours: Detours::default(),
            seen,
            to_actors: Arc::new(Semaphore::new(frames)),
            read: Vec::new(),
            entered: Vec::new(),
            batches: Vec::new(),
            for_router: Vec::new(),
            batch: frames.clamp(1, BATCH),
            busy: false,
        };
        reader.take_router();
        reader
    }

    /// Reads until the stream ends, and the conversation was told what was read. `Err` is what reading said.
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
            self.refresh_router();
            loop {
                let step = lines.next();
                if step == Step::More {
                    break;
                }
                // Most lines need no waiting, and a future for each would be as large as the largest of them needs.
                if let Some(control) = self.step(step, &lines) {
                    Box::pin(self.control(control)).await;
                }
                if self.read.len() >= self.batch {
                    self.enter().await;
                }
            }
            // Control frames first: what is said in the messages of the same read is read beside them.
            let called = !self.read.is_empty();
            self.enter().await;
            if called && self.intake.has_lines() {
                step_back().await;
            }
            self.intake.hand_over().await.map_err(|_| "whoever reads its messages has ended")?;
        }
        // The CLI died in mid-line; or it wrote its last line without an end, which counts.
        let step = lines.rest();
        if let Some(control) = self.step(step, &lines) {
            Box::pin(self.control(control)).await;
        }
        self.enter().await;
        Ok(())
    }

    /// Waits until the conversation was told what came before this. Without the intake the reading ends in any case.
    async fn catch_up(&mut self) {
        self.intake.catch_up().await.ok();
    }

    /// Takes a line. What it does not do at once comes back.
    fn step(&mut self, step: Step, lines: &Lines) -> Option<Control> {
        match step {
            Step::Line(range) => return self.line(lines.bytes(range)),
            Step::TooLong(bytes) => {
                self.shared.counting.overlong_lines.one();
                let bound = self.shared.options().limits.line_bytes;
                let reason = format!("longer than `limits.line_bytes` ({bound})");
                self.intake.lost(reason, bytes);
            }
            Step::More => {}
        }
        None
    }

    fn line(&mut self, line: &[u8]) -> Option<Control> {
        if Message::is_plainly(line) {
            self.busy |= line.starts_with(b"{\"type\":\"stream_event\"");
            self.message(line);
            return None;
        }
        if let Some(read) = self.plain_call(line) {
            self.busy = true;
            self.read.push(read);
            return None;
        }
        match Frame::parse(line) {
            Ok(Frame::Request {
                request_id,
                body: body @ (Request::Silent { .. } | Request::Unknown { .. } | Request::Incomplete { .. }),
            }) => return Some(Control::Unserved(request_id, body)),
            Ok(Frame::Request { request_id, body }) => self.request(&request_id, body, false),
            Ok(Frame::Response(reply)) => return Some(Control::Reply(Box::new(reply))),
            Ok(Frame::Cancel { request_id }) => return Some(Control::Withdrawn(request_id)),
            Ok(Frame::Message) => self.message(line),
            Ok(Frame::KeepAlive) => {}
            Err(Unreadable::Blank | Unreadable::Noise) => {
                self.shared.counting.noise_lines.one();
                self.seen.noise.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(parent: &self.shared.span, line = %String::from_utf8_lossy(&line[..line.len().min(200)]), "not a frame");
            }
            Err(Unreadable::Malformed(reason)) => {
                self.shared.counting.malformed_lines.one();
                self.seen.noise.fetch_add(1, Ordering::Relaxed);
                self.intake.lost(reason, line.len());
            }
        }
        None
    }

    fn message(&mut self, line: &[u8]) {
        if self.lane.awaits_begin() && Message::begins_turn(line) {
            self.lane.note_begin();
        }
        // A text that reads like a result costs no more than a buffer that is made anew.
        if self.busy && memmem::find(&line[..line.len().min(HEAD)], b"\"result\"").is_some() {
            self.busy = false;
        }
        self.intake.line(line);
    }

    /// A control frame that is no request. What was read before it goes first.
    async fn control(&mut self, control: Control) {
        self.enter().await;
        match control {
            Control::Reply(mut reply) => {
                let pending = std::mem::take(&mut reply.pending);
                // Whoever asked may go by what was said before the answer.
                self.catch_up().await;
                let place = self.place(1).await;
                self.hand_to_router(RouterMessage::Reply(*reply, place)).await;
                for (request_id, body) in pending {
                    self.request(&request_id, body, true);
                    if self.read.len() >= self.batch {
                        self.enter().await;
                    }
                }
            }
            Control::Withdrawn(request_id) => self.withdrawn(&request_id),
            Control::Unserved(request_id, body) => {
                // Nobody waits for it, and it may be about what was said before it.
                self.catch_up().await;
                self.request(&request_id, body, false);
            }
        }
    }

    /// A call of a tool, where the line is plainly one and there is a route to a server with tools of its own. Everything
    /// else takes the longer way.
    fn plain_call(&self, line: &[u8]) -> Option<Read> {
        let call = Call::parse(line)?;
        let route = self.routes.get(&*call.server).filter(|route| route.own_tools)?;
        let head = Head::new(Parts {
            request_id: &call.request_id,
            rpc_id: Some(call.rpc_id),
            tool: Some(&call.tool),
            tool_use_id: call.tool_use_id.as_deref(),
            progress_token: call.progress_token,
        });
        let incoming = Incoming::Call(call.arguments.map(ToOwned::to_owned));
        let body = Body::Mcp { server: route.server.clone(), incoming, route: Some(route.clone()) };
        Some(Read { head, body, replayed: false })
    }

    /// The CLI withdraws what it asked.
    fn withdrawn(&mut self, request_id: &str) {
        match self.router.as_ref().and_then(|router| router.ledger.get(request_id)) {
            Some(owed) => {
                tracing::debug!(parent: &owed.span, "withdrawn by the CLI");
                owed.orphan();
            }
            None => self.shared.counting.unmatched_cancels.one(),
        }
    }

    /// A request, live or listed as pending.
    fn request(&mut self, request_id: &str, body: Request, replayed: bool) {
        let (head, body) = match body {
            Request::Mcp { server, rpc } => {
                let rpc_id = match &rpc {
                    Rpc::Request { id, .. } => Some(id.get()),
                    _ => None,
                };
                let head = Head::new(Parts { request_id, rpc_id, ..Parts::default() });
                let route = self.routes.get(&*server).cloned();
                let server = route.as_ref().map_or_else(|| Arc::from(server), |route| route.server.clone());
                (head, Body::Mcp { server, incoming: Incoming::Rpc(rpc), route })
            }
            body => (Head::new(Parts { request_id, ..Parts::default() }), Body::Other(body)),
        };
        self.read.push(Read { head, body, replayed });
    }

    /// Enters what was read in the ledger, and sends it to whoever serves it.
    async fn enter(&mut self) {
        if !self.read.is_empty() && !self.enter_at_once() {
            Box::pin(self.enter_in_time()).await;
        }
    }

    /// The same where nothing has to be waited for; false if something is left to be done.
    fn enter_at_once(&mut self) -> bool {
        let Ok(frames) = u32::try_from(self.read.len()) else { return false };
        let Some(asker) = self.asker.clone().filter(|asker| !asker.ledger.is_closed()) else { return false };
        let Ok(permit) = self.to_actors.clone().try_acquire_many_owned(frames) else { return false };
        self.enter_with(&asker, Place { permit: Some(permit) });
        self.for_router.is_empty()
    }

    async fn enter_in_time(&mut self) {
        if !self.read.is_empty() {
            let place = self.place(self.read.len()).await;
            // With the router comes the ledger. Without one, and without one to come, requests are answered by their drop.
            let asker = self.asker().await;
            self.enter_with(&asker, place);
        }
        for message in std::mem::take(&mut self.for_router) {
            self.hand_to_router(message).await;
        }
    }

    fn enter_with(&mut self, asker: &Arc<Asker>, mut place: Place) {
        let mut read = std::mem::take(&mut self.read);
        let mut entered = std::mem::take(&mut self.entered);
        let received = Instant::now();
        for Read { head, body, replayed } in read.drain(..) {
            let (kind, server_gate) = self.kind(&body);
            let full = if self.shared.gate.is_full() {
                Some(self.shared.gate.clone())
            } else {
                server_gate.as_ref().filter(|gate| gate.is_full()).cloned()
            };
            let span = self.shared.request_span(head.request_id(), kind, self.lane.epoch());
            let mcp = matches!(body, Body::Mcp { .. });
            let answer = Answer::new(asker, NewOwed { head, kind, mcp, received, server_gate, span });
            entered.push(Entered { answer, body, full, replayed, admission: None });
        }
        if let Some(mut ledger) = asker.ledger.admissions(self.shared.options().limits.calls_in_flight) {
            for new in &mut entered {
                new.admission = Some(ledger.admit(new.answer.owed(), new.replayed));
            }
        }
        self.read = read;
        let mut batches = std::mem::take(&mut self.batches);
        let several = entered.len();
        for new in entered.drain(..) {
            let Some((answer, body)) = self.admitted(new) else { continue };
            let asked = match body {
                // What comes after something that goes through the router does not overtake it.
                Body::Mcp { incoming, route: Some(route), .. } if !self.detours.any() => {
                    match batches.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &route)) {
                        Some((_, batch)) => {
                            let begun = std::mem::replace(batch, Batch::Many(Vec::new()));
                            *batch = begun.push(answer, incoming, several);
                        }
                        None => batches.push((route, Batch::One(answer, incoming))),
                    }
                    continue;
                }
                Body::Mcp { server, incoming, .. } => {
                    Asked::Mcp { server, incoming, detour: self.detours.begin() }
                }
                Body::Other(body) => Asked::Other(body),
            };
            self.for_router.push(RouterMessage::Request { answer, asked, place: place.split(1) });
        }
        let mut failed = Vec::new();
        for (route, batch) in batches.drain(..) {
            let asked = ServerMessage::Asked { place: place.split(batch.len()), batch };
            let Err(error) = route.actor.cast(asked) else { continue };
            // It has ended; the router will know what comes next.
            if let MessagingErr::SendErr(ServerMessage::Asked { batch, mut place }) = error {
                failed.extend(batch.into_iter().map(|(answer, incoming)| {
                    let (server, detour) = (route.server.clone(), self.detours.begin());
                    let asked = Asked::Mcp { server, incoming, detour };
                    RouterMessage::Request { answer, asked, place: place.split(1) }
                }));
            }
        }
        // It was read before what goes through the router anyway.
        self.for_router.splice(0..0, failed);
        (self.entered, self.batches) = (entered, batches);
    }

    /// What is said of it in the books, and the gate of the server that it is for.
    fn kind(&self, body: &Body) -> (&'static str, Option<Arc<Gate>>) {
        let kind = match body {
            Body::Mcp { server, route, .. } => {
                let gate = route.as_ref().and_then(|route| route.gate.clone());
                let gate = gate.or_else(|| self.shared.roster.borrow().gate(server).cloned());
                return ("mcp_message", gate);
            }
            Body::Other(Request::CanUseTool(_)) => "can_use_tool",
            Body::Other(Request::Hook { .. }) => "hook_callback",
            Body::Other(Request::Elicitation(_)) => "elicitation",
            Body::Other(Request::Dialog { .. }) => "request_user_dialog",
            Body::Other(Request::Silent { .. }) => "silent",
            Body::Other(Request::Unknown { .. } | Request::Incomplete { .. } | Request::Mcp { .. }) => {
                "unknown"
            }
        };
        (kind, None)
    }

    /// What is to be done for it, unless it is over already.
    fn admitted(&self, new: Entered) -> Option<(Answer, Body)> {
        let Entered { answer, body, full, admission, .. } = new;
        let request_id = answer.owed().request_id();
        match admission {
            Some(Admission::Fine) => {}
            Some(Admission::Ended) => {
                answer.without_answer();
                return None;
            }
            Some(Admission::Known) => {
                tracing::debug!(request_id, "pending by the CLI's list, and known here");
                answer.without_answer();
                return None;
            }
            Some(Admission::Duplicate) => {
                self.shared.counting.duplicate_requests.one();
                tracing::warn!(request_id, "the CLI used a request id again while it was in flight");
                answer.without_answer();
                return None;
            }
            // There is no router: the session is going down. It is answered by its drop.
            None => return None,
        }
        let passes = match &body {
            // What ends a call must come through when there are too many, and so must what a call waits for. Neither
            // holds a place for long.
            Body::Mcp {
                incoming: Incoming::Rpc(Rpc::Notification { .. } | Rpc::Response { .. }), ..
            } => true,
            // What is left without an answer holds none at all.
            Body::Other(Request::Silent { .. }) => true,
            Body::Other(Request::Dialog { kind, .. }) => !self.shared.spec.handlers.declare(kind.as_deref()),
            _ => false,
        };
        if let Some(gate) = full.filter(|_| !passes) {
            self.shared.counting.at_capacity.one();
            if gate.is_news() {
                self.shared.emit(Event::AtCapacity { server: gate.server.clone(), limit: gate.limit });
            }
            answer.owed().refuse(&RpcError::internal(gate.refusal()));
            return None;
        }
        Some((answer, body))
    }

    /// Places for so many control frames in the mailboxes of actors, which have no bound of their own.
    async fn place(&self, frames: usize) -> Place {
        // Never more than `batch`.
        let frames = u32::try_from(frames).unwrap_or(u32::MAX);
        Place { permit: self.to_actors.clone().acquire_many_owned(frames).await.ok() }
    }

    /// Hands something to the router; when that one has just ended, to the next.
    async fn hand_to_router(&mut self, mut message: RouterMessage) {
        while let Some(router) = &self.router {
            let Err(MessagingErr::SendErr(back)) = router.actor.cast(message) else { return };
            if let RouterMessage::Request { answer, .. } = &back
                && !answer.owed().is_open()
            {
                // The router that ended has answered what was entered.
                return;
            }
            message = back;
            // Without a next one the session is going down. A request is answered by its drop.
            self.next_router().await;
        }
    }

    /// What requests have in common: this incarnation, and the ledger of a router that lives.
    async fn asker(&mut self) -> Arc<Asker> {
        self.refresh_router();
        loop {
            let Some(asker) = &self.asker else {
                // Nobody would look after them in a ledger.
                let closed = Arc::<Ledger>::default();
                closed.close();
                return self.new_asker(closed);
            };
            if !asker.ledger.is_closed() {
                return asker.clone();
            }
            self.next_router().await;
        }
    }

    fn new_asker(&self, ledger: Arc<Ledger>) -> Arc<Asker> {
        let (counting, gate) = (self.shared.counting.clone(), self.shared.gate.clone());
        Arc::new(Asker { lane: self.lane.clone(), ledger, counting, gate })
    }

    /// Waits for the router that follows one that has ended.
    async fn next_router(&mut self) {
        let ended = self.router.take().map(|router| router.actor.get_id());
        self.asker = None;
        let limit = self.shared.options().timeouts.child_stop;
        let is_next = |router: &Option<RouterLink>| {
            router.as_ref().is_some_and(|router| Some(router.actor.get_id()) != ended)
        };
        let next = tokio::time::timeout(limit, self.routers.wait_for(is_next)).await;
        if matches!(next, Ok(Ok(_))) {
            drop(next);
            self.take_router();
        }
    }

    fn take_router(&mut self) {
        let router = self.routers.borrow_and_update().clone();
        if let Some(router) = router {
            // The news of the end of the one before may still be on its way to the router.
            router.ledger.end_epoch(self.lane.epoch().saturating_sub(1));
            self.asker = Some(self.new_asker(router.ledger.clone()));
            self.router = Some(router);
            self.take_ways();
        }
    }

    fn take_ways(&mut self) {
        if let Some(router) = &mut self.router {
            self.routes = router.routes.borrow_and_update().clone();
        }
    }

    /// The router of the moment, so that news of a request goes to the one that has it on its list; and its routes.
    fn refresh_router(&mut self) {
        if self.routers.has_changed().unwrap_or(false) {
            self.take_router();
        } else if self.router.as_ref().is_some_and(|router| router.routes.has_changed().unwrap_or(false)) {
            self.take_ways();
        }
    }
}

/// Reads what there is. While there is nothing, the buffer is a small one, unless a turn is busy: then more comes at once.
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
