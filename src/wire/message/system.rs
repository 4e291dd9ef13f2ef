//! Messages about the session.

use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;

use super::read::{Head, list, maybe, or_default};

/// Something about the session (`type` `system`), told apart by its `subtype`.
///
/// Three kinds have a typed view: [`init`](Self::init), [`session_state`](Self::session_state) and
/// [`task`](Self::task). The fields of all others (`status`, `api_retry`, `compact_boundary`,
/// `hook_response`, …) are read with [`Message::field`](crate::Message::field).
///
/// Without a string `subtype` this is [`Message::Other`](crate::Message::Other).
///
/// ```
/// use greenroom::{Message, SessionState};
///
/// let line =
///     r#"{"type": "system", "subtype": "session_state_changed", "state": "idle", "sdk_host_only": true}"#;
/// let Message::System(notice) = Message::parse(line)? else { unreachable!() };
/// assert_eq!(notice.session_state(), Some(SessionState::Idle));
/// assert!(notice.sdk_host_only() && notice.init().is_none());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SystemMessage {
    pub(super) head: Head,
    raw: Box<RawValue>,
    /// `init`, `status`, `session_state_changed`, `task_started`, `hook_response`, and many others. The set
    /// is open.
    pub subtype: String,
    detail: Detail,
}

#[derive(Clone, Debug)]
enum Detail {
    Init(Box<InitMessage>),
    State { state: Option<SessionState>, sdk_host_only: bool },
    Task(TaskEvent),
    None,
}

super::common!(SystemMessage);

impl SystemMessage {
    /// What the session consists of, in the message that each turn begins with (`init`).
    pub fn init(&self) -> Option<&InitMessage> {
        match &self.detail {
            Detail::Init(init) => Some(init),
            _ => None,
        }
    }

    /// What the session does now (`session_state_changed`).
    pub fn session_state(&self) -> Option<SessionState> {
        match &self.detail {
            Detail::State { state, .. } => state.clone(),
            _ => None,
        }
    }

    /// Whether the message is meant for the library and not for its user: a state that was not asked for by
    /// the application.
    pub fn sdk_host_only(&self) -> bool {
        matches!(self.detail, Detail::State { sdk_host_only: true, .. })
    }

    /// A background task that began or ended. Both messages that can tell of an end (`task_notification` and
    /// `task_updated`) give one, and either may be the only one.
    pub fn task(&self) -> Option<TaskEvent> {
        match &self.detail {
            Detail::Task(task) => Some(task.clone()),
            _ => None,
        }
    }
}

/// What the session consists of (`system` / `init`). The first comes with the first turn, not before; each
/// turn begins with one.
///
/// ```
/// use greenroom::Message;
///
/// let line = r#"{"type": "system", "subtype": "init", "session_id": "s1", "cwd": "/srv", "model": "m",
///     "mcp_servers": [{"name": "calc", "status": "connected", "source": "sdk"}],
///     "capabilities": ["interrupt_receipt_v1"]}"#;
/// let Message::System(notice) = Message::parse(line)? else { unreachable!() };
/// let init = notice.init().unwrap();
/// assert_eq!(init.session_id.as_deref(), Some("s1"));
/// assert_eq!(init.mcp_server("calc").unwrap().status, "connected");
/// assert!(init.has_capability("interrupt_receipt_v1"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct InitMessage {
    /// The conversation's id, with which it can be resumed.
    #[serde(deserialize_with = "maybe")]
    pub session_id: Option<String>,
    /// The working directory.
    #[serde(deserialize_with = "maybe")]
    pub cwd: Option<String>,
    /// The names of all tools, built-in and MCP.
    #[serde(deserialize_with = "list")]
    pub tools: Vec<String>,
    /// The MCP servers.
    #[serde(deserialize_with = "list")]
    pub mcp_servers: Vec<InitMcpServer>,
    /// The model.
    #[serde(deserialize_with = "maybe")]
    pub model: Option<String>,
    /// The permission mode, in the CLI's spelling: `default`, `acceptEdits`, and others.
    #[serde(rename = "permissionMode", deserialize_with = "maybe")]
    pub permission_mode: Option<String>,
    /// Slash commands, without the slash.
    #[serde(deserialize_with = "list")]
    pub slash_commands: Vec<String>,
    /// Where the API key comes from, such as `ANTHROPIC_API_KEY` or `none`.
    #[serde(rename = "apiKeySource", deserialize_with = "maybe")]
    pub api_key_source: Option<String>,
    /// Beta features in use.
    #[serde(deserialize_with = "list")]
    pub betas: Vec<String>,
    /// The version of the CLI.
    #[serde(deserialize_with = "maybe")]
    pub claude_code_version: Option<String>,
    /// The output style.
    #[serde(deserialize_with = "maybe")]
    pub output_style: Option<String>,
    /// The names of the subagents.
    #[serde(deserialize_with = "list")]
    pub agents: Vec<String>,
    /// The names of the skills.
    #[serde(deserialize_with = "list")]
    pub skills: Vec<String>,
    /// The plugins.
    #[serde(deserialize_with = "list")]
    pub plugins: Vec<InitPlugin>,
    /// What this CLI can do, such as `interrupt_receipt_v1`. An open set; empty on CLIs older than 2.1.205.
    #[serde(deserialize_with = "list")]
    pub capabilities: Vec<String>,
}

