//! Settings: the model, the permission mode, thinking, settings files.

use crate::wire::objects::objects;
use crate::wire::words::words;

objects! {
    /// Answer to [`Session::set_model`](crate::Session::set_model).
    answer ModelSet {
        /// The model's id, if the CLI reports it, as CLI 2.1.328 does.
        model: Option<String>,
    }

    /// Answer to [`Session::set_permission_mode`](crate::Session::set_permission_mode).
    answer PermissionModeSet {
        /// The mode as the CLI spells it, if the CLI reports it, as CLI 2.1.328 does.
        mode: Option<String>,
    }

    /// Answer to
    /// [`Requests::set_mcp_permission_mode_override`](crate::session::Requests::set_mcp_permission_mode_override).
    answer PermissionOverrideSet {
        /// For example, the server is unknown.
        warning: Option<String>,
    }
}

words! {
    /// A settings file that [`Requests::update_settings`](crate::session::Requests::update_settings) can write.
    pub enum SettingsFile or "" {
        /// `.claude/settings.local.json` in the project. CLI 2.1.328 accepts `outputStyle` only.
        Local = "localSettings",
        /// `~/.claude/settings.json`. CLI 2.1.328 accepts `effortLevel` only, and saves it for the session's model.
        User = "userSettings",
    }

    /// A permission mode for the tools of one MCP server.
    pub enum McpPermissionMode or "" {
        /// The CLI asks unless a rule decides.
        Default = "default",
        /// A classifier decides. CLI 2.1.328 refuses this mode for models without auto mode.
        Auto = "auto",
    }
}
