//! The state that all actors of one session share.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};

use ractor::ActorRef;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::base::current_value::CurrentValue;
use super::base::gate::Gate;
use super::current_cli::CurrentCli;
use super::ending::Ending;
use super::messages::children::CallbacksMessage;
use super::messages::conversation::ConversationMessage;
use super::messages::router::RouterMessage;
use super::messages::session::{Internal, SessionMessage};
use super::mirror::Mirror;
use super::request::ledger::Ledger;
use super::resume::ResumeHome;
use super::router::settings::Settings;
use super::servers::roster::Roster;
use super::spans::SpanFacts;
use super::supervisor::claims::Claims;
use super::turn::cli_turns::{CliTurns, CliTurnsFeed};
use crate::Options;
use crate::control::CallbackHandlers;
use crate::guardian::Watchdog;
use crate::identity::{Identity, SessionData};
use crate::options::Limits;
use crate::report::counters::Counting;
use crate::report::feed::{Feed, Subscriber};
use crate::report::{DeferredCall, Event, Events};
use crate::tool::spec::ServerSpec;
use crate::transport::{StderrSink, Transport, continues};
use crate::wire::Message;

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
    /// The deferred call with which the conversation goes on.
    pub(crate) resumed_call: Option<DeferredCall>,
}

/// Facts about the conversation that survive every restart. Written by the conversation's actor, and by the supervisor
/// when the first CLI is ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionFacts {
    /// The conversation's id, as the CLI named it or, until then, as the option `conversation` or the call to resume does.
    pub(crate) session_id: Option<String>,
    /// Whether the CLI has named the id.
    pub(crate) captured: bool,
    /// Whether the session began by resuming a conversation. Until the first CLI is ready, whether one was found.
    pub(crate) resumed: bool,
    /// Whether a deferred call is being resumed, until its turn has ended.
    pub(crate) resuming: bool,
    /// Whether a turn has ended in the conversation: the CLI has written it down by then.
    pub(crate) recorded: bool,
    /// Whether the run is over.
    pub(crate) run_ended: bool,
    /// Whether background tasks of the CLI keep the run open.
    pub(crate) background: bool,
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

/// The feeds of a session: open for subscribers before the session starts, until it is gone.
pub(crate) struct Feeds {
    events: Feed<Event>,
    messages: Feed<Message>,
    cli_turns: CliTurnsFeed,
    gone: CancellationToken,
}

impl Feeds {
    pub(crate) fn new(limits: &Limits) -> Self {
        // Clamped here: the options are not checked before the session starts.
        let kept = |kept: usize| kept.clamp(1, Limits::MOST_KEPT);
        Self {
            events: Feed::new(kept(limits.events_kept), limits.kept_bytes),
            messages: Feed::new(kept(limits.messages_kept), limits.kept_bytes),
            cli_turns: CliTurnsFeed::default(),
            gone: CancellationToken::new(),
        }
    }

    pub(crate) fn subscribe(&self) -> Events {
        Events::of(self.events.subscribe(), self.gone.clone())
    }

    pub(crate) fn cli_turns(&self) -> CliTurns {
        self.cli_turns.subscribe(self.gone.clone())
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
    pub(crate) roster: CurrentValue<Arc<Roster>>,
    /// Held while the MCP servers or their permission rules are changed.
    pub(crate) changing: Arc<tokio::sync::Mutex<()>>,
    pub(crate) events: Feed<Event>,
    pub(crate) messages: Feed<Message>,
    pub(crate) cli_turns: CliTurnsFeed,
    pub(crate) facts: watch::Sender<SessionFacts>,
    pub(crate) identity: Arc<dyn Identity>,
    /// Number of requests to the CLI so far; numbers the next one.
    pub(crate) asked: AtomicU64,
    pub(crate) settings: Settings,
    pub(crate) cli: CurrentCli,
    pub(crate) ending: Ending,
    /// The current router; `None` before the first.
    pub(crate) router: watch::Sender<Option<ActorRef<RouterMessage>>>,
    /// The newest callbacks; `None` before the first.
    pub(crate) callbacks: CurrentValue<Option<ActorRef<CallbacksMessage>>>,
    /// The open requests of the CLI.
    pub(crate) ledger: Arc<Ledger>,
    /// Set when the supervisor starts. The conversation never restarts: its end is the end of the session.
    pub(crate) conversation: OnceLock<ActorRef<ConversationMessage>>,
    /// Set when the supervisor starts.
    pub(crate) supervisor: OnceLock<ActorRef<SessionMessage>>,
    pub(crate) span: tracing::Span,
    /// What the spans have in common.
    pub(crate) spans: SpanFacts,
    /// The span of the running turn, or of the session.
    pub(crate) turn_span: CurrentValue<tracing::Span>,
    pub(crate) started: Instant,
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
        let spans = SpanFacts::new(&spec.options);
        let span = spans.session();
        let data = std::mem::take(&mut spec.data);
        let limits = &spec.options.limits;
        let facts = SessionFacts {
            session_id: spec
                .options
                .conversation
                .clone()
                .or_else(|| spec.resumed_call.as_ref().map(|call| call.session_id.clone())),
            captured: false,
            resumed: spec.options.resume.is_some(),
            resuming: spec.resumed_call.is_some(),
            recorded: continues(&spec.options),
            run_ended: true,
            background: false,
        };
        let (facts, known) = watch::channel(facts);
        Arc::new(Self {
            counting: Arc::default(),
            gate: Arc::new(Gate::new(None, limits.calls_in_flight)),
            roster: CurrentValue::new(Arc::new(Roster::new(servers, &spec.options))),
            changing: Arc::default(),
            events: feeds.events,
            messages: feeds.messages,
            cli_turns: feeds.cli_turns,
            facts,
            identity: Arc::new(SessionIdentity { facts: known, data }),
            asked: AtomicU64::new(0),
            settings: Settings::default(),
            cli: CurrentCli::new(),
            ending: Ending::new(killed, feeds.gone),
            router: watch::channel(None).0,
            callbacks: CurrentValue::new(None),
            ledger: Arc::new(Ledger::new(limits.calls_in_flight)),
            conversation: OnceLock::new(),
            supervisor: OnceLock::new(),
            turn_span: CurrentValue::new(span.clone()),
            span,
            spans,
            started: Instant::now(),
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
        self.roster.read().clone()
    }

    /// The events from now on.
    pub(crate) fn subscribe(&self) -> Events {
        Events::of(self.events.subscribe(), self.ending.gone.clone())
    }

    /// Tells the supervisor. One that has ended misses the message, and has taken the rest of the session with it.
    pub(crate) fn tell(&self, message: Internal) {
        if let Some(supervisor) = self.supervisor.get() {
            supervisor.cast(SessionMessage::Internal(message)).ok();
        }
    }

    /// Tells the conversation. One that has ended takes the session with it.
    pub(crate) fn tell_conversation(&self, message: ConversationMessage) {
        if let Some(conversation) = self.conversation.get() {
            conversation.cast(message).ok();
        }
    }

    /// Sends an event to the subscribers.
    pub(crate) fn emit(&self, mut event: Event) {
        let bytes = event.shorten();
        tracing::debug!(parent: &self.span, event = ?event, "supervision event");
        self.spans.metrics().event(&event);
        self.events.send(event, bytes);
    }
}
