//! Supervision events of a session.

use std::time::Duration;

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::cause::ExitCause;
use super::feed::Subscriber;
use super::subscription::Subscription;
use crate::plain::shorten;
use crate::store::SessionKey;
use crate::transport::{Leftover, ProcessIdentity};

/// A supervision event of a session: a CLI that exited, a tool that panicked, a limit that was reached.
///
/// Subscribe with [`SessionBuilder::events`](crate::SessionBuilder::events) or
/// [`Session::events`](crate::Session::events). New variants are added: match with a wildcard arm.
///
/// ```
/// use greenroom::Event;
///
/// async fn watch(mut events: greenroom::report::Events) {
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
///
/// `epoch` is the incarnation of the CLI, counted from 1; `request_id` is the id of the control request. Each text has at
/// most 4 KiB: a longer text loses its middle. Only the end of the CLI's stderr, for which
/// [`Limits::stderr_tail_bytes`](crate::options::Limits::stderr_tail_bytes) is the bound, and the key of a store are whole.
///
/// # Events by subject
#[doc = include_str!("event.md")]
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[allow(missing_docs, reason = "fields repeat: `epoch` is the incarnation, `request_id` the control request")]
#[non_exhaustive]
pub enum Event {
    /// A CLI was started.
    CliStarted {
        epoch: u64,
        /// The process id, if there is a process.
        pid: Option<u32>,
        /// The process as a later host recognises it; [`Session::process`](crate::Session::process) has it, too.
        process: Option<ProcessIdentity>,
        /// The resumed conversation.
        resumes: Option<String>,
    },
    /// The CLI answered `initialize`.
    CliReady {
        epoch: u64,
        /// The version that the CLI reports.
        version: Option<String>,
    },
    /// The CLI did not understand a part of `initialize` and is started again, with arguments instead. Later CLIs of
    /// the session get the arguments too. External MCP servers with their headers and variables, and inline settings,
    /// which may be secret, are now in arguments and in files that only the user of the CLI can read.
    /// [`Delivery::Initialize`](crate::options::Delivery::Initialize) forbids this.
    CliReregistered {
        /// The incarnation that was ended for this.
        epoch: u64,
    },
    /// The conversation of [`Options::conversation`](crate::Options::conversation) is open: the first CLI is ready.
    ConversationOpened {
        session_id: String,
        /// Whether the conversation existed and was resumed; false if it was started.
        resumed: bool,
    },
    /// The CLI reported the id of the conversation: at its start, after a fork, or after `/clear`.
    SessionCaptured {
        /// The id for resuming the conversation.
        session_id: String,
    },
    /// A CLI exited without being asked.
    CliExited { epoch: u64, cause: ExitCause },
    /// Processes that a CLI had started outlived it and were killed. Processes in the CLI's own process group are
    /// killed with the CLI and not listed.
    LeftoversKilled { epoch: u64, processes: Vec<Leftover> },
    /// Processes of a CLI had not ended within [`Timeouts::reap`](crate::options::Timeouts::reap) after they were killed, the
    /// CLI itself among them. No processes: nobody knows whether all have ended. [`Session::stop`](crate::Session::stop)
    /// returns an error that names those that still run then.
    LeftoversRemain { epoch: u64, processes: Vec<Leftover> },
    /// The CLI will be started again.
    CliRestarting {
        /// The next incarnation.
        epoch: u64,
        /// Number of the restart within the period.
        attempt: u32,
        /// Wait before the restart.
        #[serde(serialize_with = "crate::options::millis_serialize")]
        delay: Duration,
    },
    /// The restarted CLI is ready.
    CliRestarted {
        epoch: u64,
        /// The resumed conversation; `None` if there was none yet.
        session_id: Option<String>,
    },
    /// The control router or the callbacks ended and were restarted.
    ControlRestarted {
        /// `router` or `callbacks`.
        child: &'static str,
        cause: String,
    },
    /// The handler of a tool returned a [`ToolError`](crate::tool::ToolError) with a cause.
    CallFailed {
        server: String,
        tool: String,
        request_id: String,
        /// The text that the model reads.
        message: String,
        /// The cause, which the model does not read.
        cause: String,
    },
    /// A handler of a tool server panicked.
    CallPanicked {
        server: String,
        /// The tool, or the method and its object, such as `resources/read file:///notes.txt`.
        tool: String,
        request_id: String,
        /// Text of the panic.
        message: String,
    },
    /// A call of a tool server exceeded its limit.
    CallTimedOut {
        server: String,
        /// The tool, or the method and its object, such as `resources/read file:///notes.txt`.
        tool: String,
        request_id: String,
        #[serde(serialize_with = "crate::options::millis_serialize")]
        limit: Duration,
    },
    /// A callback of the application returned an error, returned an answer that cannot be sent, or could not parse its
    /// request.
    CallbackFailed {
        /// `permission`, `question`, `hook`, `elicitation`, `dialog` or `inquiry`.
        callback: &'static str,
        /// The event of a hook.
        hook: Option<String>,
        request_id: String,
        message: String,
    },
    /// A callback of the application panicked.
    CallbackPanicked {
        /// `permission`, `question`, `hook`, `elicitation`, `dialog` or `inquiry`.
        callback: &'static str,
        /// The event of a hook.
        hook: Option<String>,
        request_id: String,
        /// Text of the panic.
        message: String,
    },
    /// A callback of the application exceeded its limit. A later answer of the callback is dropped.
    CallbackTimedOut {
        /// `permission`, `question`, `hook`, `elicitation`, `dialog` or `inquiry`.
        callback: &'static str,
        /// The event of a hook.
        hook: Option<String>,
        request_id: String,
        #[serde(serialize_with = "crate::options::millis_serialize")]
        limit: Duration,
    },
    /// The CLI did not accept the session's hooks, so none of them runs. A session with a hook that must block when it
    /// fails does not start on such a CLI.
    HooksNotApplied { epoch: u64 },
    /// A handler that blocks its thread did not end in time. Its request was answered; the handler cannot be aborted.
    HandlerAbandoned { server: String, tool: String, request_id: String },
    /// A turn exceeded a limit and is being interrupted.
    TurnTimedOut {
        /// `turn` or `silence`.
        limit: &'static str,
        #[serde(serialize_with = "crate::options::millis_serialize")]
        after: Duration,
    },
    /// The turn that the exit of the CLI cut off continues in the next incarnation.
    TurnContinued {
        /// The next incarnation.
        epoch: u64,
    },
    /// The CLI refused to open the conversation. The next step of the ladder is tried.
    ResumeStep {
        /// The incarnation that tries the step.
        epoch: u64,
        /// [`SameId`](crate::options::ResumeLadder::SameId) if the conversation is started instead of resumed, or
        /// resumed instead of started, under the same id.
        step: crate::options::ResumeLadder,
        /// Reason of the previous refusal.
        refused: String,
    },
    /// A setting of the session could not be set again in a new incarnation.
    SettingLost {
        epoch: u64,
        /// The control request for the setting.
        subtype: String,
        /// The CLI's error.
        reason: String,
    },
    /// A call was cancelled.
    CallCancelled {
        server: String,
        tool: String,
        request_id: String,
        /// The CLI's reason.
        reason: Option<String>,
    },
    /// A tool server starts with a fresh state: after more panics than
    /// [`Restarts::panics`](crate::options::Restarts::panics), after the end of its actor, or after its factory failed.
    /// Emitted when the factory is called; for a failed server, once the factory has succeeded.
    ServerRestarted {
        server: String,
        /// Reason for losing the old state.
        cause: String,
        /// Number of the state: `ToolContext::generation` of its calls.
        generation: u32,
    },
    /// A tool server failed. Its calls are answered with the cause, until a retry succeeds
    /// ([`Restarts::server_retry`](crate::options::Restarts::server_retry)).
    ServerFailed { server: String, cause: String },
    /// Too many requests of the CLI are in flight, and a request was refused. Emitted once, and re-armed when load
    /// falls to half the limit. `at_capacity` counts every refusal.
    AtCapacity {
        /// The tool server at its limit ([`Limits::calls_per_server`](crate::options::Limits::calls_per_server));
        /// `None` for the whole session ([`Limits::calls_in_flight`](crate::options::Limits::calls_in_flight)).
        server: Option<String>,
        limit: usize,
    },
    /// The CLI reads its stdin too slowly, and a request of the CLI was refused. Emitted once, and re-armed when the
    /// waiting bytes fall to half the limit. `at_capacity` counts every refusal.
    OutboundFull {
        epoch: u64,
        /// In bytes: [`Limits::outbound_bytes`](crate::options::Limits::outbound_bytes).
        limit: usize,
    },
    /// A line of the CLI could not be parsed and was skipped.
    LineSkipped {
        epoch: u64,
        reason: String,
        /// Length of the line.
        bytes: usize,
    },
    /// The session began to stop.
    Stopping,
    /// The session has stopped.
    Stopped,
    /// The session has failed for good.
    Failed { cause: String },
    /// Entries of a transcript did not reach the session's store, because the store failed or was too slow. The CLI's
    /// own transcript has the entries; [`StoredSessions::import`](crate::store::StoredSessions::import) copies them.
    MirrorFailed {
        /// The session of the entries; `None` for a file that belongs to no session of this configuration folder.
        key: Option<SessionKey>,
        entries: usize,
        error: String,
    },
    /// This subscriber was too slow and lost `count` events.
    Missed { count: u64 },
}

