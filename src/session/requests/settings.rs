//! Settings for the rest of the session, and settings files.

use super::Requests;
use serde_json::Value;

use super::RequestBody;
use crate::PermissionMode;
use crate::error::Result;
use crate::options::ThinkingDisplay;
use crate::requests::{
    McpPermissionMode, ModelSet, PermissionModeSet, PermissionOverrideSet, Reply, SettingsFile,
};
use crate::session::Session;

/// The value; `null` asks for the default.
fn or_null<T: Into<Value>>(value: Option<T>) -> Value {
    value.map_or(Value::Null, Into::into)
}

impl Session {
    /// Changes the model for later turns; `None` restores the session's default. Survives a restart of the CLI. CLI
    /// 2.1.328 does not check that the model exists: if not, the next turn fails.
    pub async fn set_model(&self, model: Option<&str>) -> Result<Reply<ModelSet>> {
        self.request(RequestBody::new("set_model").with("model", or_null(model))).await
    }

    /// Changes how the CLI decides on tools that no rule allows. After a restart of the CLI the last mode that was set
    /// here is set again, even if a permission decision or the model's plan mode has changed the mode since. A CLI that
    /// then refuses the mode is not used.
    ///
    /// # Errors
    /// Besides those of [`control`](Requests::control): CLI 2.1.328 refuses
    /// [`BypassPermissions`](PermissionMode::BypassPermissions) with the [code](crate::Error::code)
    /// `bypass_not_launched` if it was not started to allow it.
    pub async fn set_permission_mode(&self, mode: PermissionMode) -> Result<Reply<PermissionModeSet>> {
        self.request(RequestBody::new("set_permission_mode").with("mode", mode.as_str())).await
    }

    /// Limits the tokens of thinking; `None` restores the session's default. Survives a restart of the CLI.
    pub async fn set_max_thinking_tokens(&self, max_thinking_tokens: Option<u64>) -> Result<()> {
        let tokens = or_null(max_thinking_tokens);
        self.acknowledged(RequestBody::new("set_max_thinking_tokens").with("max_thinking_tokens", tokens))
            .await
    }
}

impl Requests<'_> {
    /// Overrides the permission mode for the tools of one MCP server; `None` removes the override. Survives a restart
    /// of the CLI; a CLI that then refuses [`Default`](McpPermissionMode::Default) is not used. An unknown server is
    /// only a warning.
    pub async fn set_mcp_permission_mode_override(
        self,
        server: &str,
        mode: Option<McpPermissionMode>,
    ) -> Result<Reply<PermissionOverrideSet>> {
        let mode = or_null(mode.as_ref().map(McpPermissionMode::as_str));
        let body = RequestBody::new("set_mcp_permission_mode_override").with("serverName", server);
        self.session.request(body.with("mode", mode)).await
    }

    /// Sets how thinking is shown; `None` restores the CLI's default. Survives a restart of the CLI. Sent as
    /// `set_max_thinking_tokens` without a number of tokens, which leaves the limit unchanged.
    ///
    /// # Errors
    /// Besides those of [`control`](Requests::control): `Refused` if the model does not support
    /// [`Highlights`](ThinkingDisplay::Highlights).
    pub async fn set_thinking_display(self, display: Option<ThinkingDisplay>) -> Result<()> {
        let display = or_null(display.as_ref().map(ThinkingDisplay::as_str));
        self.session
            .acknowledged(RequestBody::new("set_max_thinking_tokens").with("thinking_display", display))
            .await
    }

    /// Overrides the settings of all files for this session. The object is applied key by key at the top level; `null`
    /// removes an override. Survives a restart of the CLI. A `model` here and [`set_model`](Session::set_model) replace
    /// each other.
    ///
    /// # Errors
    /// Besides those of [`control`](Requests::control): [`InvalidOption`](crate::ErrorKind::InvalidOption) if
    /// `settings` is no object. After an error none of the settings applies. CLI 2.1.328 accepts unknown keys.
    pub async fn apply_flag_settings(self, settings: Value) -> Result<()> {
        self.session.acknowledged(RequestBody::new("apply_flag_settings").object("settings", settings)).await
    }

    /// Writes settings to a file, also for later sessions. The CLI accepts only the keys that [`SettingsFile`] names.
    ///
    /// # Errors
    /// Besides those of [`control`](Requests::control): [`InvalidOption`](crate::ErrorKind::InvalidOption) if
    /// `settings` is no object.
    pub async fn update_settings(self, file: SettingsFile, settings: Value) -> Result<()> {
        let body = RequestBody::new("update_settings").with("source", file.as_str());
        self.session.acknowledged(body.object("settings", settings)).await
    }
}