impl InitMessage {
    /// Whether the CLI says that it has this capability.
    pub fn has_capability(&self, name: &str) -> bool {
        self.capabilities.iter().any(|capability| capability == name)
    }

    /// The MCP server of this name.
    pub fn mcp_server(&self, name: &str) -> Option<&InitMcpServer> {
        self.mcp_servers.iter().find(|server| server.name == name)
    }
}

/// An MCP server in an [`InitMessage`].
///
/// ```
/// let server: greenroom::InitMcpServer =
///     serde_json::from_str(r#"{"name": "calc", "status": "connected", "source": "sdk"}"#)?;
/// assert_eq!((server.name.as_str(), server.source.as_deref()), ("calc", Some("sdk")));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct InitMcpServer {
    /// Its name.
    pub name: String,
    /// `connected`, `failed`, `needs-auth`, `pending`, `disabled`; an open set. Empty if the CLI did not say.
    #[serde(default, deserialize_with = "or_default")]
    pub status: String,
    /// Who configured it: `sdk` for servers of the host, `user`, `project`, and others; an open set.
    #[serde(default, deserialize_with = "maybe")]
    pub source: Option<String>,
}

/// A plugin in an [`InitMessage`].
///
/// ```
/// let plugin: greenroom::InitPlugin = serde_json::from_str(r#"{"name": "notes", "path": "/srv/notes"}"#)?;
/// assert_eq!(plugin.path.as_deref(), Some("/srv/notes"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct InitPlugin {
    /// Its name.
    pub name: String,
    /// Its folder, or `builtin`.
    #[serde(default, deserialize_with = "maybe")]
    pub path: Option<String>,
}

/// What the session does now.
///
/// ```
/// use greenroom::SessionState;
///
/// let state: SessionState = serde_json::from_str(r#""dreaming""#)?;
/// assert_eq!(state, SessionState::Other("dreaming".into()));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionState {
    /// It waits for a prompt (`idle`).
    Idle,
    /// It works (`running`).
    Running,
    /// It waits for an answer of the host, such as a permission (`requires_action`).
    RequiresAction,
    /// A state that this library does not know, in the CLI's word.
    Other(String),
}

impl<'de> Deserialize<'de> for SessionState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Ok(match word.as_str() {
            "idle" => SessionState::Idle,
            "running" => SessionState::Running,
            "requires_action" => SessionState::RequiresAction,
            _ => SessionState::Other(word),
        })
    }
}

