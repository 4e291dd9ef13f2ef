//! The state that all actors of one session share.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use ractor::ActorRef;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::base::current_value::CurrentValue;
use super::base::gate::Gate;
use super::base::left::LeftProcesses;
use super::base::roster::Roster;
use super::conversation::early::EarlyFeed;
use super::mcp_server::outgoing::Outgoing;
use super::messages::conversation::ConversationMessage;
use super::messages::router::RouterLink;
use super::mirror::Mirror;
use super::outbound::Outbound;
use super::resume::ResumeHome;
use super::router::settings;
use super::supervisor::claims::Claims;
use crate::Options;
use crate::control::CallbackHandlers;
use crate::control::permission::Understands;
use crate::error::{Error, ErrorKind};
use crate::guardian::Watchdog;
use crate::identity::{Identity, SessionData};
use crate::lock::lock;
use crate::options::Limits;
use crate::report::counters::Counting;
use crate::report::feed::{Feed, Subscriber};
use crate::report::{Event, Events};
use crate::requests::{Reply, ServerInfo};
use crate::tool::spec::ServerSpec;
use crate::transport::{ProcessIdentity, StderrSink, Transport, continues};
use crate::wire::Message;
use crate::wire::lenient::{JsonSource, Lenient, ListRule};

/// The definition of a session.
pub(crate) struct SessionSpec {
    pub(crate) options: Options,
    pub(crate) handlers: CallbackHandlers,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) stderr: Option<StderrSink>,
    pub(crate) watchdog: Option<Watchdog>,
    /// Copies transcripts to the session's store, if there is one.
    pub(crate) mirror: Option<Arc<Mirror>>,
    /// Moved into the identity at the start.
    pub(crate) data: SessionData,
}

/// Facts about the conversation that survive every restart. Written by the conversation's actor, and by the supervisor
/// when the first CLI is ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionFacts {
    /// The conversation's id, as the CLI named it or, until then, as the option `conversation` does.
    pub(crate) session_id: Option<String>,
    /// Whether the CLI has named the id.
    pub(crate) captured: bool,
    /// Whether the session began by resuming a conversation. Until the first CLI is ready, whether one was found.
    pub(crate) resumed: bool,
    /// Whether a turn has ended in the conversation: the CLI has written it down by then.
    pub(crate) recorded: bool,
    /// Whether the run is over.
    pub(crate) run_ended: bool,
}

/// The session, for handlers and factories of states.
#[derive(Debug)]
struct SessionIdentity {
    facts: watch::Receiver<SessionFacts>,
    data: SessionData,
}

impl Identity for SessionIdentity {
    fn session_id(&self) -> Option<String> {
        self.facts.borrow().session_id.clone()
    }

    fn data(&self) -> &SessionData {
        &self.data
    }
}

/// The capabilities that the current CLI has named.
#[derive(Clone, Debug, Default)]
pub(crate) struct Capabilities {
    /// Named in the answer to `initialize`: only some of the capabilities.
    pub(crate) of_initialize: Vec<String>,
    /// Named in `system/init`: all capabilities. `None` before the first turn.
    pub(crate) of_init: Option<Vec<String>>,
}

impl Capabilities {
    /// Whether the CLI has the capability; `None` if the CLI has not said yet.
    pub(crate) fn has(&self, name: &str) -> Option<bool> {
        if self.of_initialize.iter().chain(self.of_init.iter().flatten()).any(|known| known == name) {
            return Some(true);
        }
        self.of_init.as_ref().map(|_| false)
    }
}

/// The feeds of a session: open for subscribers before the session starts, until it is gone.
pub(crate) struct Feeds {
    events: Feed<Event>,
    messages: Feed<Message>,
    gone: CancellationToken,
}

impl Feeds {
    pub(crate) fn new(limits: &Limits) -> Self {
        // Clamped here: the options are not checked before the session starts.
        let kept = |kept: usize| kept.clamp(1, Limits::MOST_KEPT);
        Self {
            events: Feed::new(kept(limits.events_kept), limits.kept_bytes),
            messages: Feed::new(kept(limits.messages_kept), limits.kept_bytes),
            gone: CancellationToken::new(),
        }
    }

    pub(crate) fn subscribe(&self) -> Events {
        Events::new(self.events.subscribe(), self.gone.clone())
    }

    pub(crate) fn listen(&self) -> (Subscriber<Message>, CancellationToken) {
        (self.messages.subscribe(), self.gone.clone())
    }
}

