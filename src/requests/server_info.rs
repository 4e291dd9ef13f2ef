//! The CLI's answer to `initialize`.

use std::collections::BTreeMap;

use crate::message::SlashCommand;
use crate::wire::objects::objects;

objects! {
    /// The description of a CLI process, from its answer to `initialize`.
    ///
    /// The commands are kept up to date when the CLI reports a change.
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
    answer ServerInfo {
        /// Slash commands and skills.
        commands: Vec<SlashCommand>,
        /// Kinds of subagents.
        agents: Vec<AgentInfo>,
        output_style: Option<String>,
        available_output_styles: Vec<String>,
        models: Vec<ModelInfo>,
        account: AccountInfo,
        /// The version of the CLI.
        claude_code_version: Option<String>,
        /// The process id, as the CLI sees it.
        pid: Option<u64>,
        /// The permission mode at the start, as the CLI spells it. Modes set at run time are set again after this
        /// answer.
        current_permission_mode: Option<String>,
        /// `idle`, `running` or `requires_action`.
        session_state: Option<String>,
        /// Some of the CLI's capabilities; [`Session::has_capability`](crate::Session::has_capability) knows all.
        capabilities: Vec<String>,
        /// The CLI accepted the session's hooks.
        hooks_applied: Option<bool>,
        /// The CLI supports hooks that block when they fail.
        hook_on_failure_supported: Option<bool>,
        /// The CLI loaded the plugins of `initialize`.
        plugins_applied: Option<bool>,
        /// The CLI accepted the MCP servers of `initialize`.
        mcp_servers_applied: Option<bool>,
        /// The CLI applied the settings of `initialize`.
        settings_applied: Option<bool>,
        /// The CLI applied the managed settings of `initialize`.
        managed_settings_applied: Option<bool>,
        /// State of the handshake manifest of each in-process server: `parked`, `already_connected` and others.
        sdk_mcp_manifests_parked: BTreeMap<String, String>,
        /// `off`, `cooldown` or `on`.
        fast_mode_state: Option<String>,
        /// Reason if the fast mode is unavailable.
        fast_mode_disabled_reason: Option<String>,
    }

    /// A kind of subagent.
    answer AgentInfo {
        name: String,
        /// When to use the subagent.
        description: String,
        /// An alias, an id, or `inherit`; `None` for the default model of subagents.
        model: Option<String>,
    }

    /// A model that can be chosen.
    answer ModelInfo {
        /// An alias or an id, for [`Session::set_model`](crate::Session::set_model).
        value: String,
        /// The id behind an alias.
        resolved_model: Option<String> = "resolvedModel",
        display_name: String = "displayName",
        description: String,
        supports_effort: Option<bool> = "supportsEffort",
        /// `low`, `medium`, `high`, `xhigh`, `max`.
        supported_effort_levels: Vec<String> = "supportedEffortLevels",
        /// The model decides itself when and how much to think.
        supports_adaptive_thinking: Option<bool> = "supportsAdaptiveThinking",
        supports_fast_mode: Option<bool> = "supportsFastMode",
        /// The permission mode `auto` works with this model.
        supports_auto_mode: Option<bool> = "supportsAutoMode",
    }

    /// The account that the CLI uses.
    answer AccountInfo {
        email: Option<String>,
        organization: Option<String>,
        /// The subscription, such as `max`.
        subscription_type: Option<String> = "subscriptionType",
        /// The source of the token; `none` without a token.
        token_source: Option<String> = "tokenSource",
        /// The source of the API key, such as `ANTHROPIC_API_KEY`.
        api_key_source: Option<String> = "apiKeySource",
        /// `firstParty`, `bedrock`, `vertex`, `foundry`, `gateway` and others.
        api_provider: Option<String> = "apiProvider",
    }
}