impl Event {
    /// Shortens every text. Returns the memory that the event takes, in bytes.
    pub(crate) fn shorten(&mut self) -> usize {
        let mut bytes = size_of::<Self>();
        self.each_text(&mut |text| {
            shorten(text);
            bytes += size_of::<String>() + text.capacity();
        });
        bytes
            + match self {
                Self::CliExited { cause, .. } => cause.stderr().map_or(0, str::len),
                Self::MirrorFailed { key: Some(key), .. } => key.to_string().len(),
                _ => 0,
            }
    }

    /// Calls `change` with every text, except for the CLI's stderr, which has its own bound, and the key of a store, which
    /// finds its entries.
    ///
    /// A new field or variant does not compile until it is listed here.
    pub(crate) fn each_text(&mut self, change: &mut impl FnMut(&mut String)) {
        match self {
            Self::CliStarted { epoch: _, pid: _, process: _, resumes: text }
            | Self::CliReady { epoch: _, version: text }
            | Self::CliRestarted { epoch: _, session_id: text }
            | Self::AtCapacity { server: text, limit: _ } => text.iter_mut().for_each(change),
            Self::ConversationOpened { session_id: text, resumed: _ }
            | Self::SessionCaptured { session_id: text }
            | Self::ControlRestarted { child: _, cause: text }
            | Self::ResumeStep { epoch: _, step: _, refused: text }
            | Self::LineSkipped { epoch: _, reason: text, bytes: _ }
            | Self::Failed { cause: text }
            | Self::MirrorFailed { key: _, entries: _, error: text } => change(text),
            Self::CliExited { epoch: _, cause } => cause.each_text(change),
            Self::LeftoversKilled { epoch: _, processes } | Self::LeftoversRemain { epoch: _, processes } => {
                processes.iter_mut().for_each(|Leftover { name, .. }| change(name));
            }
            Self::CallPanicked { server, tool, request_id, message } => {
                [server, tool, request_id, message].into_iter().for_each(change);
            }
            Self::CallFailed { server, tool, request_id, message, cause } => {
                [server, tool, request_id, message, cause].into_iter().for_each(change);
            }
            Self::CallTimedOut { server, tool, request_id, limit: _ }
            | Self::HandlerAbandoned { server, tool, request_id } => {
                [server, tool, request_id].into_iter().for_each(change);
            }
            Self::CallbackFailed { callback: _, hook, request_id, message }
            | Self::CallbackPanicked { callback: _, hook, request_id, message } => {
                hook.iter_mut().chain([request_id, message]).for_each(change);
            }
            Self::CallbackTimedOut { callback: _, hook, request_id, limit: _ } => {
                hook.iter_mut().chain([request_id]).for_each(change);
            }
            Self::CallCancelled { server, tool, request_id, reason } => {
                reason.iter_mut().chain([server, tool, request_id]).for_each(change);
            }
            Self::SettingLost { epoch: _, subtype: first, reason: second }
            | Self::ServerRestarted { server: first, cause: second, generation: _ }
            | Self::ServerFailed { server: first, cause: second } => {
                [first, second].into_iter().for_each(change);
            }
            Self::CliReregistered { epoch: _ }
            | Self::CliRestarting { epoch: _, attempt: _, delay: _ }
            | Self::HooksNotApplied { epoch: _ }
            | Self::TurnTimedOut { limit: _, after: _ }
            | Self::TurnContinued { epoch: _ }
            | Self::OutboundFull { epoch: _, limit: _ }
            | Self::Stopping
            | Self::Stopped
            | Self::Missed { count: _ } => {}
        }
    }
}

/// The events of a session from the subscription on.
///
/// A slow subscriber delays nobody: it loses events, and [`Event::Missed`] says how many.
pub type Events = Subscription<Event>;

impl Events {
    pub(crate) fn of(listener: Subscriber<Event>, gone: CancellationToken) -> Self {
        Self::new(listener, gone, |event| event, |count| Event::Missed { count })
    }
}
