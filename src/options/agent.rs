//! Subagents that a session brings along.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::mcp::ExternalServer;
use super::permission::PermissionMode;
use super::word::words;
use super::{Effort, check_name};
use crate::error::{Error, Result};

/// A subagent, in the CLI's own form (camelCase in JSON). It travels in `initialize`.
///
/// ```
/// use greenroom::AgentDefinition;
///
/// let mut reviewer = AgentDefinition::new("Reviews code", "You are a strict reviewer.");
/// reviewer.tools = Some(vec!["Read".into(), "Grep".into()]);
/// reviewer.model = Some("haiku".into());
/// assert_eq!(serde_json::to_value(&reviewer)?["tools"], serde_json::json!(["Read", "Grep"]));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct AgentDefinition {
    /// When to use it, in words that the model reads.
    pub description: String,
    /// Its system prompt.
    pub prompt: String,
    /// The tools that it has. Default: those of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The tools that it has not; `mcp__server` stands for all of a server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disallowed_tools: Vec<String>,
    /// Its model, by name or alias; `inherit` for that of the session. Default: the CLI's for subagents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its MCP servers: those of the session by name, and others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<AgentServer>,
    /// Skills that are loaded into its context.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    /// The first prompt, when it is the agent of the main conversation ([`Options::agent`](super::Options::agent)); it
    /// goes before that of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_prompt: Option<String>,
    /// The most round trips to the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// The number of tokens at which it compacts its own conversation, as a subagent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_compact_window: Option<u64>,
    /// Whether it runs in the background.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<bool>,
    /// Whether it runs without the `CLAUDE.md` files of user and project, as a subagent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omit_claude_md: Option<bool>,
    /// Whose memory files it loads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<AgentMemory>,
    /// How hard it works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<AgentEffort>,
    /// How the CLI decides on its tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<PermissionMode>,
    /// An agent that watches it in the background, or up to four with commas between them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observer: Option<String>,
    /// What is said to the observer after each digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observer_message: Option<String>,
    /// A reminder in its system prompt. Experimental.
    #[serde(
        default,
        rename = "criticalSystemReminder_EXPERIMENTAL",
        skip_serializing_if = "Option::is_none"
    )]
    pub critical_system_reminder: Option<String>,
    /// Any other field that the CLI knows.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl AgentDefinition {
    /// An agent with a description of when to use it, and its system prompt.
    pub fn new(description: impl Into<String>, prompt: impl Into<String>) -> Self {
        Self { description: description.into(), prompt: prompt.into(), ..Self::default() }
    }
}

/// An MCP server of an agent: one of the session by its name, or others of its own. In-process servers go by name.
///
/// ```
/// use greenroom::options::AgentServer;
///
/// let server: AgentServer = serde_json::from_str(r#""calc""#)?;
/// assert_eq!(server, AgentServer::Named("calc".into()));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum AgentServer {
    /// One of the session.
    Named(String),
    /// Others, by name.
    Own(BTreeMap<String, ExternalServer>),
}

words! {
    /// Whose memory files an agent loads.
    ///
    /// ```
    /// assert_eq!(greenroom::options::AgentMemory::Project.as_str(), "project");
    /// ```
    pub enum AgentMemory {
        /// The user's.
        User = "user",
        /// The project's.
        Project = "project",
        /// The project's, of this machine.
        Local = "local",
    }
}

/// How hard an agent works: a level, or a number.
///
/// ```
/// use greenroom::Effort;
/// use greenroom::options::AgentEffort;
///
/// assert_eq!(serde_json::from_str::<AgentEffort>("7")?, AgentEffort::Number(7));
/// assert_eq!(AgentEffort::from(Effort::High), AgentEffort::Level(Effort::High));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum AgentEffort {
    /// A number.
    Number(i64),
    /// A level.
    Level(Effort),
}

impl From<Effort> for AgentEffort {
    fn from(level: Effort) -> Self {
        Self::Level(level)
    }
}

pub(super) fn validate(agents: &BTreeMap<String, AgentDefinition>) -> Result<()> {
    for (name, agent) in agents {
        check_name("agents", name)?;
        let missing = [("description", &agent.description), ("prompt", &agent.prompt)];
        if let Some((field, _)) = missing.into_iter().find(|(_, text)| text.trim().is_empty()) {
            return Err(Error::invalid_option(format!(
                "option `agents` has an agent '{name}' without a {field}"
            )));
        }
        for server in &agent.mcp_servers {
            if let AgentServer::Own(servers) = server {
                super::mcp::validate(servers, &format!("agents.{name}.mcpServers"))?;
            }
        }
    }
    Ok(())
}