/// A background task that began or ended.
///
/// ```
/// use greenroom::{Message, TaskEvent, TaskStatus};
///
/// let line =
///     r#"{"type": "system", "subtype": "task_updated", "task_id": "t1", "patch": {"status": "killed"}}"#;
/// let Message::System(notice) = Message::parse(line)? else { unreachable!() };
/// let Some(TaskEvent::Ended { task_id, status, .. }) = notice.task() else { unreachable!() };
/// assert_eq!((task_id.as_str(), status), ("t1", TaskStatus::Killed));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskEvent {
    /// It began (`task_started`).
    #[non_exhaustive]
    Started {
        /// The task.
        task_id: String,
        /// What it is: `local_agent`, `local_workflow`, a shell, a monitor, and others; an open set.
        task_type: Option<String>,
    },
    /// It ended (`task_notification`, or `task_updated` with a status after which nothing follows).
    #[non_exhaustive]
    Ended {
        /// The task.
        task_id: String,
        /// How.
        status: TaskStatus,
    },
}

/// How a background task ended.
///
/// ```
/// let status: greenroom::TaskStatus = serde_json::from_str(r#""completed""#)?;
/// assert_eq!(status, greenroom::TaskStatus::Completed);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskStatus {
    /// It came to its end (`completed`).
    Completed,
    /// It failed (`failed`).
    Failed,
    /// It was stopped (`stopped`).
    Stopped,
    /// It was killed (`killed`).
    Killed,
    /// Another word; empty if the CLI gave none.
    Other(String),
}

impl<'de> Deserialize<'de> for TaskStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Ok(match word.as_str() {
            "completed" => TaskStatus::Completed,
            "failed" => TaskStatus::Failed,
            "stopped" => TaskStatus::Stopped,
            "killed" => TaskStatus::Killed,
            _ => TaskStatus::Other(word),
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StateFields {
    #[serde(deserialize_with = "maybe")]
    state: Option<SessionState>,
    #[serde(deserialize_with = "or_default")]
    sdk_host_only: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TaskFields {
    #[serde(deserialize_with = "maybe")]
    task_id: Option<String>,
    #[serde(deserialize_with = "maybe")]
    task_type: Option<String>,
    #[serde(deserialize_with = "maybe")]
    status: Option<TaskStatus>,
    #[serde(deserialize_with = "or_default")]
    patch: Patch,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Patch {
    #[serde(deserialize_with = "maybe")]
    status: Option<TaskStatus>,
}

/// The typed part of a system message.
pub(super) struct Fields(Detail);

/// Reads the typed part; a subtype without one is not looked into.
pub(super) fn read(subtype: Option<&str>, text: &str) -> serde_json::Result<Fields> {
    let Some(subtype) = subtype else { return Err(de::Error::missing_field("subtype")) };
    let detail = match subtype {
        "init" => Detail::Init(serde_json::from_str(text)?),
        "session_state_changed" => {
            let StateFields { state, sdk_host_only } = serde_json::from_str(text)?;
            Detail::State { state, sdk_host_only }
        }
        "task_started" | "task_updated" | "task_notification" => {
            task(subtype, serde_json::from_str(text)?).map_or(Detail::None, Detail::Task)
        }
        _ => Detail::None,
    };
    Ok(Fields(detail))
}

fn task(subtype: &str, fields: TaskFields) -> Option<TaskEvent> {
    let task_id = fields.task_id?;
    match subtype {
        "task_started" => Some(TaskEvent::Started { task_id, task_type: fields.task_type }),
        "task_notification" => {
            let status = fields.status.unwrap_or_else(|| TaskStatus::Other(String::new()));
            Some(TaskEvent::Ended { task_id, status })
        }
        // Any other status means that the task goes on: `pending`, `running`, `paused`.
        _ => match fields.patch.status? {
            TaskStatus::Other(_) => None,
            status => Some(TaskEvent::Ended { task_id, status }),
        },
    }
}

impl Fields {
    pub(super) fn finish(self, head: Head, raw: Box<RawValue>) -> SystemMessage {
        let subtype = head.subtype.clone().unwrap_or_default();
        SystemMessage { head, raw, subtype, detail: self.0 }
    }
}