/// The shared state of a session.
pub(crate) struct Shared {
    pub(crate) spec: SessionSpec,
    pub(crate) counting: Arc<Counting>,
    /// Counts the CLI's requests in flight. The roster has a gate for each tool server.
    pub(crate) gate: Arc<Gate>,
    /// The current MCP servers. Written by the supervisor.
    pub(crate) roster: watch::Sender<Arc<Roster>>,
    /// Held while the MCP servers or their permission rules are changed.
    pub(crate) changing: Arc<tokio::sync::Mutex<()>>,
    pub(crate) events: Feed<Event>,
    pub(crate) messages: EarlyFeed,
    pub(crate) facts: watch::Sender<SessionFacts>,
    pub(crate) identity: Arc<dyn Identity>,
    /// The answer of the newest CLI to `initialize`.
    pub(crate) server_info: CurrentValue<Arc<Reply<ServerInfo>>>,
    pub(crate) capabilities: CurrentValue<Capabilities>,
    /// Number of requests to the CLI so far; numbers the next one.
    asked: AtomicU64,
    /// The requests that set something at run time, in order. Sent again to every incarnation.
    pub(crate) settings: Mutex<Vec<Value>>,
    /// Settings that the current CLI was asked for and has not answered, each with its request id. The CLI may still
    /// apply them when the caller has stopped waiting or the router has ended. Of withdrawn requests the last is kept
    /// for each thing that can be set.
    settings_asked: Mutex<Vec<(String, Value)>>,
    /// The current router; `None` before the first.
    pub(crate) router: watch::Sender<Option<RouterLink>>,
    /// The queue to the stdin of the current incarnation; `None` while no incarnation is open.
    outbound: CurrentValue<Option<Outbound>>,
    /// The process of the current incarnation; `None` while no incarnation is open, and without a real process.
    pub(crate) process: CurrentValue<Option<ProcessIdentity>>,
    /// Set when the supervisor starts. The conversation never restarts: its end is the end of the session.
    pub(crate) conversation: OnceLock<ActorRef<ConversationMessage>>,
    /// Set when a stop is asked for, before the conversation hears of it.
    refuses_prompts: AtomicBool,
    /// Requests of tool servers to the CLI.
    pub(crate) outgoing: Outgoing,
    pub(crate) span: tracing::Span,
    /// The span of the running turn, or of the session.
    pub(crate) turn_span: CurrentValue<tracing::Span>,
    pub(crate) started: Instant,
    /// Cancelled when the supervisor has ended: nothing happens in this session after that.
    pub(crate) gone: CancellationToken,
    /// Cancelled when the session is killed. Every part that waits for something of its own watches it.
    pub(crate) killed: CancellationToken,
    /// Whether the session began to stop in order.
    pub(crate) in_order: AtomicBool,
    /// The error with which the session has failed.
    pub(crate) failed: OnceLock<Error>,
    /// Processes that had not ended in time.
    pub(crate) left: LeftProcesses,
    /// The configuration folder of a session that was loaded from a store, until the supervisor takes it.
    pub(crate) home: Mutex<Option<ResumeHome>>,
    /// The claim on the conversation.
    pub(crate) claims: Claims,
}

impl Shared {
    pub(crate) fn new(
        mut spec: SessionSpec,
        servers: Vec<Arc<ServerSpec>>,
        feeds: Feeds,
        claims: Claims,
        killed: CancellationToken,
    ) -> Arc<Self> {
        let span = tracing::info_span!(
            parent: None,
            "session",
            session_id = tracing::field::Empty,
            "gen_ai.conversation.id" = tracing::field::Empty,
            "gen_ai.system" = "anthropic",
        );
        let data = std::mem::take(&mut spec.data);
        let limits = &spec.options.limits;
        let facts = SessionFacts {
            session_id: spec.options.conversation.clone(),
            captured: false,
            resumed: spec.options.resume.is_some(),
            recorded: continues(&spec.options),
            run_ended: true,
        };
        let (facts, known) = watch::channel(facts);
        Arc::new(Self {
            counting: Arc::default(),
            gate: Arc::new(Gate::new(None, limits.calls_in_flight)),
            roster: watch::channel(Arc::new(Roster::new(servers, &spec.options))).0,
            changing: Arc::default(),
            events: feeds.events,
            messages: EarlyFeed::new(feeds.messages, limits.early_bytes),
            facts,
            identity: Arc::new(SessionIdentity { facts: known, data }),
            server_info: CurrentValue::new(Arc::new(Reply::new(
                ServerInfo::default(),
                RawValue::NULL.to_owned(),
            ))),
            capabilities: CurrentValue::new(Capabilities::default()),
            asked: AtomicU64::new(0),
            settings: Mutex::default(),
            settings_asked: Mutex::default(),
            router: watch::channel(None).0,
            outbound: CurrentValue::new(None),
            process: CurrentValue::new(None),
            conversation: OnceLock::new(),
            refuses_prompts: AtomicBool::new(false),
            outgoing: Outgoing::default(),
            turn_span: CurrentValue::new(span.clone()),
            span,
            started: Instant::now(),
            gone: feeds.gone,
            killed,
            in_order: AtomicBool::new(false),
            failed: OnceLock::new(),
            left: LeftProcesses::default(),
            home: Mutex::default(),
            claims,
            spec,
        })
    }

