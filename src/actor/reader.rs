//! Reads one incarnation's stdout: control frames go to the router, messages to the conversation.
//!
//! The reader never waits for whoever reads messages. It waits for two actors only, which wait for nobody: for the
//! conversation, when more than `Limits::message_lane_bytes` are on their way to it, and for the router, when as many
//! control frames are on their way to it as `Limits::calls_in_flight`, or when the last one has just ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ractor::{ActorRef, MessagingErr};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::conversation::ConversationMessage;
use super::lane::Lane;
use super::ledger::{Answer, NewOwed};
use super::router::RouterMessage;
use super::shared::Shared;
use crate::report::Event;
use crate::wire::Message;
use crate::wire::envelope::{Frame, Request, Unreadable};
use crate::wire::line::{Lines, Step};
use crate::wire::rpc::Rpc;

/// What the reader has seen that explains an end.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Lines that were no frames.
    pub(crate) noise: AtomicU64,
    /// An error result with which the CLI may be about to exit on purpose.
    last_error: Mutex<Option<ErrorSeen>>,
}

/// An error result.
#[derive(Clone, Debug)]
pub(crate) struct ErrorSeen {
    pub(crate) text: String,
    /// Whether it is about the start of the CLI itself: its sandbox, its settings.
    pub(crate) of_start: bool,
}

impl Seen {
    pub(crate) fn last_error(&self) -> Option<ErrorSeen> {
        self.last_error.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    fn note(&self, message: &Message) {
        let mut last = self.last_error.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match message {
            Message::Result(result) if !result.is_success() => {
                let of_start = result.startup_failure_reason.is_some();
                *last = result.error_text().map(|text| ErrorSeen { text, of_start });
            }
            // These may come between an error result and the exit that it announces.
            Message::System(system)
                if matches!(
                    &*system.subtype,
                    "session_state_changed" | "session_writes_lost" | "plugin_install"
                ) => {}
            Message::CommandLifecycle(_) => {}
            _ => *last = None,
        }
    }
}

/// Messages on their way to the conversation, in bytes.
pub(crate) struct Weight {
    _bytes: Option<OwnedSemaphorePermit>,
}

/// A control frame on its way to the router, given back when the router takes it or has ended.
pub(crate) struct Place {
    _permit: Option<OwnedSemaphorePermit>,
}

pub(crate) struct Reader {
    shared: Arc<Shared>,
    lane: Lane,
    conversation: ActorRef<ConversationMessage>,
    routers: watch::Receiver<Option<ActorRef<RouterMessage>>>,
    router: ActorRef<RouterMessage>,
    seen: Arc<Seen>,
    on_the_way: Arc<Semaphore>,
    to_router: Arc<Semaphore>,
}

impl Reader {
    pub(crate) fn new(
        shared: Arc<Shared>,
        lane: Lane,
        conversation: ActorRef<ConversationMessage>,
        router: ActorRef<RouterMessage>,
        seen: Arc<Seen>,
    ) -> Self {
        let mut routers = shared.router.subscribe();
        // The one that is given may have been replaced meanwhile.
        let router = routers.borrow_and_update().clone().unwrap_or(router);
        let bytes = shared.options().limits.message_lane_bytes.min(Semaphore::MAX_PERMITS);
        let frames = shared.options().limits.calls_in_flight.min(Semaphore::MAX_PERMITS);
        Self {
            shared,
            lane,
            conversation,
            routers,
            router,
            seen,
            on_the_way: Arc::new(Semaphore::new(bytes)),
            to_router: Arc::new(Semaphore::new(frames)),
        }
    }

    /// Reads until the stream ends. `Err` is what reading said.
    pub(crate) async fn run(mut self, mut stdout: impl AsyncRead + Unpin) -> Result<(), String> {
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
        }
        match lines.rest() {
            // The CLI died in mid-line; or it wrote its last line without an end, which counts.
            Step::Line(range) => self.line(lines.bytes(range)).await,
            Step::TooLong(bytes) => self.too_long(bytes),
            Step::More => {}
        }
        Ok(())
    }

    fn too_long(&self, bytes: usize) {
        self.shared.counting.overlong_lines.one();
        let reason = format!("longer than `limits.line_bytes` ({})", self.shared.options().limits.line_bytes);
        self.skipped(reason, bytes);
    }

    /// A line is lost. It may have been a message that somebody waits for.
    fn skipped(&self, reason: String, bytes: usize) {
        let epoch = self.lane.epoch();
        self.shared.emit(Event::LineSkipped { epoch, reason: reason.clone(), bytes });
        // A conversation that has ended takes the session with it.
        self.conversation.cast(ConversationMessage::LineLost { epoch, reason }).ok();
    }

    async fn line(&mut self, line: &[u8]) {
        match Frame::parse(line) {
            Ok(Frame::Request { request_id, body }) => self.request(request_id, body, false).await,
            Ok(Frame::Response(mut reply)) => {
                let pending = std::mem::take(&mut reply.pending);
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
            Ok(Frame::Message) => self.message(line).await,
            Ok(Frame::KeepAlive) => {}
            Err(Unreadable::Blank | Unreadable::Noise) => {
                self.shared.counting.noise_lines.one();
                self.seen.noise.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(parent: &self.shared.span, line = %String::from_utf8_lossy(&line[..line.len().min(200)]), "not a frame");
            }
            Err(Unreadable::Malformed(reason)) => {
                self.shared.counting.malformed_lines.one();
                self.seen.noise.fetch_add(1, Ordering::Relaxed);
                self.skipped(reason, line.len());
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

    async fn message(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let message = match Message::parse(&text) {
            Ok(message) => message,
            Err(error) => {
                self.shared.counting.malformed_lines.one();
                let reason = error.to_string();
                return self.skipped(reason, line.len());
            }
        };
        self.shared.counting.messages.one();
        if let Some(mirror) = self.shared.mirror()
            && message.kind() == "transcript_mirror"
        {
            // Not for the application; and what it says comes before the result that follows.
            return mirror.push(message.raw());
        }
        self.seen.note(&message);
        // A message larger than the whole lane waits until the lane is empty.
        let most = self.shared.options().limits.message_lane_bytes.min(Semaphore::MAX_PERMITS);
        let bytes = u32::try_from(line.len().min(most)).unwrap_or(u32::MAX);
        let weight = Weight { _bytes: self.on_the_way.clone().acquire_many_owned(bytes).await.ok() };
        // A conversation that has ended takes the session with it.
        self.conversation
            .cast(ConversationMessage::Message { epoch: self.lane.epoch(), message, weight })
            .ok();
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
