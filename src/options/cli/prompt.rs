//! The system prompt, and plugins that the CLI loads.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The system prompt of a session. A file goes by its path, everything else in `initialize`, never as an argument.
///
/// ```
/// use greenroom::options::SystemPrompt;
///
/// let prompt = SystemPrompt::Append("Answer in one line.".into());
/// // The model caches the blocks before the boundary across sessions that share them.
/// let cached = SystemPrompt::Blocks(vec![
///     "You are a release bot.".into(),
///     SystemPrompt::DYNAMIC_BOUNDARY.into(),
///     "This is release 7.".into(),
/// ]);
/// # let _ = (prompt, cached);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SystemPrompt {
    /// No system prompt.
    #[default]
    Empty,
    /// Only this text.
    Text(String),
    /// Only these texts, with [`DYNAMIC_BOUNDARY`](SystemPrompt::DYNAMIC_BOUNDARY) at most once between them: blocks
    /// before it may be cached across sessions, blocks after it not.
    Blocks(Vec<String>),
    /// Claude Code's own.
    ClaudeCode,
    /// Claude Code's own, followed by this text.
    Append(String),
    /// Only the content of this file (`--system-prompt-file`).
    File(PathBuf),
}

impl SystemPrompt {
    /// The block that divides [`Blocks`](SystemPrompt::Blocks). The model does not see it.
    pub const DYNAMIC_BOUNDARY: &'static str = "__SYSTEM_PROMPT_DYNAMIC_BOUNDARY__";
}

/// A plugin that the CLI loads, as the CLI's JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub enum Plugin {
    /// A plugin in a folder of this machine.
    Local {
        /// The plugin's folder.
        path: PathBuf,
        /// Whether the plugin's MCP servers are left out; its skills, hooks, agents and commands are loaded.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        skip_mcp_discovery: bool,
    },
}

impl Plugin {
    /// The plugin in this folder, with all its parts.
    pub fn local(path: impl Into<PathBuf>) -> Self {
        Self::Local { path: path.into(), skip_mcp_discovery: false }
    }
}
