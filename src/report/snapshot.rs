//! The state of a session at one moment.

use serde::Serialize;

use super::counters::Counters;
use crate::transport::ContainedBy;

/// The state of a session at one moment: its actors, the calls in flight and their ages, restarts, queue sizes.
/// Serialises to JSON. Ages are in milliseconds. A text of the CLI has at most 4 KiB: a longer text loses its middle.
///
/// ```
/// async fn show(session: &greenroom::Session) -> greenroom::Result<()> {
///     let snapshot = session.snapshot().await?;
///     println!("{:?}, {} calls in flight", snapshot.phase, snapshot.calls().count());
///     println!("{}", serde_json::to_string_pretty(&snapshot).unwrap());
///     Ok(())
/// }
/// # let _ = show;
/// ```
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "plain data")]
#[non_exhaustive]
pub struct Snapshot {
    pub phase: Phase,
    pub age_ms: u64,
    /// The id of the conversation.
    pub session_id: Option<String>,
    /// Whether the session began by resuming an existing conversation: by
    /// [`Options::conversation`](crate::Options::conversation) or [`Options::resume`](crate::Options::resume), known
    /// when the session has started. Without a store also false for
    /// [`Options::continue_conversation`](crate::Options): the CLI does not say which it did.
    pub resumed: bool,
    /// `None` while there is no CLI process.
    pub cli: Option<CliSnapshot>,
    /// `None` if the actor did not answer in time.
    pub conversation: Option<ConversationSnapshot>,
    /// `None` if the router did not answer in time, for example because it is restarting.
    pub router: Option<RouterSnapshot>,
    /// Tool servers, in the order of the builder.
    pub servers: Vec<ServerSnapshot>,
    /// `None` if the actor did not answer in time.
    pub callbacks: Option<CallbacksSnapshot>,
    pub counters: Counters,
}

impl Snapshot {
    /// All tool calls in flight.
    pub fn calls(&self) -> impl Iterator<Item = &CallSnapshot> {
        self.servers.iter().flat_map(|server| &server.calls)
    }
}

/// The phase of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Phase {
    /// The first CLI is starting.
    Starting,
    /// A CLI has answered `initialize`.
    Ready,
    /// The CLI exited, and the next CLI is starting or waits for its backoff.
    Recovering,
    /// The running turn may end; new prompts are rejected.
    Draining,
    /// The actors are being stopped.
    Stopping,
}

/// The CLI process, in a [`Snapshot`].
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "plain data")]
#[non_exhaustive]
pub struct CliSnapshot {
    /// Number of the incarnation, from 1.
    pub epoch: u64,
    /// `None` if the transport has no process.
    pub pid: Option<u32>,
    /// How processes that the CLI starts are kept together, so that they end with the CLI: see
    /// [`Containment`](crate::options::Containment). `None` if the transport has no process.
    pub contained_by: Option<ContainedBy>,
    /// The CLI has answered `initialize`.
    pub ready: bool,
    /// The version that the CLI reports.
    pub version: Option<String>,
    /// Lines that wait to be written.
    pub lines_queued: usize,
    /// Memory of the waiting lines.
    pub outbound_bytes: usize,
}

/// The conversation, in a [`Snapshot`].
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "plain data")]
#[non_exhaustive]
pub struct ConversationSnapshot {
    pub turn_running: bool,
    /// Waiting prompts.
    pub queued: usize,
    /// Messages into the running turn ([`Session::steer`](crate::Session::steer)) whose fate is still open.
    pub steering: usize,
    /// Unread messages of the running turn, in bytes of JSON.
    pub unread_bytes: usize,
    /// Nothing runs in the foreground or the background of the CLI.
    pub idle: bool,
    /// Running background tasks of the CLI, of which 16,384 are counted at most.
    pub background_tasks: usize,
}

/// The control router, in a [`Snapshot`].
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "plain data")]
#[non_exhaustive]
pub struct RouterSnapshot {
    /// Open requests of the CLI to the session.
    pub owed: Vec<RequestSnapshot>,
    /// Open requests of the session to the CLI.
    pub awaited: usize,
}

/// An open request of the CLI, in a [`RouterSnapshot`].
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "plain data")]
#[non_exhaustive]
pub struct RequestSnapshot {
    /// Unique among open requests.
    pub request_id: String,
    /// The subtype, such as `mcp_message` or `can_use_tool`.
    pub kind: &'static str,
    /// The incarnation that sent the request.
    pub epoch: u64,
    pub age_ms: u64,
}

/// A tool server, in a [`Snapshot`].
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "plain data")]
#[non_exhaustive]
pub struct ServerSnapshot {
    pub name: String,
    pub status: ServerStatus,
    /// Number of starts.
    pub generation: u32,
    /// Calls in flight.
    pub calls: Vec<CallSnapshot>,
    /// Handlers on threads of the blocking pool, including abandoned handlers.
    pub blocking: usize,
    /// Handlers that were abandoned on their thread, since the start.
    pub abandoned: u64,
    /// MCP sessions that the CLI has started.
    pub mcp_sessions: u64,
}

/// The state of a tool server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ServerStatus {
    /// The server serves calls, or its first state is being created.
    Up,
    /// The server gets a new actor or a new state; new calls wait.
    Restarting,
    /// The server failed, for this reason, and is retried from time to time.
    Failed(String),
}

/// A tool call in flight, in a [`ServerSnapshot`].
///
/// ```
/// # fn look(snapshot: &greenroom::Snapshot) {
/// if let Some(oldest) = snapshot.calls().max_by_key(|call| call.age_ms) {
///     println!("{} has run for {} ms", oldest.tool, oldest.age_ms);
/// }
/// # }
/// ```
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "plain data")]
#[non_exhaustive]
pub struct CallSnapshot {
    pub request_id: String,
    pub tool: String,
    pub tool_use_id: Option<String>,
    pub age_ms: u64,
    /// The call is cancelled, and its handler is cleaning up.
    pub cancelled: bool,
}

/// The callbacks for hooks, permissions, elicitations and dialogs, in a [`Snapshot`].
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "plain data")]
#[non_exhaustive]
pub struct CallbacksSnapshot {
    pub in_flight: usize,
}