    /// Copies transcripts to the session's store, if there is one.
    pub(crate) fn mirror(&self) -> Option<&Arc<Mirror>> {
        self.spec.mirror.as_ref()
    }

    pub(crate) fn options(&self) -> &Options {
        &self.spec.options
    }

    /// The current MCP servers.
    pub(crate) fn roster(&self) -> Arc<Roster> {
        self.roster.borrow().clone()
    }

    /// Has the conversation refuse prompts from now on.
    pub(crate) fn refuse_prompts(&self) {
        self.refuses_prompts.store(true, Ordering::Release);
    }

    pub(crate) fn refuses_prompts(&self) -> bool {
        self.refuses_prompts.load(Ordering::Acquire)
    }

    /// The queue to the stdin of the current incarnation.
    pub(crate) fn outbound(&self) -> Option<Outbound> {
        self.outbound.read().clone()
    }

    /// The queue to the stdin of this incarnation, while the incarnation is the current one.
    pub(crate) fn outbound_of(&self, epoch: u64) -> Option<Outbound> {
        self.outbound().filter(|outbound| outbound.epoch() == epoch)
    }

    /// Publishes the queue of an incarnation that was opened. Never replaces the queue of a later incarnation.
    pub(crate) fn outbound_opened(&self, outbound: Outbound) {
        self.outbound.change(|current| {
            if current.as_ref().is_none_or(|current| current.epoch() < outbound.epoch()) {
                *current = Some(outbound);
            }
        });
    }

    /// Withdraws the queue of an incarnation that has ended.
    pub(crate) fn outbound_ended(&self, epoch: u64) {
        self.outbound.change(|current| drop(current.take_if(|current| current.epoch() <= epoch)));
    }

    /// The requests that set something at run time, in order.
    pub(crate) fn settings(&self) -> Vec<Value> {
        lock(&self.settings).clone()
    }

    /// The capabilities of the CLI that permission decisions depend on.
    pub(crate) fn understands(&self) -> Understands {
        let unanswered = self.capabilities.read().has("ask_user_question_unanswered_v1") == Some(true);
        Understands { unanswered }
    }

    /// Notes that a request has set something.
    pub(crate) fn note_setting(&self, body: &Value) {
        settings::note(&mut lock(&self.settings), body);
    }

    /// Settings that the CLI was asked for and has not answered; they may be in force or not.
    pub(crate) fn settings_asked(&self) -> MutexGuard<'_, Vec<(String, Value)>> {
        lock(&self.settings_asked)
    }

    /// The id of the next request to the CLI, over all incarnations and routers.
    pub(crate) fn next_request_id(&self) -> String {
        format!("req_{}", self.asked.fetch_add(1, Ordering::Relaxed))
    }

    /// Notes the CLI's answer to `initialize`.
    pub(crate) fn note_server_info(&self, info: Reply<ServerInfo>) {
        self.capabilities.set(Capabilities { of_initialize: info.capabilities.clone(), of_init: None });
        self.server_info.set(Arc::new(info));
    }

    /// Notes capabilities and changed commands that a message names.
    pub(crate) fn note_message(&self, message: &Message) {
        let Message::System(system) = message else { return };
        if let Some(init) = system.init() {
            self.capabilities.change(|known| {
                if known.of_init.as_ref() != Some(&init.capabilities) {
                    known.of_init = Some(init.capabilities.clone());
                }
            });
        }
        if system.subtype == "commands_changed"
            && let Some(commands) = message
                .field("commands")
                .and_then(|commands| Lenient::read(JsonSource::Parsed(&commands), ListRule::Whole))
        {
            self.server_info.change(|info| Arc::make_mut(info).view_mut().commands = commands);
        }
    }

    /// The error for a caller when the session has ended.
    pub(crate) fn gone(&self) -> Error {
        match self.failed.get() {
            Some(error) => Error::new(ErrorKind::SessionFailed, format!("the session has failed: {error}")),
            None if self.in_order.load(Ordering::Acquire) => {
                Error::new(ErrorKind::Stopped, "the session has stopped")
            }
            None => Error::new(
                ErrorKind::SessionFailed,
                "the session was torn down: its actor was killed, or its runtime ended",
            ),
        }
    }

    /// The events from now on.
    pub(crate) fn subscribe(&self) -> Events {
        Events::new(self.events.subscribe(), self.gone.clone())
    }

    /// Sends an event to the subscribers.
    pub(crate) fn emit(&self, mut event: Event) {
        let bytes = event.shorten();
        tracing::debug!(parent: &self.span, event = ?event, "supervision event");
        self.events.send(event, bytes);
    }

    /// The span of a control request, under that of the running turn.
    pub(crate) fn request_span(&self, request_id: &str, kind: &'static str, epoch: u64) -> tracing::Span {
        tracing::info_span!(
            parent: &*self.turn_span.read(),
            "control_request",
            request_id,
            kind,
            epoch,
            outcome = tracing::field::Empty,
        )
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}
