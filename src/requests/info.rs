//! What is installed and in force: models, version, hooks, permission rules, plugins, skills.

use std::path::PathBuf;

use serde_json::{Map, Value};

use super::mcp::McpServerStatus;
use super::read::answers;
use super::server_info::{AgentInfo, ModelInfo};
use crate::message::SlashCommand;
use crate::permission::PermissionBehavior;

answers! {
    /// The models that can be chosen.
    ///
    /// ```
    /// let list: greenroom::requests::ModelList =
    ///     serde_json::from_str(r#"{"models": [{"value": "haiku", "displayName": "Haiku", "description": ""}]}"#)?;
    /// assert_eq!(list.models[0].value, "haiku");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct ModelList {
        /// The models.
        pub models: Vec<ModelInfo> = "models",
    }

    /// The build of the CLI.
    ///
    /// ```
    /// let build: greenroom::requests::BinaryVersion = serde_json::from_str(r#"{"version": "2.1.328"}"#)?;
    /// assert_eq!(build.version, "2.1.328");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct BinaryVersion {
        /// Its version.
        pub version: String = "version",
        /// When it was built (ISO 8601), if it says so (CLI 2.1.328 does).
        pub build_time: Option<String> = "buildTime",
        /// The oldest SDK of the desktop application that it works with.
        pub oldest_desktop_sdk: Option<String> = "oldestDesktopSdk",
    }

    /// The hooks of settings files, plugins and the session, with text that is ready to be shown.
    ///
    /// ```
    /// let listing: greenroom::requests::HooksListing =
    ///     serde_json::from_str(r#"{"hooks": [], "policy": {"allDisabled": true}}"#)?;
    /// assert!(listing.policy.all_disabled);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct HooksListing {
        /// The events that have a hook.
        pub events: Vec<HookEventRow> = "events",
        /// The hooks.
        pub hooks: Vec<HookRow> = "hooks",
        /// All events that there are.
        pub event_catalog: Vec<HookEventInfo> = "eventCatalog",
        /// What the organization, or the user, says of hooks as a whole.
        pub policy: HookPolicy = "policy",
        /// Set in safe mode: `managedHooksStillApply`, `exitHint`.
        pub safe_mode: Option<Value> = "safeMode",
        /// Set in bare mode: `exitHint`.
        pub bare_mode: Option<Value> = "bareMode",
        /// The settings files that could not be read: their hooks are not listed, and do not run.
        pub errors: Vec<SettingsError> = "errors",
    }

    /// A hook event that has hooks.
    ///
    /// ```
    /// let row: greenroom::requests::HookEventRow =
    ///     serde_json::from_str(r#"{"name": "PreToolUse", "hookCount": 2, "supportsMatcher": true}"#)?;
    /// assert_eq!(row.hook_count, 2);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct HookEventRow {
        /// Its name.
        pub name: String = "name",
        /// What it is, in a line.
        pub summary: String = "summary",
        /// Whether its hooks may have a matcher.
        pub supports_matcher: bool = "supportsMatcher",
        /// How many hooks it has.
        pub hook_count: u64 = "hookCount",
    }

    /// A hook event.
    ///
    /// ```
    /// let info: greenroom::requests::HookEventInfo =
    ///     serde_json::from_str(r#"{"name": "Stop", "summary": "At the end", "supportsMatcher": false}"#)?;
    /// assert!(!info.supports_matcher);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct HookEventInfo {
        /// Its name.
        pub name: String = "name",
        /// What it is, in a line.
        pub summary: String = "summary",
        /// Whether its hooks may have a matcher.
        pub supports_matcher: bool = "supportsMatcher",
    }

    /// A hook.
    ///
    /// ```
    /// let row: greenroom::requests::HookRow = serde_json::from_str(
    ///     r#"{"event": "Stop", "matcher": "", "source": "userSettings", "type": "command", "commandText": "true"}"#)?;
    /// assert_eq!((row.kind.as_str(), row.command_text.as_str()), ("command", "true"));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct HookRow {
        /// Its event.
        pub event: String = "event",
        /// Its matcher; empty if it has none.
        pub matcher: String = "matcher",
        /// Where it comes from: `userSettings`, `sessionHook`, `pluginHook` and others.
        pub source: String = "source",
        /// The same, for people.
        pub source_label: String = "sourceLabel",
        /// The plugin that it is of.
        pub plugin_name: Option<String> = "pluginName",
        /// What it is: `command`, `prompt`, `agent`, `http`, `mcp_tool`; an open set.
        pub kind: String = "type",
        /// A line to show in a list.
        pub display_text: String = "displayText",
        /// What runs: the command, the prompt, the address.
        pub command_text: String = "commandText",
        /// What that is, for people.
        pub content_label: String = "contentLabel",
        /// Its condition.
        pub condition: Option<String> = "condition",
        /// Its limit in seconds.
        pub timeout: Option<f64> = "timeout",
        /// What is shown while it runs.
        pub status_message: Option<String> = "statusMessage",
        /// Whether it runs once only.
        pub runs_once: Option<bool> = "runsOnce",
        /// Whether nobody waits for it.
        pub runs_in_background: Option<bool> = "runsInBackground",
        /// Whether the session's mode or policy keeps it from running.
        pub disabled: Option<bool> = "disabled",
        /// The entry as it is stored, if it may be edited.
        pub editable: Option<Value> = "editable",
    }

    /// What is said of hooks as a whole.
    ///
    /// ```
    /// let policy: greenroom::requests::HookPolicy = serde_json::from_str(r#"{"managedOnly": true}"#)?;
    /// assert!(policy.managed_only);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct HookPolicy {
        /// Managed settings disable all hooks.
        pub disabled_by_policy: bool = "disabledByPolicy",
        /// Managed settings allow only their own.
        pub managed_only: bool = "managedOnly",
        /// Managed settings allow only those of plugins.
        pub plugin_only: bool = "pluginOnly",
        /// All hooks are disabled, by whomever.
        pub all_disabled: bool = "allDisabled",
        /// How many hooks managed settings have.
        pub policy_hook_count: u64 = "policyHookCount",
        /// Managed settings are there and could not be read.
        pub policy_unreadable: Option<bool> = "policyUnreadable",
    }

    /// A settings file that could not be read.
    ///
    /// ```
    /// let error: greenroom::requests::SettingsError =
    ///     serde_json::from_str(r#"{"path": "permissions.allow", "message": "must be a list"}"#)?;
    /// assert_eq!(error.path, "permissions.allow");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct SettingsError {
        /// The file.
        pub file: Option<String> = "file",
        /// The field, with dots; empty for the whole file.
        pub path: String = "path",
        /// What is wrong.
        pub message: String = "message",
    }

    /// The permission rules that are in force, and the folders that the session works in.
    ///
    /// ```
    /// async fn show(session: &greenroom::Session) -> greenroom::Result<()> {
    ///     for rule in &session.permission_rules().await?.state.rules {
    ///         println!("{:?} {} ({})", rule.behavior, rule.rule, rule.source);
    ///     }
    ///     Ok(())
    /// }
    /// # let _ = show;
    /// ```
    pub struct PermissionRules {
        /// How things stand.
        pub state: PermissionRulesState = "state",
    }

    /// How permissions stand.
    ///
    /// ```
    /// let state: greenroom::requests::PermissionRulesState =
    ///     serde_json::from_str(r#"{"originalCwd": "/srv", "managedOnly": false, "rules": []}"#)?;
    /// assert_eq!(state.original_cwd, "/srv");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct PermissionRulesState {
        /// The rules: those of settings files, of the command line, and those that were granted in the session.
        pub rules: Vec<PermissionRule> = "rules",
        /// The folders beside the working directory.
        pub workspace_directories: Vec<WorkspaceDirectory> = "workspaceDirectories",
        /// The working directory that the session began in.
        pub original_cwd: String = "originalCwd",
        /// Whether only the rules of managed settings count.
        pub managed_only: bool = "managedOnly",
        /// The settings files that could not be read: their rules are not in force, nor listed.
        pub errors: Vec<SettingsError> = "errors",
        /// Whether the answer was cut, because the connection stores its answers.
        pub withheld: Option<bool> = "withheld",
    }

    /// A permission rule.
    ///
    /// ```
    /// use greenroom::permission::PermissionBehavior;
    /// use greenroom::requests::PermissionRule;
    ///
    /// let rule: PermissionRule =
    ///     serde_json::from_str(r#"{"behavior": "allow", "source": "cliArg", "rule": "Bash(ls:*)"}"#)?;
    /// assert_eq!(rule.behavior, Some(PermissionBehavior::Allow));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct PermissionRule {
        /// What it does.
        pub behavior: Option<PermissionBehavior> = "behavior",
        /// Where it comes from: `cliArg`, `session`, `userSettings`, `projectSettings`, `localSettings`,
        /// `policySettings` and others.
        pub source: String = "source",
        /// The rule as it is stored. It may hold control characters.
        pub rule: String = "rule",
        /// What it says, for people.
        pub description: Option<RuleDescription> = "description",
        /// Where it lives: `persistent`, `session` or `readonly`.
        pub editability: String = "editability",
        /// Whether it is ignored, because only the rules of managed settings count.
        pub not_in_effect: Option<bool> = "notInEffect",
    }

    /// What a rule says, for people: one text in three parts, of which the second is to stand out.
    ///
    /// ```
    /// let text: greenroom::requests::RuleDescription =
    ///     serde_json::from_str(r#"{"prefix": "Any use of the ", "emphasis": "Write", "suffix": " tool"}"#)?;
    /// assert_eq!(text.emphasis.as_deref(), Some("Write"));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct RuleDescription {
        /// The first part.
        pub prefix: Option<String> = "prefix",
        /// The second.
        pub emphasis: Option<String> = "emphasis",
        /// The third.
        pub suffix: Option<String> = "suffix",
    }

    /// A folder that the session may work in.
    ///
    /// ```
    /// let folder: greenroom::requests::WorkspaceDirectory =
    ///     serde_json::from_str(r#"{"path": "/srv/more", "source": "cliArg"}"#)?;
    /// assert_eq!(folder.path, "/srv/more");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct WorkspaceDirectory {
        /// Its path.
        pub path: String = "path",
        /// Who granted it: a settings source, `cliArg` or `session`.
        pub source: String = "source",
    }

    /// What there is after plugins were read again.
    ///
    /// ```
    /// let reloaded: greenroom::requests::ReloadedPlugins = serde_json::from_str(r#"{"error_count": 0, "held": true}"#)?;
    /// assert_eq!(reloaded.held, Some(true));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct ReloadedPlugins {
        /// The slash commands.
        pub commands: Vec<SlashCommand> = "commands",
        /// The kinds of subagents.
        pub agents: Vec<AgentInfo> = "agents",
        /// The plugins.
        pub plugins: Vec<PluginInfo> = "plugins",
        /// The MCP servers.
        pub mcp_servers: Vec<McpServerStatus> = "mcpServers",
        /// How many plugins could not be read.
        pub error_count: u64 = "error_count",
        /// Whether the reload was held back, if that was asked for; the lists are those of before then.
        pub held: Option<bool> = "held",
        /// What it would have changed, if it was held back: `mcp_servers_added`, `mcp_servers_removed`,
        /// `lsp_tool_change`.
        pub cache_impact: Option<Map<String, Value>> = "cache_impact",
    }

    /// A plugin.
    ///
    /// ```
    /// let plugin: greenroom::requests::PluginInfo =
    ///     serde_json::from_str(r#"{"name": "notes", "path": "/srv/notes", "version": "1.0.0"}"#)?;
    /// assert_eq!(plugin.version.as_deref(), Some("1.0.0"));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct PluginInfo {
        /// Its name.
        pub name: String = "name",
        /// Its folder, or `builtin`.
        pub path: String = "path",
        /// Where it comes from, such as `notes@market`.
        pub source: Option<String> = "source",
        /// The version that it gives itself.
        pub version: Option<String> = "version",
    }

    /// The skills after they were read again.
    ///
    /// ```
    /// let reloaded: greenroom::requests::ReloadedSkills = serde_json::from_str(r#"{"skills": []}"#)?;
    /// assert!(reloaded.skills.is_empty());
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct ReloadedSkills {
        /// The skills.
        pub skills: Vec<SlashCommand> = "skills",
    }

    /// The output styles after they were read again.
    ///
    /// ```
    /// let reloaded: greenroom::requests::ReloadedOutputStyles =
    ///     serde_json::from_str(r#"{"available_output_styles": ["default"]}"#)?;
    /// assert_eq!(reloaded.available_output_styles, ["default"]);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct ReloadedOutputStyles {
        /// Their names.
        pub available_output_styles: Vec<String> = "available_output_styles",
    }
}

