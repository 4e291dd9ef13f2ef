//! The subagents of a session.

use serde::Serialize;
use serde_json::Value;

use crate::error::{Error, ErrorKind};

/// A subagent of a session.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SubagentInfo {
    /// The subagent's id.
    pub agent_id: String,
    /// The type of agent, such as `general-purpose`.
    pub agent_type: Option<String>,
    /// The subagent's task, in a few words.
    pub description: Option<String>,
    /// The tool call that started the subagent.
    pub parent_tool_use_id: Option<String>,
    /// The subagent that started this one; `None` if the main thread did.
    pub parent_agent_id: Option<String>,
    /// All metadata that the CLI has written; `null` without any.
    pub metadata: Value,
}

/// Who started a subagent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parents {
    pub(crate) tool_use_id: Option<String>,
    pub(crate) parent_agent_id: Option<String>,
}

impl Parents {
    /// The parents in a subagent's metadata.
    pub(crate) fn of(metadata: Option<&Value>) -> Self {
        Self { tool_use_id: text(metadata, "toolUseId"), parent_agent_id: text(metadata, "parentAgentId") }
    }
}

impl SubagentInfo {
    pub(crate) fn new(agent_id: String, metadata: Option<Value>) -> Self {
        let Parents { tool_use_id, parent_agent_id } = Parents::of(metadata.as_ref());
        Self {
            agent_id,
            agent_type: text(metadata.as_ref(), "agentType"),
            description: text(metadata.as_ref(), "description"),
            parent_tool_use_id: tool_use_id,
            parent_agent_id,
            metadata: metadata.unwrap_or_default(),
        }
    }
}

fn text(metadata: Option<&Value>, name: &str) -> Option<String> {
    metadata?.get(name)?.as_str().map(str::to_owned)
}

pub(crate) fn no_subagent(session_id: &str, agent_id: &str) -> Error {
    let text = format!("the session {session_id} has no subagent '{agent_id}'");
    Error::new(ErrorKind::SessionNotFound, text).with_help("give an id from `subagents`")
}
