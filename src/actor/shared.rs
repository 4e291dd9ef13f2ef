//! What all actors of one session share: its specification, its counters, and where its events go.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::admission::Gate;
use super::mirror::Mirror;
use super::outgoing::Outgoing;
use super::resume::ResumeHome;
use super::roster::Roster;
use super::routes::RouterLink;
use super::settings;
use crate::control::Handlers;
use crate::control::permission::Understands;
use crate::error::{Error, ErrorKind};
use crate::options::{Limits, Options};
use crate::report::counters::Counting;
use crate::report::feed::Feed;
use crate::report::{Event, Events};
use crate::requests::read::Lenient;
use crate::requests::{Reply, ServerInfo};
use crate::tool::server::ServerSpec;
use crate::transport::{StderrSink, Transport, continues};
use crate::wire::Message;

/// What a session is made from.
pub(crate) struct SessionSpec {
    pub(crate) options: Options,
    pub(crate) handlers: Handlers,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) stderr: Option<StderrSink>,
    /// Where transcripts are copied to.
    pub(crate) mirror: Option<Arc<Mirror>>,
}

/// What survives every restart, as plain data. Written by the conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Vitals {
    /// The conversation's id, as the CLI named it.
    pub(crate) session_id: Option<String>,
    /// Whether a turn has ended in it, so that the CLI has written it down.
    pub(crate) recorded: bool,
    /// Whether the run is over.
    pub(crate) run_ended: bool,
}

/// What the CLI of the moment has said of what it can do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Capabilities {
    /// In its answer to `initialize`: only a part of them.
    pub(crate) of_initialize: Vec<String>,
    /// In `system/init`: all of them; `None` before its first turn.
    pub(crate) of_init: Option<Vec<String>>,
}

impl Capabilities {
    /// Whether it has this one; `None` if it has not said yet.
    pub(crate) fn has(&self, name: &str) -> Option<bool> {
        if self.of_initialize.iter().chain(self.of_init.iter().flatten()).any(|known| known == name) {
            return Some(true);
        }
        self.of_init.as_ref().map(|_| false)
    }
}

/// What is so at the moment, for whoever looks. A `watch` channel is for those who wait for the next, and is ten times as
/// large.
pub(crate) struct Moment<T>(RwLock<T>);

impl<T> Moment<T> {
    fn new(value: T) -> Self {
        Self(RwLock::new(value))
    }

    pub(crate) fn look(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, value: T) {
        let before = std::mem::replace(&mut *self.0.write().unwrap_or_else(PoisonError::into_inner), value);
        // Outside the lock: the end of a span is told to the application's subscriber.
        drop(before);
    }

    fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Where the events of a session go, from before it starts until it is gone.
pub(crate) struct Telling {
    events: Feed<Event>,
    gone: CancellationToken,
}

impl Telling {
    pub(crate) fn new(kept: usize) -> Self {
        // The options are checked when the session starts; this is before.
        Self { events: Feed::new(kept.clamp(1, Limits::MOST_KEPT)), gone: CancellationToken::new() }
    }

