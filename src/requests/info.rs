//! Installed and active: models, version, hooks, permission rules, plugins, skills.

use std::path::PathBuf;

use serde_json::{Map, Value};

use super::mcp::McpServerStatus;
use super::server_info::{AgentInfo, ModelInfo};
use crate::message::SlashCommand;
use crate::permission::PermissionBehavior;
use crate::wire::objects::objects;

objects! {
    /// Models that can be chosen.
    answer ModelList {
        models: Vec<ModelInfo>,
    }

    /// The build of the CLI.
    answer BinaryVersion {
        version: String,
        /// ISO 8601.
        build_time: Option<String> = "buildTime",
        /// The oldest supported SDK of the desktop application.
        oldest_desktop_sdk: Option<String> = "oldestDesktopSdk",
    }

    /// Hooks of settings files, plugins and the session, with texts for people.
    answer HooksListing {
        /// Events that have hooks.
        events: Vec<HookEventRow>,
        hooks: Vec<HookRow>,
        /// All events.
        event_catalog: Vec<HookEventInfo> = "eventCatalog",
        policy: HookPolicy,
        /// In safe mode: `managedHooksStillApply`, `exitHint`.
        safe_mode: Option<Value> = "safeMode",
        /// In bare mode: `exitHint`.
        bare_mode: Option<Value> = "bareMode",
        /// Broken settings files. Their hooks are not listed and do not run.
        errors: Vec<SettingsError>,
    }

    /// A hook event with hooks.
    answer HookEventRow {
        name: String,
        summary: String,
        supports_matcher: bool = "supportsMatcher",
        hook_count: u64 = "hookCount",
    }

    /// A hook event.
    answer HookEventInfo {
        name: String,
        summary: String,
        supports_matcher: bool = "supportsMatcher",
    }

    /// A hook.
    answer HookRow {
        event: String,
        /// Empty if the hook has no matcher.
        matcher: String,
        /// `userSettings`, `sessionHook`, `pluginHook` and others.
        source: String,
        /// The source, for people.
        source_label: String = "sourceLabel",
        plugin_name: Option<String> = "pluginName",
        /// `command`, `prompt`, `agent`, `http`, `mcp_tool`; an open set.
        kind: String = "type",
        /// One line for a list.
        display_text: String = "displayText",
        /// The command, the prompt or the address.
        command_text: String = "commandText",
        /// The kind of content, for people.
        content_label: String = "contentLabel",
        condition: Option<String>,
        /// In seconds.
        timeout: Option<f64>,
        /// Text to show while the hook runs.
        status_message: Option<String> = "statusMessage",
        runs_once: Option<bool> = "runsOnce",
        runs_in_background: Option<bool> = "runsInBackground",
        /// The session's mode or a policy disables the hook.
        disabled: Option<bool>,
        /// The stored entry, if it may be edited.
        editable: Option<Value>,
    }

    /// Policies for all hooks.
    answer HookPolicy {
        /// Managed settings disable all hooks.
        disabled_by_policy: bool = "disabledByPolicy",
        /// Managed settings allow only their own hooks.
        managed_only: bool = "managedOnly",
        /// Managed settings allow only hooks of plugins.
        plugin_only: bool = "pluginOnly",
        /// All hooks are disabled, for any reason.
        all_disabled: bool = "allDisabled",
        /// Number of hooks in managed settings.
        policy_hook_count: u64 = "policyHookCount",
        /// Managed settings exist but could not be read.
        policy_unreadable: Option<bool> = "policyUnreadable",
    }

    /// An error in a settings file.
    answer SettingsError {
        file: Option<String>,
        /// The field, such as `permissions.allow`; empty for the whole file.
        path: String,
        message: String,
    }

    /// The active permission rules, and the folders that the session may work in.
    answer PermissionRules {
        state: PermissionRulesState,
    }

    /// Permission rules and folders, in [`PermissionRules`].
    answer PermissionRulesState {
        /// Rules of settings files, of the command line and of the session.
        rules: Vec<PermissionRuleInfo>,
        /// Folders besides the working directory.
        workspace_directories: Vec<WorkspaceDirectory> = "workspaceDirectories",
        /// The working directory in which the session was started.
        original_cwd: String = "originalCwd",
        /// Only the rules of managed settings are active.
        managed_only: bool = "managedOnly",
        /// Broken settings files. Their rules are neither listed nor active.
        errors: Vec<SettingsError>,
        /// The answer is incomplete, because the connection stores its answers.
        withheld: Option<bool>,
    }

    /// A permission rule.
    answer PermissionRuleInfo {
        behavior: Option<PermissionBehavior>,
        /// `cliArg`, `session`, `userSettings`, `projectSettings`, `localSettings`, `policySettings` and others.
        source: String,
        /// The stored rule. It may contain control characters.
        rule: String,
        description: Option<RuleDescription>,
        /// `persistent`, `session` or `readonly`.
        editability: String,
        /// The rule is ignored, because only the rules of managed settings are active.
        not_in_effect: Option<bool> = "notInEffect",
    }

    /// A rule for people: one text in three parts, of which the second is emphasized.
    answer RuleDescription {
        prefix: Option<String>,
        emphasis: Option<String>,
        suffix: Option<String>,
    }

    /// A folder that the session may work in.
    answer WorkspaceDirectory {
        path: String,
        /// A settings source, `cliArg` or `session`.
        source: String,
    }

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

/// Options of [`Requests::reload_plugins`](crate::session::Requests::reload_plugins).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field has a method of its name")]
#[non_exhaustive]
pub struct ReloadPlugins {
    pub hold_on_cache_impact: bool,
    pub refuse_if_busy: bool,
    pub add_plugins: Vec<(PathBuf, bool)>,
}

impl ReloadPlugins {
    /// Reloads all plugins at once.
    pub fn new() -> Self {
        Self::default()
    }

    /// Changes nothing if the list of tools, and so the prompt cache, would change. The answer then lists the changes
    /// in [`ReloadedPlugins::cache_impact`].
    pub fn hold_on_cache_impact(mut self, hold: bool) -> Self {
        self.hold_on_cache_impact = hold;
        self
    }

    /// Makes a busy CLI refuse, with the [code](crate::Error::code) `reload_plugins_busy`. Needs the capability
    /// `reload_plugins_refuse_if_busy_v1`.
    pub fn refuse_if_busy(mut self, refuse: bool) -> Self {
        self.refuse_if_busy = refuse;
        self
    }

    /// Also loads the plugin in this folder. The path must be absolute.
    pub fn add_plugin(mut self, path: impl Into<PathBuf>) -> Self {
        self.add_plugins.push((path.into(), false));
        self
    }

    /// Also loads the plugin in this folder, without its MCP servers. The path must be absolute.
    pub fn add_plugin_without_mcp(mut self, path: impl Into<PathBuf>) -> Self {
        self.add_plugins.push((path.into(), true));
        self
    }
}
