//! How things stand.

use serde::Serialize;

use super::counters::Counters;

/// A session at one moment: the tree, the calls in flight and their ages, restarts, queue sizes. Serialises to
/// JSON. Ages and times are in milliseconds.
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
#[non_exhaustive]
pub struct Snapshot {
    /// What the session is doing.
    pub phase: Phase,
    /// How long the session has existed, in milliseconds.
    pub age_ms: u64,
    /// The captured id of the conversation.
    pub session_id: Option<String>,
    /// The CLI process; `None` while there is none.
    pub cli: Option<CliSnapshot>,
    /// The conversation; `None` if its actor did not answer in time.
    pub conversation: Option<ConversationSnapshot>,
    /// The control router; `None` if it did not answer in time, for instance because it is restarting.
    pub router: Option<RouterSnapshot>,
    /// The tool servers, in the order in which they were given.
    pub servers: Vec<ServerSnapshot>,
    /// The callbacks; `None` if they did not answer in time.
    pub callbacks: Option<CallbacksSnapshot>,
    /// What was counted since the start.
    pub counters: Counters,
}

impl Snapshot {
    /// All tool calls in flight.
    pub fn calls(&self) -> impl Iterator<Item = &CallSnapshot> {
        self.servers.iter().flat_map(|server| &server.calls)
    }
}

/// What a session is doing.
///
/// ```
/// assert_eq!(serde_json::to_string(&greenroom::Phase::Ready).unwrap(), r#""ready""#);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Phase {
    /// The first CLI is being started.
    Starting,
    /// A CLI is there and has answered `initialize`.
    Ready,
    /// The CLI died; another one is being started or waited for.
    Recovering,
    /// The turn in flight may end; nothing new is accepted.
    Draining,
    /// The tree is being taken down.
    Stopping,
}

/// The CLI process.
///
/// ```
/// # fn look(snapshot: &greenroom::Snapshot) {
/// if let Some(cli) = &snapshot.cli {
///     println!("incarnation {} is process {:?}", cli.epoch, cli.pid);
/// }
/// # }
/// ```
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CliSnapshot {
    /// Which incarnation, counted from 1.
    pub epoch: u64,
    /// Its process id, where there is a process.
    pub pid: Option<u32>,
    /// Whether it has answered `initialize`.
    pub ready: bool,
    /// The version it says it is.
    pub version: Option<String>,
    /// Lines waiting to be written.
    pub lines_queued: usize,
}

/// The conversation.
///
/// ```
/// # fn look(snapshot: &greenroom::Snapshot) {
/// let waiting = snapshot.conversation.as_ref().map_or(0, |conversation| conversation.queued);
/// # let _ = waiting; }
/// ```
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ConversationSnapshot {
    /// Whether a turn is running.
    pub turn_running: bool,
    /// Prompts that wait for their turn.
    pub queued: usize,
    /// Messages of the running turn that were not read and wait in memory, in bytes of JSON. Those on their way to the
    /// file are among them.
    pub unread_bytes: usize,
    /// Messages of the running turn that were not read and wait in a temporary file, in bytes of the file.
    pub spilled_bytes: u64,
    /// Whether the run is over: nothing runs in the foreground or the background of the CLI.
    pub run_ended: bool,
    /// Background tasks of the CLI that keep the run going.
    pub background_tasks: usize,
}

/// The control router.
///
/// ```
/// # fn look(snapshot: &greenroom::Snapshot) {
/// for request in snapshot.router.iter().flat_map(|router| &router.owed) {
///     println!("{} has waited {} ms", request.request_id, request.age_ms);
/// }
/// # }
/// ```
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct RouterSnapshot {
    /// Requests of the CLI that we owe an answer.
    pub owed: Vec<RequestSnapshot>,
    /// Requests of ours that the CLI owes an answer.
    pub awaited: usize,
    /// Requests that wait for a tool server that is restarting.
    pub parked: usize,
}

/// A request of the CLI in flight.
///
/// ```
/// # fn look(request: &greenroom::RequestSnapshot) {
/// println!("{} {} of incarnation {}", request.kind, request.request_id, request.epoch);
/// # }
/// ```
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct RequestSnapshot {
    /// Its id, unique in flight.
    pub request_id: String,
    /// What it is, such as `mcp_message` or `can_use_tool`.
    pub kind: &'static str,
    /// The incarnation that asked.
    pub epoch: u64,
    /// Whether a handler works at it; otherwise it still waits for one.
    pub dispatched: bool,
    /// How long it has been in flight.
    pub age_ms: u64,
}

/// A tool server.
///
/// ```
/// # fn look(snapshot: &greenroom::Snapshot) {
/// for server in &snapshot.servers {
///     println!("{}: {:?}, started {} times", server.name, server.status, server.generation);
/// }
/// # }
/// ```
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ServerSnapshot {
    /// Its name.
    pub name: String,
    /// How it is.
    pub status: ServerStatus,
    /// How often it has been started.
    pub generation: u32,
    /// Its calls in flight.
    pub calls: Vec<CallSnapshot>,
    /// Handlers that occupy a thread of the blocking pool, abandoned ones among them.
    pub blocking: usize,
    /// Handlers that were left behind on their thread since the start.
    pub abandoned: u64,
    /// Requests of its own to the CLI that wait for an answer.
    pub requests: usize,
    /// MCP sessions that the CLI has begun with it.
    pub mcp_sessions: u64,
}

/// How a tool server is.
///
/// ```
/// assert_eq!(serde_json::to_string(&greenroom::ServerStatus::Up).unwrap(), r#""up""#);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ServerStatus {
    /// It serves calls, or its state is being made.
    Up,
    /// It ended and will be restarted.
    Restarting,
    /// It was given up, for this reason.
    Failed(String),
}

/// A tool call in flight.
///
/// ```
/// # fn look(snapshot: &greenroom::Snapshot) {
/// if let Some(oldest) = snapshot.calls().max_by_key(|call| call.age_ms) {
///     println!("{} has run for {} ms", oldest.tool, oldest.age_ms);
/// }
/// # }
/// ```
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CallSnapshot {
    /// The control request.
    pub request_id: String,
    /// The tool.
    pub tool: String,
    /// The id of the model's tool use.
    pub tool_use_id: Option<String>,
    /// How long it has been in flight.
    pub age_ms: u64,
    /// Whether it is cancelled and only cleaning up.
    pub cancelled: bool,
}

/// The callbacks: hooks, permissions, elicitations, dialogs.
///
/// ```
/// # fn look(snapshot: &greenroom::Snapshot) {
/// let asked = snapshot.callbacks.as_ref().map_or(0, |callbacks| callbacks.in_flight);
/// # let _ = asked; }
/// ```
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CallbacksSnapshot {
    /// Callbacks in flight.
    pub in_flight: usize,
}