    pub(crate) fn subscribe(&self) -> Events {
        Events::new(self.events.listen(), self.gone.clone())
    }
}

/// What all actors of a session share.
pub(crate) struct Shared {
    pub(crate) spec: SessionSpec,
    pub(crate) counting: Arc<Counting>,
    /// The requests of the CLI in flight. Those to each tool server are counted in the roster.
    pub(crate) gate: Arc<Gate>,
    /// The MCP servers of the moment. Written by the supervisor.
    pub(crate) roster: watch::Sender<Arc<Roster>>,
    /// The turn to change them, one at a time.
    pub(crate) changing: Arc<tokio::sync::Mutex<()>>,
    pub(crate) events: Feed<Event>,
    pub(crate) messages: Feed<Message>,
    pub(crate) vitals: watch::Sender<Vitals>,
    /// What the CLI of the moment, or the last one, said of itself.
    pub(crate) server_info: Moment<Arc<Reply<ServerInfo>>>,
    pub(crate) capabilities: Moment<Capabilities>,
    /// Counts the requests to the CLI.
    asked: AtomicU64,
    /// What was set at run time, as the requests that set it, in order. Set again in every incarnation.
    pub(crate) settings: Mutex<Vec<Value>>,
    /// Those that the CLI of the moment was asked for and has not answered, by their request: it may do them although nobody
    /// waits, also when the router that asked has ended. Of those that were withdrawn, one for each thing that can be set.
    settings_asked: Mutex<Vec<(String, Value)>>,
    /// The router of the moment; `None` before the first.
    pub(crate) router: watch::Sender<Option<RouterLink>>,
    /// What tool servers have asked the CLI.
    pub(crate) outgoing: Outgoing,
    pub(crate) span: tracing::Span,
    /// The span of the running turn.
    pub(crate) turn_span: Moment<tracing::Span>,
    pub(crate) started: Instant,
    /// Cancelled when the supervisor's state is no more: nothing happens in this session after that.
    pub(crate) gone: CancellationToken,
    /// Whether it began to stop in order.
    pub(crate) in_order: AtomicBool,
    /// Why the session has failed, once it has.
    pub(crate) failed: OnceLock<Error>,
    /// The configuration of a session that came from a store, until the supervisor takes it.
    pub(crate) home: Mutex<Option<ResumeHome>>,
}

impl Shared {
    pub(crate) fn new(spec: SessionSpec, servers: Vec<Arc<ServerSpec>>, telling: Telling) -> Arc<Self> {
        let span = tracing::info_span!(
            parent: None,
            "session",
            session_id = tracing::field::Empty,
            "gen_ai.conversation.id" = tracing::field::Empty,
            "gen_ai.system" = "anthropic",
        );
        let limits = &spec.options.limits;
        Arc::new(Self {
            counting: Arc::default(),
            gate: Arc::new(Gate::new(None, limits.calls_in_flight)),
            roster: watch::channel(Arc::new(Roster::new(servers, &spec.options))).0,
            changing: Arc::default(),
            events: telling.events,
            messages: Feed::new(limits.messages_kept),
            vitals: watch::channel(Vitals {
                session_id: None,
                recorded: continues(&spec.options),
                run_ended: true,
            })
            .0,
            server_info: Moment::new(Arc::new(Reply::new(ServerInfo::default(), RawValue::NULL.to_owned()))),
            capabilities: Moment::new(Capabilities::default()),
            asked: AtomicU64::new(0),
            settings: Mutex::default(),
            settings_asked: Mutex::default(),
            router: watch::channel(None).0,
            outgoing: Outgoing::default(),
            turn_span: Moment::new(span.clone()),
            span,
            started: Instant::now(),
            gone: telling.gone,
            in_order: AtomicBool::new(false),
            failed: OnceLock::new(),
            home: Mutex::default(),
            spec,
        })
    }

    /// Where transcripts are copied to, if the session has a store.
    pub(crate) fn mirror(&self) -> Option<&Arc<Mirror>> {
        self.spec.mirror.as_ref()
    }

    pub(crate) fn options(&self) -> &Options {
        &self.spec.options
    }

    /// The MCP servers of the moment.
    pub(crate) fn roster(&self) -> Arc<Roster> {
        self.roster.borrow().clone()
    }

    /// What was set at run time.
    pub(crate) fn settings(&self) -> Vec<Value> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What decisions depend on, of what the CLI says that it can do.
    pub(crate) fn understands(&self) -> Understands {
        let unanswered = self.capabilities.look().has("ask_user_question_unanswered_v1") == Some(true);
        Understands { unanswered }
    }

    /// Notes that a request has set something.
    pub(crate) fn note_setting(&self, body: &Value) {
        let mut noted = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        settings::note(&mut noted, body);
    }

    /// What is to be set and may be in force or not.
    pub(crate) fn settings_asked(&self) -> MutexGuard<'_, Vec<(String, Value)>> {
        self.settings_asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id of the next request to the CLI, over all incarnations and routers.
    pub(crate) fn next_request_id(&self) -> String {
        format!("req_{}", self.asked.fetch_add(1, Ordering::Relaxed))
    }

    /// Notes what an incarnation says of itself at its start.
    pub(crate) fn note_server_info(&self, info: Reply<ServerInfo>) {
        self.capabilities.set(Capabilities { of_initialize: info.capabilities.clone(), of_init: None });
        self.server_info.set(Arc::new(info));
    }

    /// Notes what a message says of the CLI: its capabilities, and commands that have changed.
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
            && let Some(commands) = message.field("commands").and_then(|commands| Lenient::read(&commands))
        {
            self.server_info.change(|info| Arc::make_mut(info).view_mut().commands = commands);
        }
    }

    /// Why nothing can be asked of the session any more.
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
        Events::new(self.events.listen(), self.gone.clone())
    }

    /// Tells the subscribers. Without any, nobody is told.
    pub(crate) fn emit(&self, event: Event) {
        tracing::debug!(parent: &self.span, event = ?event, "supervision event");
        self.events.tell(event);
    }

    /// The span of a control request, under that of the running turn.
    pub(crate) fn request_span(&self, request_id: &str, kind: &'static str, epoch: u64) -> tracing::Span {
        tracing::info_span!(
            parent: &*self.turn_span.look(),
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
