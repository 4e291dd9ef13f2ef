//! Settings for the rest of the session, and settings files.

use super::Requests;
use serde_json::Value;

use super::RequestBody;
use crate::PermissionMode;
use crate::error::Result;
use crate::options::ThinkingDisplay;
use crate::requests::{
    McpPermissionMode, ModelSet, PermissionModeSet, PermissionOverrideSet, RegisterRepoRoot, RenameSession,
    Reply, RepoRoot, SessionSettings, SessionTitle, SetCwd, SetCwdResult, SettingsFile,
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

    /// All settings, merged and by source (`get_settings`).
    ///
    /// The SDKs publish no type for this answer; it is that of CLI 2.1.328.
    pub async fn settings(self) -> Result<Reply<SessionSettings>> {
        self.session.request(RequestBody::new("get_settings")).await
    }

    /// Changes the CLI's working directory, and with it the project. CLI 2.1.328 moves the transcript to the folder of
    /// the new project.
    ///
    /// Check the [status](SetCwdResult::status): an untrusted folder and a change during a turn are rejected without an
    /// error.
    ///
    /// Survives a restart: the CLI is started in [`Options::cwd`](crate::Options::cwd), resumes the conversation, and
    /// changes to the absolute path that the previous CLI reported. A CLI that then rejects the change is not used.
    ///
    /// ```
    /// use greenroom::requests::{SetCwd, SetCwdStatus};
    ///
    /// async fn enter(session: &greenroom::Session, path: &str) -> greenroom::Result<()> {
    ///     let result = session.requests().set_cwd(path).await?;
    ///     if let (SetCwdStatus::NeedsTrust, Some(directory)) = (&result.status, &result.directory) {
    ///         // Ask the user first.
    ///         session.requests().set_cwd(SetCwd::new(path).trust(directory)).await?;
    ///     }
    ///     Ok(())
    /// }
    /// # let _ = enter;
    /// ```
    ///
    /// The SDKs publish no type for this answer; it is that of CLI 2.1.328.
    pub async fn set_cwd(self, path: impl Into<SetCwd>) -> Result<Reply<SetCwdResult>> {
        let SetCwd { path, trust_accepted, trusted_directory } = path.into();
        let body = RequestBody::new("set_cwd").path("path", &path).maybe("trust_accepted", trust_accepted);
        self.session
            .request(match trusted_directory {
                Some(directory) => body.path("trusted_directory", &directory),
                None => body,
            })
            .await
    }

    /// Adds a folder that the session may work in. The folder must be below the working directory or below a directory
    /// of the options. Survives a restart of the CLI.
    ///
    /// # Errors
    /// Besides those of [`control`](Requests::control): `Refused` for any other folder, and for a registered folder.
    pub async fn register_repo_root(self, root: impl Into<RegisterRepoRoot>) -> Result<Reply<RepoRoot>> {
        let RegisterRepoRoot { directory, reload_claude_md, reload_plugins, reload_skills } = root.into();
        let body = RequestBody::new("register_repo_root").path("directory", &directory);
        let body = body.maybe("reload_claude_md", reload_claude_md).maybe("reload_plugins", reload_plugins);
        self.session.request(body.maybe("reload_skills", reload_skills)).await
    }

    /// Tells the CLI whether somebody watches its output; `None` means unknown and counts as yes. Only matters with
    /// `CLAUDE_CODE_STREAM_EVENT_HOLD_MS`, where the CLI may hold partial messages longer if nobody watches. Survives a
    /// restart of the CLI.
    pub async fn set_has_subscribers(self, has_subscribers: Option<bool>) -> Result<()> {
        let body = RequestBody::new("set_has_subscribers");
        self.session.acknowledged(body.with("has_subscribers", or_null(has_subscribers))).await
    }

    /// Sets the title of the session. The CLI stores the title with the conversation.
    ///
    /// # Errors
    /// Besides those of [`control`](Requests::control): `Refused` if the session id does not match.
    pub async fn rename_session(self, title: impl Into<RenameSession>) -> Result<()> {
        let RenameSession { title, session_id } = title.into();
        // `remote` is a title from claude.ai.
        let body = RequestBody::new("rename_session").with("title", title).with("source", "host");
        self.session.acknowledged(body.maybe("session_id", session_id)).await
    }

    /// Asks the model for a title from a description; with `persist` the CLI sets the title. Limited by
    /// [`Timeouts::long_request`](crate::options::Timeouts::long_request).
    ///
    /// The SDKs publish no type for this answer; it is that of CLI 2.1.328.
    pub async fn generate_session_title(
        self,
        description: &str,
        persist: bool,
    ) -> Result<Reply<SessionTitle>> {
        let body = RequestBody::new("generate_session_title").with("description", description);
        self.session.long_request(body.with("persist", persist)).await
    }
}
