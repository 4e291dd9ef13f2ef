//! What the CLI says of itself when it starts: its answer to `initialize`.

use std::collections::BTreeMap;

use super::read::answers;
use crate::message::SlashCommand;

answers! {
    /// What an incarnation of the CLI said of itself when it started, in its answer to `initialize`.
    ///
    /// The commands are kept up to date: the CLI says when they have changed.
    ///
    /// ```
    /// fn version(session: &greenroom::Session) -> Option<String> {
    ///     let info = session.server_info();
    ///     for model in &info.models {
    ///         println!("{}: {}", model.value, model.display_name);
    ///     }
    ///     info.claude_code_version.clone()
    /// }
    /// # let _ = version;
    /// ```
    pub struct ServerInfo {
        /// The slash commands, skills among them.
        pub commands: Vec<SlashCommand> = "commands",
        /// The kinds of subagents.
        pub agents: Vec<AgentInfo> = "agents",
        /// The output style.
        pub output_style: Option<String> = "output_style",
        /// The output styles that there are.
        pub available_output_styles: Vec<String> = "available_output_styles",
        /// The models that can be chosen.
        pub models: Vec<ModelInfo> = "models",
        /// Who is logged in, and how.
        pub account: AccountInfo = "account",
        /// The version of the CLI.
        pub claude_code_version: Option<String> = "claude_code_version",
        /// The process id, as the CLI knows it.
        pub pid: Option<u64> = "pid",
        /// The permission mode that the CLI started in, in its own spelling. What was set at run time is set again after
        /// this was said.
        pub current_permission_mode: Option<String> = "current_permission_mode",
        /// `idle`, `running` or `requires_action`.
        pub session_state: Option<String> = "session_state",
        /// What this CLI can do; only a part of it: see [`Session::capabilities`](crate::Session::capabilities).
        pub capabilities: Vec<String> = "capabilities",
        /// Whether the hooks were taken.
        pub hooks_applied: Option<bool> = "hooks_applied",
        /// Whether the CLI knows hooks that must block when they fail.
        pub hook_on_failure_supported: Option<bool> = "hook_on_failure_supported",
        /// Whether the plugins of `initialize` are loaded.
        pub plugins_applied: Option<bool> = "plugins_applied",
        /// Whether the MCP servers of `initialize` were taken.
        pub mcp_servers_applied: Option<bool> = "mcp_servers_applied",
        /// What became of the handshake manifest of each in-process server: `parked`, `already_connected` and others.
        pub sdk_mcp_manifests_parked: BTreeMap<String, String> = "sdk_mcp_manifests_parked",
        /// The fast mode: `off`, `cooldown` or `on`.
        pub fast_mode_state: Option<String> = "fast_mode_state",
        /// Why there is no fast mode.
        pub fast_mode_disabled_reason: Option<String> = "fast_mode_disabled_reason",
        /// Where the user's own output styles are.
        pub user_output_styles_dir: Option<String> = "user_output_styles_dir",
    }

    /// A kind of subagent.
    ///
    /// ```
    /// let agent: greenroom::requests::AgentInfo =
    ///     serde_json::from_str(r#"{"name": "Explore", "description": "Looks around"}"#)?;
    /// assert_eq!((agent.name.as_str(), agent.model), ("Explore", None));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct AgentInfo {
        /// Its name.
        pub name: String = "name",
        /// When it is of use.
        pub description: String = "description",
        /// Its model: an alias, an id, or `inherit`; `None` for the default of subagents.
        pub model: Option<String> = "model",
    }

    /// A model that can be chosen.
    ///
    /// ```
    /// let model: greenroom::requests::ModelInfo = serde_json::from_str(
    ///     r#"{"value": "haiku", "resolvedModel": "claude-haiku-4-5", "displayName": "Haiku", "description": "Fast"}"#)?;
    /// assert_eq!(model.resolved_model.as_deref(), Some("claude-haiku-4-5"));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct ModelInfo {
        /// What [`Session::set_model`](crate::Session::set_model) takes: an alias or an id.
        pub value: String = "value",
        /// The id that it stands for.
        pub resolved_model: Option<String> = "resolvedModel",
        /// Its name for people.
        pub display_name: String = "displayName",
        /// What it is good for.
        pub description: String = "description",
        /// Whether it has levels of effort.
        pub supports_effort: Option<bool> = "supportsEffort",
        /// Those levels: `low`, `medium`, `high`, `xhigh`, `max`.
        pub supported_effort_levels: Vec<String> = "supportedEffortLevels",
        /// Whether it decides by itself when and how much to think.
        pub supports_adaptive_thinking: Option<bool> = "supportsAdaptiveThinking",
        /// Whether it has a fast mode.
        pub supports_fast_mode: Option<bool> = "supportsFastMode",
        /// Whether the permission mode `auto` works with it.
        pub supports_auto_mode: Option<bool> = "supportsAutoMode",
        /// Whether its thinking can be switched off.
        pub supports_thinking_off: Option<bool> = "supportsThinkingOff",
    }

    /// Who is logged in, and how.
    ///
    /// ```
    /// let account: greenroom::requests::AccountInfo =
    ///     serde_json::from_str(r#"{"apiKeySource": "ANTHROPIC_API_KEY", "apiProvider": "firstParty"}"#)?;
    /// assert_eq!(account.api_provider.as_deref(), Some("firstParty"));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct AccountInfo {
        /// The address.
        pub email: Option<String> = "email",
        /// The organization.
        pub organization: Option<String> = "organization",
        /// The subscription, such as `max`.
        pub subscription_type: Option<String> = "subscriptionType",
        /// Where the token comes from; `none` if there is none.
        pub token_source: Option<String> = "tokenSource",
        /// Where the API key comes from, such as `ANTHROPIC_API_KEY`.
        pub api_key_source: Option<String> = "apiKeySource",
        /// Who serves the models: `firstParty`, `bedrock`, `vertex`, `foundry`, `gateway` and others.
        pub api_provider: Option<String> = "apiProvider",
    }
}
