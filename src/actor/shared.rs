//! What all actors of one session share: its specification, its counters, and where its events go.

use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

use ractor::ActorRef;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::router::RouterMessage;
use crate::control::Handlers;
use crate::error::{Error, ErrorKind};
use crate::options::Options;
use crate::report::counters::Counting;
use crate::report::{Event, Events};
use crate::tool::server::ServerSpec;
use crate::transport::{StderrSink, Transport};
use crate::wire::Message;

/// What a session is made from.
pub(crate) struct SessionSpec {
    pub(crate) options: Options,
    pub(crate) servers: Vec<Arc<ServerSpec>>,
    pub(crate) handlers: Handlers,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) stderr: Option<StderrSink>,
}

/// What survives every restart, as plain data. Written by the conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Vitals {
    /// The conversation's id, as the CLI named it.
    pub(crate) session_id: Option<String>,
    /// Whether the run is over.
    pub(crate) run_ended: bool,
}

/// Where the events of a session go, from before it starts until it is gone.
pub(crate) struct Telling {
    events: broadcast::Sender<Event>,
    gone: CancellationToken,
}

impl Telling {
    pub(crate) fn new(kept: usize) -> Self {
        // The channel takes no less than one; the options are checked when the session starts.
        Self { events: broadcast::channel(kept.max(1)).0, gone: CancellationToken::new() }
    }

    pub(crate) fn subscribe(&self) -> Events {
        Events::new(self.events.subscribe(), self.gone.clone())
    }
}

/// What all actors of a session share.
pub(crate) struct Shared {
    pub(crate) spec: SessionSpec,
    pub(crate) counting: Arc<Counting>,
    pub(crate) in_flight: Arc<AtomicUsize>,
    pub(crate) events: broadcast::Sender<Event>,
    pub(crate) messages: broadcast::Sender<Message>,
    pub(crate) vitals: watch::Sender<Vitals>,
    /// The router of the moment; `None` before the first.
    pub(crate) router: watch::Sender<Option<ActorRef<RouterMessage>>>,
    pub(crate) span: tracing::Span,
    /// The span of the running turn.
    pub(crate) turn_span: watch::Sender<tracing::Span>,
    pub(crate) started: Instant,
    /// Cancelled when the supervisor's state is no more: nothing happens in this session after that.
    pub(crate) gone: CancellationToken,
    /// Why the session has failed, once it has.
    pub(crate) failed: OnceLock<Error>,
}

impl Shared {
    pub(crate) fn new(spec: SessionSpec, telling: Telling) -> Arc<Self> {
        let span = tracing::info_span!(
            parent: None,
            "session",
            session_id = tracing::field::Empty,
            "gen_ai.conversation.id" = tracing::field::Empty,
            "gen_ai.system" = "anthropic",
        );
        Arc::new(Self {
            counting: Arc::default(),
            in_flight: Arc::default(),
            events: telling.events,
            messages: broadcast::channel(spec.options.limits.messages_kept).0,
            vitals: watch::channel(Vitals { session_id: None, run_ended: true }).0,
            router: watch::channel(None).0,
            turn_span: watch::channel(span.clone()).0,
            span,
            started: Instant::now(),
            gone: telling.gone,
            failed: OnceLock::new(),
            spec,
        })
    }

    pub(crate) fn options(&self) -> &Options {
        &self.spec.options
    }

    /// Why nothing can be asked of the session any more.
    pub(crate) fn gone(&self) -> Error {
        match self.failed.get() {
            Some(error) => Error::new(ErrorKind::SessionFailed, format!("the session has failed: {error}")),
            None => Error::new(ErrorKind::Stopped, "the session has stopped"),
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
