//! Subagents that a session defines.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::mcp::ExternalServer;
use super::permission::PermissionMode;
use crate::error::{Error, Result};
use crate::options::Effort;
use crate::options::check::check_name;
use crate::wire::words::words;

/// A subagent, as the CLI's JSON (camelCase). It goes to the CLI in `initialize`.
///
/// Fields that are `None` or empty are left to the CLI. Every field is named as in `AgentDefinition` of the TypeScript
/// SDK 0.3.330. `Debug` shows the names of the fields in `extra` without their values.
///
/// ```
/// use greenroom::options::AgentDefinition;
///
/// let mut reviewer = AgentDefinition::new("Reviews code", "You are a strict reviewer.");
/// reviewer.tools = Some(vec!["Read".into(), "Grep".into()]);
/// reviewer.model = Some("haiku".into());
/// assert_eq!(serde_json::to_value(&reviewer)?["tools"], serde_json::json!(["Read", "Grep"]));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct AgentDefinition {
    /// When to use the agent; the model reads this.
    pub description: String,
    /// The agent's system prompt.
    pub prompt: String,
    /// The agent's tools. Default: all tools of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Disallowed tools; `mcp__server` matches all tools of a server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disallowed_tools: Vec<String>,
    /// The agent's model, by name or alias; `inherit` for the model of the session. Default: the CLI's for subagents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// MCP servers of the agent: names of servers of the session, or definitions of other servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<AgentServer>,
    /// Skills that are preloaded into the agent's context.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    /// With [`Options::agent`](crate::Options::agent): a first prompt, which goes before the user's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_prompt: Option<String>,
    /// The most model turns. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// As a subagent: number of tokens at which its conversation is compacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_compact_window: Option<u64>,
    /// Whether the agent runs in the background.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<bool>,
    /// As a subagent: whether the `CLAUDE.md` files of user and project are left out of its context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omit_claude_md: Option<bool>,
    /// The memory files that the agent loads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<AgentMemory>,
    /// Effort of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<AgentEffort>,
    /// The permission mode for the agent's tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<PermissionMode>,
    /// An agent that watches this one in the background, or up to four, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observer: Option<String>,
    /// The message that the observer gets after each digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observer_message: Option<String>,
    /// A reminder in the system prompt. Experimental in the CLI.
    #[serde(
        default,
        rename = "criticalSystemReminder_EXPERIMENTAL",
        skip_serializing_if = "Option::is_none"
    )]
    pub critical_system_reminder: Option<String>,
    /// Other fields that the CLI knows.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl AgentDefinition {
    /// An agent from the two required fields: when to use it, and its system prompt.
    pub fn new(description: impl Into<String>, prompt: impl Into<String>) -> Self {
        Self { description: description.into(), prompt: prompt.into(), ..Self::default() }
    }
}

/// An MCP server of an agent: a server of the session by name, or definitions of other servers. Refer to in-process
/// servers by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum AgentServer {
    /// A server of the session.
    Named(String),
    /// Servers of this agent, by name.
    Own(BTreeMap<String, ExternalServer>),
}

words! {
    /// The memory files that an agent loads.
    pub enum AgentMemory {
        /// The user's memory.
        User = "user",
        /// The project's shared memory.
        Project = "project",
        /// The project's memory on this machine only.
        Local = "local",
    }
}

/// Effort of an agent: a named level, or a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the variants are the two forms of the value")]
pub enum AgentEffort {
    Number(i64),
    Level(Effort),
}

impl From<Effort> for AgentEffort {
    fn from(level: Effort) -> Self {
        Self::Level(level)
    }
}

pub(crate) fn validate(agents: &BTreeMap<String, AgentDefinition>) -> Result<()> {
    for (name, agent) in agents {
        check_name("agents", name)?;
        let missing = [("description", &agent.description), ("prompt", &agent.prompt)];
        if let Some((field, _)) = missing.into_iter().find(|(_, text)| text.trim().is_empty()) {
            return Err(Error::invalid_option(format!("option `agents`: the agent '{name}' has no {field}"))
                .with_help("the CLI needs a `description` and a `prompt` for each agent"));
        }
        for server in &agent.mcp_servers {
            if let AgentServer::Own(servers) = server {
                super::mcp::validate(servers, &format!("agents.{name}.mcpServers"))?;
            }
        }
    }
    Ok(())
}
