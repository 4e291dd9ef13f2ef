//! What all actors of one session share: its specification, its counters, and where its events go.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ractor::ActorRef;
use serde_json::Value;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::admission::Gate;
use super::outgoing::Outgoing;
use super::roster::Roster;
use super::router::RouterMessage;
use crate::control::Handlers;
use crate::control::permission::Understands;
use crate::error::{Error, ErrorKind};
use crate::options::{Limits, Options};
use crate::report::counters::Counting;
use crate::report::{Event, Events};
use crate::tool::server::ServerSpec;
use crate::transport::{StderrSink, Transport, continues};
use crate::wire::Message;

/// What a session is made from.
pub(crate) struct SessionSpec {
    pub(crate) options: Options,
    pub(crate) handlers: Handlers,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) stderr: Option<StderrSink>,
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

/// The control requests that set something for the rest of the session.
const SETTINGS: [&str; 5] = [
    "set_model",
    "set_permission_mode",
    "set_max_thinking_tokens",
    "set_mcp_permission_mode_override",
    "apply_flag_settings",
];

/// Where the events of a session go, from before it starts until it is gone.
pub(crate) struct Telling {
    events: broadcast::Sender<Event>,
    gone: CancellationToken,
}

impl Telling {
    pub(crate) fn new(kept: usize) -> Self {
        // The options are checked when the session starts; this is before.
        Self {
            events: broadcast::channel(kept.clamp(1, Limits::MOST_KEPT)).0,
            gone: CancellationToken::new(),
        }
    }

    pub(crate) fn subscribe(&self) -> Events {
        Events::new(self.events.subscribe(), self.gone.clone())
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
    pub(crate) events: broadcast::Sender<Event>,
    pub(crate) messages: broadcast::Sender<Message>,
    pub(crate) vitals: watch::Sender<Vitals>,
    /// What was set at run time, as the requests that set it, in order. Set again in every incarnation.
    pub(crate) settings: Mutex<Vec<Value>>,
    /// What the CLI of the moment says that it understands.
    pub(crate) capabilities: Mutex<Vec<String>>,
    /// The router of the moment; `None` before the first.
    pub(crate) router: watch::Sender<Option<ActorRef<RouterMessage>>>,
    /// What tool servers have asked the CLI.
    pub(crate) outgoing: Outgoing,
    pub(crate) span: tracing::Span,
    /// The span of the running turn.
    pub(crate) turn_span: watch::Sender<tracing::Span>,
    pub(crate) started: Instant,
    /// Cancelled when the supervisor's state is no more: nothing happens in this session after that.
    pub(crate) gone: CancellationToken,
    /// Whether it began to stop in order.
    pub(crate) in_order: AtomicBool,
    /// Why the session has failed, once it has.
    pub(crate) failed: OnceLock<Error>,
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
            messages: broadcast::channel(limits.messages_kept).0,
            vitals: watch::channel(Vitals {
                session_id: None,
                recorded: continues(&spec.options),
                run_ended: true,
            })
            .0,
            settings: Mutex::default(),
            capabilities: Mutex::default(),
            router: watch::channel(None).0,
            outgoing: Outgoing::default(),
            turn_span: watch::channel(span.clone()).0,
            span,
            started: Instant::now(),
            gone: telling.gone,
            in_order: AtomicBool::new(false),
            failed: OnceLock::new(),
            spec,
        })
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

    /// Notes what the CLI says that it understands.
    pub(crate) fn note_capabilities(&self, capabilities: Vec<String>) {
        *self.capabilities.lock().unwrap_or_else(PoisonError::into_inner) = capabilities;
    }

    /// What of it decisions depend on.
    pub(crate) fn understands(&self) -> Understands {
        let capabilities = self.capabilities.lock().unwrap_or_else(PoisonError::into_inner);
        Understands {
            unanswered: capabilities.iter().any(|known| known == "ask_user_question_unanswered_v1"),
        }
    }

    /// Whether a request sets something for the rest of the session.
    pub(crate) fn is_setting(body: &Value) -> bool {
        body["subtype"].as_str().is_some_and(|subtype| SETTINGS.contains(&subtype))
    }

    /// Notes that a request has set something. A later one for the same thing takes the place of an earlier one.
    pub(crate) fn note_setting(&self, body: &Value) {
        let mut settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |set: &Value| set["subtype"] == body["subtype"] && set["serverName"] == body["serverName"];
        let mut body = body.clone();
        match settings.iter_mut().find(|set| same(set)) {
            Some(earlier) => {
                // The CLI lays flag settings over those before, key by key.
                if let (Some(over), Value::Object(mut merged)) =
                    (body["settings"].as_object(), earlier["settings"].clone())
                {
                    merged.extend(over.clone());
                    body["settings"] = Value::Object(merged);
                }
                *earlier = body;
            }
            None => settings.push(body),
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
        Events::new(self.events.subscribe(), self.gone.clone())
    }

    /// Tells the subscribers. Without any, nobody is told.
    pub(crate) fn emit(&self, event: Event) {
        tracing::debug!(parent: &self.span, event = ?event, "supervision event");
        self.events.send(event).ok();
    }

    /// The span of a control request, under that of the running turn.
    pub(crate) fn request_span(&self, request_id: &str, kind: &'static str, epoch: u64) -> tracing::Span {
        let parent = self.turn_span.borrow();
        tracing::info_span!(
            parent: &*parent,
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
