//! What happened, as it happens.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::cause::ExitCause;
use super::feed::Listener;
use super::subscription::{Subscription, subscription};
use crate::store::SessionKey;

/// A supervision event of a session.
///
/// ```
/// use greenroom::Event;
///
/// async fn watch(mut events: greenroom::Events) {
///     while let Some(event) = events.next().await {
///         match event {
///             Event::CliExited { epoch, cause } => eprintln!("incarnation {epoch} died: {cause}"),
///             Event::CallPanicked { server, tool, .. } => eprintln!("{server}/{tool} panicked"),
///             other => println!("{}", serde_json::to_string(&other).unwrap()),
///         }
///     }
/// }
/// # let _ = watch;
/// ```
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// An incarnation of the CLI was started.
    CliStarted {
        /// Which incarnation, counted from 1.
        epoch: u64,
        /// Its process id, where there is a process.
        pid: Option<u32>,
        /// The conversation it resumes.
        resumes: Option<String>,
    },
    /// It answered `initialize`.
    CliReady {
        /// Which incarnation.
        epoch: u64,
        /// The version it says it is.
        version: Option<String>,
    },
    /// It does not know something by `initialize`, and is started once more with arguments that say it. That stays so for
    /// the session.
    CliReregistered {
        /// Which incarnation was given up for that.
        epoch: u64,
        /// Whether in-process servers are announced by `--mcp-config` from now on: their names, nothing secret.
        servers: bool,
        /// Whether what may be secret (external MCP servers with their headers and variables, inline settings) is in the
        /// arguments from now on, which every user of the machine can read;
        /// [`Delivery::Initialize`](crate::options::Delivery::Initialize) forbids it.
        private: bool,
    },
    /// The CLI named the conversation, or named it anew (after a fork or `/clear`).
    SessionCaptured {
        /// The id by which it is resumed.
        session_id: String,
    },
    /// An incarnation ended unasked.
    CliExited {
        /// Which incarnation.
        epoch: u64,
        /// Why.
        cause: ExitCause,
    },
    /// The CLI will be started again.
    CliRestarting {
        /// Which incarnation it will be.
        epoch: u64,
        /// Which restart it is within the period.
        attempt: u32,
        /// After this wait.
        #[serde(serialize_with = "crate::options::millis_serialize")]
        delay: Duration,
    },
    /// It was started again and is ready.
    CliRestarted {
        /// Which incarnation.
        epoch: u64,
        /// The conversation it resumed; `None` if there was none yet.
        session_id: Option<String>,
    },
    /// The control router or the callbacks ended and were restarted; what they owed was answered with an error.
    ControlRestarted {
        /// Which of the two: `router` or `callbacks`.
        child: &'static str,
        /// Why it ended.
        cause: String,
    },
    /// A handler panicked. The call was answered.
    CallPanicked {
        /// The server, or `callbacks`.
        server: String,
        /// The tool, or the kind of callback; for another handler of a server the method and what it asks for, such as
        /// `resources/read file:///notes.txt`.
        tool: String,
        /// The control request.
        request_id: String,
        /// The text of the panic.
        message: String,
    },
    /// A call outlived its limit. It was answered.
    CallTimedOut {
        /// The server, or `callbacks`.
        server: String,
        /// The tool, or the kind of callback; for another handler of a server the method and what it asks for, such as
        /// `resources/read file:///notes.txt`.
        tool: String,
        /// The control request.
        request_id: String,
        /// The limit.
        #[serde(serialize_with = "crate::options::millis_serialize")]
        limit: Duration,
    },
    /// A callback of the application returned an error, or what cannot be sent, or could not read what it was asked. The
    /// request was answered; [`IntoReply`](crate::IntoReply) says with what.
    CallbackFailed {
        /// The kind of callback: `permission`, `question`, `hook`, `elicitation` or `dialog`.
        callback: &'static str,
        /// The event, if it is a hook.
        hook: Option<String>,
        /// The control request.
        request_id: String,
        /// What went wrong.
        message: String,
    },
    /// The CLI says that it did not take the session's hooks: none of them runs. A session with a hook that must block
    /// when it fails does not start on such a CLI.
    HooksNotApplied {
        /// Which incarnation.
        epoch: u64,
    },
    /// A handler that blocks its thread was answered for and is left behind: nothing can end it from outside. It holds
    /// its place on the blocking lane until it returns.
    HandlerAbandoned {
        /// The server.
        server: String,
        /// The tool.
        tool: String,
        /// The control request.
        request_id: String,
    },
    /// A turn outlived a limit and is being interrupted.
    TurnTimedOut {
        /// Which: `turn` or `silence`.
        limit: &'static str,
        /// How long it is.
        #[serde(serialize_with = "crate::options::millis_serialize")]
        after: Duration,
    },
    /// The turn that was cut off by the end of the CLI goes on in the next incarnation.
    TurnContinued {
        /// Which incarnation that is.
        epoch: u64,
    },
    /// The CLI refused to resume the conversation; the next step of the ladder is tried.
    ResumeStep {
        /// Which incarnation tries it.
        epoch: u64,
        /// The step.
        step: crate::ResumeLadder,
        /// Why the step before was refused.
        refused: String,
    },
    /// What was set at run time could not be set again in a new incarnation.
    SettingLost {
        /// Which incarnation.
        epoch: u64,
        /// The control request that sets it.
        subtype: String,
        /// What the CLI said.
        reason: String,
    },
    /// A call was cancelled.
    CallCancelled {
        /// The server.
        server: String,
        /// The tool.
        tool: String,
        /// The control request.
        request_id: String,
        /// Why, if the CLI said so.
        reason: Option<String>,
    },
    /// A tool server was restarted with a fresh state.
    ServerRestarted {
        /// The server.
        server: String,
        /// Why it ended.
        cause: String,
        /// How often it has been started now.
        generation: u32,
    },
    /// A tool server was given up: its calls are answered with the cause.
    ServerFailed {
        /// The server.
        server: String,
        /// Why.
        cause: String,
    },
    /// As many requests of the CLI are in flight as there may be, and one more was refused. Told once; again only after no
    /// more than half of the bound were in flight in between. `at_capacity` counts every refusal.
    AtCapacity {
        /// The tool server that is at its bound ([`Limits::calls_per_server`](crate::Limits::calls_per_server)); `None`
        /// for the whole session ([`Limits::calls_in_flight`](crate::Limits::calls_in_flight)).
        server: Option<String>,
        /// The bound.
        limit: usize,
    },
    /// A line of the CLI could not be read and was skipped.
    LineSkipped {
        /// Which incarnation.
        epoch: u64,
        /// Why.
        reason: String,
        /// How long it was.
        bytes: usize,
    },
    /// The session began to stop.
    Stopping,
    /// The session has stopped; nothing of it is left.
    Stopped,
    /// The session has failed for good; nothing of it is left.
    Failed {
        /// Why.
        cause: String,
    },
    /// Entries of a transcript did not reach the session's store: it failed, or was too slow. The CLI's own transcript has
    /// them, and [`StoredSessions::import`](crate::store::StoredSessions::import) brings them to the store.
    MirrorFailed {
        /// What they were to be kept under; `None` for a file that belongs to no session, or to no session of this
        /// configuration folder.
        key: Option<SessionKey>,
        /// How many.
        entries: usize,
        /// Why.
        error: String,
    },
    /// This subscriber was too slow: so many events before the next one are lost to it.
    Missed {
        /// How many.
        count: u64,
    },
}

/// The events of a session from the moment of subscribing on. A [`Stream`] that ends when the session is gone.
///
/// A slow subscriber holds nobody up: it is told with [`Event::Missed`] how many events it lost.
///
/// ```
/// async fn first(session: &greenroom::Session) -> Option<greenroom::Event> {
///     session.events().next().await
/// }
/// # let _ = first;
/// ```
pub struct Events {
    receiver: Subscription<Event>,
}

impl Events {
    pub(crate) fn new(listener: Listener<Event>, gone: CancellationToken) -> Self {
        Self { receiver: subscription(listener, gone, |event| event, |count| Event::Missed { count }) }
    }

    /// The next event; `None` when the session is gone and all were read.
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|cx| self.receiver.as_mut().poll_next(cx)).await
    }
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.receiver.as_mut().poll_next(cx)
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Events")
    }
}
