//! `system/init`: the first message of each turn, which describes the session.

use serde_json::Value;

use crate::wire::objects::objects;

objects! {
    /// The session as the CLI set it up (`system` / `init`). Each turn starts with this message; before the first
    /// prompt there is none.
    message InitMessage {
        /// The conversation's id, with which it can be resumed.
        session_id: Option<String>,
        cwd: Option<String>,
        /// The working directory in which the session was started.
        original_cwd: Option<String>,
        /// More folders that the tools may work in.
        additional_directories: Vec<String>,
        /// The names of all tools, built-in and MCP.
        tools: Vec<String>,
        mcp_servers: Vec<InitMcpServer>,
        model: Option<String>,
        /// `default`, `acceptEdits`, and others, as the CLI spells them.
        permission_mode: Option<String> = "permissionMode",
        /// Slash commands, without the slash.
        slash_commands: Vec<String>,
        /// Slash commands that only work in a terminal.
        terminal_slash_commands: Vec<String>,
        /// The source of the API key, such as `ANTHROPIC_API_KEY` or `none`.
        api_key_source: Option<String> = "apiKeySource",
        betas: Vec<String>,
        /// The version of the CLI.
        claude_code_version: Option<String>,
        output_style: Option<String>,
        /// The names of the subagents.
        agents: Vec<String>,
        /// The names of the skills.
        skills: Vec<String>,
        plugins: Vec<InitPlugin>,
        /// Plugins that could not be loaded.
        plugin_errors: Vec<InitPluginError>,
        /// `off`, `on`, or `cooldown` until a used-up fast mode returns.
        fast_mode_state: Option<String>,
        /// Reason if the fast mode is unavailable.
        fast_mode_disabled_reason: Option<String>,
        /// `low`, `medium`, `high`, `xhigh` or `max`.
        effort: Option<String>,
        /// `default` or `focus`.
        view_mode: Option<String>,
        /// Features of this CLI, such as `interrupt_receipt_v1`. An open set; empty before CLI 2.1.205.
        capabilities: Vec<String>,
    }

    /// An MCP server in an [`InitMessage`].
    part InitMcpServer {
        name: String,
        /// `connected`, `failed`, `needs-auth`, `pending`, `disabled`; an open set. Empty if the CLI did not say.
        status: String,
        /// The configuration that names the server: `sdk` for servers of the host, `user`, `project`, and others.
        source: Option<String>,
    }

    /// A plugin in an [`InitMessage`].
    part InitPlugin {
        name: String,
        /// The plugin's folder, or `builtin`.
        path: Option<String>,
        version: Option<String>,
        /// The plugin and its marketplace, such as `notes@builtin`.
        source: Option<String>,
    }

    /// A plugin that could not be loaded, in an [`InitMessage`].
    part InitPluginError {
        plugin: String,
        /// The kind of error, such as `not-found`.
        kind: String = "type",
        message: String,
        /// The file or folder concerned.
        path: Option<String>,
        /// The rule of the organization that locks the plugin: `plugin_enabled`, `name`, `marketplace`.
        managed_lock: Option<Value>,
    }
}

impl InitMessage {
    /// The MCP server of this name.
    pub fn mcp_server(&self, name: &str) -> Option<&InitMcpServer> {
        self.mcp_servers.iter().find(|server| server.name == name)
    }
}