/// How plugins are read again.
///
/// ```
/// use greenroom::requests::ReloadPlugins;
///
/// let reload = ReloadPlugins::new().hold_on_cache_impact(true).add_plugin("/srv/notes");
/// # let _ = reload;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReloadPlugins {
    /// Whether to leave everything as it is if the list of tools, and with it the prompt cache, would change.
    pub hold_on_cache_impact: bool,
    /// Whether the CLI refuses while it works at something.
    pub refuse_if_busy: bool,
    /// Folders of plugins to load as well, and whether their MCP servers are left out.
    pub add_plugins: Vec<(PathBuf, bool)>,
}

impl ReloadPlugins {
    /// All plugins, at once, whatever it changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Leaves everything as it is if the list of tools, and with it the prompt cache, would change; the answer then says
    /// what would ([`ReloadedPlugins::cache_impact`]).
    pub fn hold_on_cache_impact(mut self, hold: bool) -> Self {
        self.hold_on_cache_impact = hold;
        self
    }

    /// Refused while the CLI works at something, with the [code](crate::Error::code) `reload_plugins_busy`. Needs the
    /// capability `reload_plugins_refuse_if_busy_v1`.
    pub fn refuse_if_busy(mut self, refuse: bool) -> Self {
        self.refuse_if_busy = refuse;
        self
    }

    /// Loads the plugin in this folder as well. The path must be absolute.
    pub fn add_plugin(mut self, path: impl Into<PathBuf>) -> Self {
        self.add_plugins.push((path.into(), false));
        self
    }

    /// Loads the plugin in this folder as well, without its MCP servers. The path must be absolute.
    pub fn add_plugin_without_mcp(mut self, path: impl Into<PathBuf>) -> Self {
        self.add_plugins.push((path.into(), true));
        self
    }
}
