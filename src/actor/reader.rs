//! Reads one incarnation's stdout: control frames go to the router, messages to the conversation.
//!
//! Messages go by the intake, which reads what they say; a read's control frames go first.
//!
//! The reader never waits for whoever reads messages. It waits for two actors only, which wait for nobody: for the
//! conversation, when more than `Limits::message_lane_bytes` are on their way to it, and for the router, when as many
//! control frames are on their way to it as `Limits::calls_in_flight`, or when the last one has just ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ractor::{ActorRef, MessagingErr};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::intake::{Intake, Seen};
use super::lane::Lane;
use super::ledger::{Answer, NewOwed};
use super::router::RouterMessage;
use super::shared::Shared;
use crate::wire::Message;
use crate::wire::envelope::{Frame, Request, Unreadable};
use crate::wire::line::{Lines, Step};
use crate::wire::rpc::Rpc;

/// A control frame on its way to the router, given back when the router takes it or has ended.
pub(crate) struct Place {
    _permit: Option<OwnedSemaphorePermit>,
}

pub(crate) struct Reader {
    shared: Arc<Shared>,
    lane: Lane,
    intake: Intake,
    routers: watch::Receiver<Option<ActorRef<RouterMessage>>>,
    router: ActorRef<RouterMessage>,
    seen: Arc<Seen>,
    to_router: Arc<Semaphore>,
}

impl Reader {
    pub(crate) fn new(
        shared: Arc<Shared>,
        lane: Lane,
        intake: Intake,
        router: ActorRef<RouterMessage>,
        seen: Arc<Seen>,
    ) -> Self {
        let mut routers = shared.router.subscribe();
        // The one that is given may have been replaced meanwhile.
        let router = routers.borrow_and_update().clone().unwrap_or(router);
        let frames = shared.options().limits.calls_in_flight.min(Semaphore::MAX_PERMITS);
        Self { shared, lane, intake, routers, router, seen, to_router: Arc::new(Semaphore::new(frames)) }
    }

    /// Reads until the stream ends, and the conversation was told what was read. `Err` is what reading said.
    pub(crate) async fn run(mut self, stdout: impl AsyncRead + Unpin) -> Result<(), String> {
        let end = self.read(stdout).await;
        self.catch_up().await;
        end
    }

    async fn read(&mut self, mut stdout: impl AsyncRead + Unpin) -> Result<(), String> {
        let mut lines = Lines::new(self.shared.options().limits.line_bytes);
        loop {
            match stdout.read_buf(lines.room()).await {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => return Err(error.to_string()),
            }
            loop {
                match lines.next() {
                    Step::Line(range) => self.line(lines.bytes(range)).await,
                    Step::TooLong(bytes) => self.too_long(bytes),
                    Step::More => break,
                }
            }
            self.intake.hand_over().await.map_err(|_| "whoever reads its messages has ended")?;
        }
        match lines.rest() {
            // The CLI died in mid-line; or it wrote its last line without an end, which counts.
            Step::Line(range) => self.line(lines.bytes(range)).await,
            Step::TooLong(bytes) => self.too_long(bytes),
            Step::More => {}
        }
        Ok(())
    }

    /// Waits until the conversation was told what came before this. Without the intake the reading ends in any case.
    async fn catch_up(&mut self) {
        self.intake.catch_up().await.ok();
    }

    fn too_long(&mut self, bytes: usize) {
        self.shared.counting.overlong_lines.one();
        let reason = format!("longer than `limits.line_bytes` ({})", self.shared.options().limits.line_bytes);
        self.intake.lost(reason, bytes);
    }

    async fn line(&mut self, line: &[u8]) {
        if Message::is_plainly(line) {
            return self.intake.line(line);
        }
        match Frame::parse(line) {
            Ok(Frame::Request { request_id, body }) => self.request(request_id, body, false).await,
            Ok(Frame::Response(mut reply)) => {
                let pending = std::mem::take(&mut reply.pending);
                // Whoever asked may go by what was said before the answer.
                self.catch_up().await;
                let place = self.place().await;
                self.hand_to_router(RouterMessage::Reply(reply, place)).await;
                for (request_id, body) in pending {
                    self.request(request_id, body, true).await;
                }
            }
            Ok(Frame::Cancel { request_id }) => {
                let place = self.place().await;
                self.hand_to_router(RouterMessage::Withdrawn { request_id, place }).await;
            }
            Ok(Frame::Message) => self.intake.line(line),
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
    }

    /// A request, live or listed as pending.
    async fn request(&mut self, request_id: String, body: Request, replayed: bool) {
        let (kind, mcp, rpc_id) = match &body {
            Request::Mcp { rpc: Rpc::Request { id, .. }, .. } => ("mcp_message", true, Some(id.clone())),
            Request::Mcp { .. } => ("mcp_message", true, None),
            Request::CanUseTool(_) => ("can_use_tool", false, None),
            Request::Hook { .. } => ("hook_callback", false, None),
            Request::Elicitation(_) => ("elicitation", false, None),
            Request::Dialog { .. } => ("request_user_dialog", false, None),
            Request::Silent { .. } => ("silent", false, None),
            Request::Unknown { .. } | Request::Incomplete { .. } => ("unknown", false, None),
        };
        if matches!(body, Request::Silent { .. } | Request::Unknown { .. } | Request::Incomplete { .. }) {
            // Nobody waits for it, and it may be about what was said before it.
            self.catch_up().await;
        }
        let place = self.place().await;
        self.refresh_router();
        let server_gate = match &body {
            Request::Mcp { server, .. } => self.shared.roster.borrow().gate(server).cloned(),
            _ => None,
        };
        let full =
            [Some(&self.shared.gate), server_gate.as_ref()].into_iter().flatten().find(|gate| gate.is_full());
        let full = full.cloned();
        let answer = Answer::new(NewOwed {
            span: self.shared.request_span(&request_id, kind, self.lane.epoch()),
            request_id,
            kind,
            mcp,
            rpc_id,
            lane: &self.lane,
            router: &self.router,
            counting: &self.shared.counting,
            gate: &self.shared.gate,
            server_gate: server_gate.as_ref(),
        });
        // Full or not, the router has the word: it knows which requests may be answered at all.
        self.hand_to_router(RouterMessage::Request { answer, body, full, replayed, place }).await;
    }

    /// A place in the router's mailbox, which has no bound of its own.
    async fn place(&self) -> Place {
        Place { _permit: self.to_router.clone().acquire_owned().await.ok() }
    }

    /// Hands something to the router; when that one has just ended, to the next.
    async fn hand_to_router(&mut self, mut message: RouterMessage) {
        while let Err(error) = self.router.cast(message) {
            let MessagingErr::SendErr(back) = error else { return };
            message = back;
            let limit = self.shared.options().timeouts.child_stop;
            let ended = self.router.get_id();
            let is_next = |router: &Option<ActorRef<RouterMessage>>| {
                router.as_ref().is_some_and(|router| router.get_id() != ended)
            };
            let next = match tokio::time::timeout(limit, self.routers.wait_for(is_next)).await {
                Ok(Ok(router)) => router.clone(),
                // There will be no next one: the session is going down. A request is answered by its drop.
                Ok(Err(_)) | Err(_) => None,
            };
            let Some(next) = next else { return };
            self.router = next;
        }
    }

    /// The router of the moment, so that news of a request goes to the one that has it on its list.
    fn refresh_router(&mut self) {
        if self.routers.has_changed().unwrap_or(false)
            && let Some(router) = self.routers.borrow_and_update().clone()
        {
            self.router = router;
        }
    }
}
