//! What the session consists of, in the message that each turn begins with.

use serde_json::Value;

use crate::wire::message::reason::FastModeState;
use crate::wire::message::view::view;

view! {
    /// What the session consists of (`system` / `init`). The first comes with the first turn, not before; each
    /// turn begins with one.
    message InitMessage: r#"{"session_id": "s1", "cwd": "/srv", "mcp_servers": [{"name": "calc"}]}"#
        => r#"view.session_id.as_deref() == Some("s1") && view.mcp_server("calc").is_some()"#
    {
        /// The conversation's id, with which it can be resumed.
        session_id: Option<String>,
        /// The working directory.
        cwd: Option<String>,
        /// The working directory in which the session began.
        original_cwd: Option<String>,
        /// More folders that the tools may work in.
        additional_directories: Vec<String>,
        /// The names of all tools, built-in and MCP.
        tools: Vec<String>,
        /// The MCP servers.
        mcp_servers: Vec<InitMcpServer>,
        /// The model.
        model: Option<String>,
        /// The permission mode, in the CLI's spelling: `default`, `acceptEdits`, and others.
        permission_mode: Option<String> = "permissionMode",
        /// Slash commands, without the slash.
        slash_commands: Vec<String>,
        /// Those that only make sense in a terminal.
        terminal_slash_commands: Vec<String>,
        /// Where the API key comes from, such as `ANTHROPIC_API_KEY` or `none`.
        api_key_source: Option<String> = "apiKeySource",
        /// Beta features in use.
        betas: Vec<String>,
        /// The version of the CLI.
        claude_code_version: Option<String>,
        /// The output style.
        output_style: Option<String>,
        /// The names of the subagents.
        agents: Vec<String>,
        /// The names of the skills.
        skills: Vec<String>,
        /// The plugins.
        plugins: Vec<InitPlugin>,
        /// Plugins that could not be loaded.
        plugin_errors: Vec<InitPluginError>,
        /// Whether the fast mode is on.
        fast_mode_state: Option<FastModeState>,
        /// Why the fast mode cannot be used, as a word.
        fast_mode_disabled_reason: Option<String>,
        /// How hard the model thinks: `low`, `medium`, `high`, `xhigh`, `max`.
        effort: Option<String>,
        /// Whether an effort was set for this turn alone.
        per_turn_effort_active: Option<bool>,
        /// How much is shown: `default` or `focus`.
        view_mode: Option<String>,
        /// What this CLI can do, such as `interrupt_receipt_v1`. An open set; empty on CLIs older than 2.1.205.
        capabilities: Vec<String>,
        /// Where the CLI keeps what it remembers, by kind.
        memory_paths: Option<Value>,
        /// The socket on which other sessions reach this one.
        messaging_socket_path: Option<String>,
        /// Whether analytics are off.
        analytics_disabled: Option<bool>,
        /// Whether feedback on the product is off.
        product_feedback_disabled: Option<bool>,
        /// Whether the word that makes the model think harder works.
        ultrathink_available: Option<bool>,
        /// Whether it works when it is typed in a prompt.
        ultrathink_typed_raises: Option<bool>,
    }

    /// An MCP server in an [`InitMessage`].
    part InitMcpServer: r#"{"name": "calc", "status": "connected", "source": "sdk"}"#
        => r#"view.name == "calc" && view.source.as_deref() == Some("sdk")"#
    {
        /// Its name.
        name: String,
        /// `connected`, `failed`, `needs-auth`, `pending`, `disabled`; an open set. Empty if the CLI did not say.
        status: String,
        /// Who configured it: `sdk` for servers of the host, `user`, `project`, and others; an open set.
        source: Option<String>,
    }

    /// A plugin in an [`InitMessage`].
    part InitPlugin: r#"{"name": "notes", "path": "/srv/notes"}"#
        => r#"view.path.as_deref() == Some("/srv/notes")"#
    {
        /// Its name.
        name: String,
        /// Its folder, or `builtin`.
        path: Option<String>,
        /// Its version.
        version: Option<String>,
        /// Where it comes from, such as `notes@builtin`.
        source: Option<String>,
    }

    /// A plugin that could not be loaded, in an [`InitMessage`].
    part InitPluginError: r#"{"plugin": "notes", "type": "not-found", "message": "no such folder"}"#
        => r#"view.plugin == "notes" && view.kind == "not-found""#
    {
        /// The plugin.
        plugin: String,
        /// What is wrong, as a word.
        kind: String = "type",
        /// What is wrong, for people.
        message: String,
        /// The file or folder concerned.
        path: Option<String>,
        /// The rule of the organization that holds it: `plugin_enabled`, `name`, `marketplace`.
        managed_lock: Option<Value>,
    }
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
