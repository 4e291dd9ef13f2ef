//! Installed and active: plugins, skills, output styles.

use std::path::PathBuf;

use serde_json::{Map, Value};

use super::mcp::McpServerStatus;
use super::server_info::AgentInfo;
use crate::message::SlashCommand;
use crate::wire::objects::objects;

objects! {
    /// Answer to [`Requests::reload_plugins`](crate::session::Requests::reload_plugins).
    answer ReloadedPlugins {
        commands: Vec<SlashCommand>,
        /// Kinds of subagents.
        agents: Vec<AgentInfo>,
        plugins: Vec<PluginInfo>,
        mcp_servers: Vec<McpServerStatus> = "mcpServers",
        /// Number of plugins that could not be loaded.
        error_count: u64,
        /// The reload was held back, so the lists are unchanged.
        held: Option<bool>,
        /// Changes that a held reload would make: `mcp_servers_added`, `mcp_servers_removed`, `lsp_tool_change`.
        cache_impact: Option<Map<String, Value>>,
    }

    /// A plugin.
    answer PluginInfo {
        name: String,
        /// The plugin's folder, or `builtin`.
        path: String,
        /// The plugin and its marketplace, such as `notes@market`.
        source: Option<String>,
        version: Option<String>,
    }

    /// Answer to [`Requests::reload_skills`](crate::session::Requests::reload_skills).
    answer ReloadedSkills {
        skills: Vec<SlashCommand>,
    }

    /// Answer to [`Requests::reload_output_styles`](crate::session::Requests::reload_output_styles).
    answer ReloadedOutputStyles {
        available_output_styles: Vec<String>,
    }
}

/// Options of [`Requests::reload_plugins`](crate::session::Requests::reload_plugins). By default all plugins are
/// reloaded at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadPlugins {
    /// Changes nothing if the list of tools, and so the prompt cache, would change. The answer then lists the changes
    /// in [`ReloadedPlugins::cache_impact`].
    pub hold_on_cache_impact: bool,
    /// Makes a busy CLI refuse, with the [code](crate::Error::code) `reload_plugins_busy`. Needs the capability
    /// `reload_plugins_refuse_if_busy_v1`.
    pub refuse_if_busy: bool,
    /// Also loads the plugins in these folders, whose paths must be absolute; without their MCP servers if the flag
    /// beside the path is set.
    pub add_plugins: Vec<(PathBuf, bool)>,
}
