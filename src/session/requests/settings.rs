//! What is set for the rest of the session, and settings files.

use serde_json::Value;

use super::Body;
use crate::error::Result;
use crate::options::PermissionMode;
use crate::requests::{
    McpPermissionMode, ModelSet, PermissionModeSet, PermissionOverrideSet, RegisterRepoRoot, RenameSession,
    Reply, RepoRoot, SessionSettings, SessionTitle, SetCwd, SetCwdResult, SettingsFile, ThinkingDisplay,
};
use crate::session::Session;

/// A value, or `null` for the default.
fn or_null<T: Into<Value>>(value: Option<T>) -> Value {
    value.map_or(Value::Null, Into::into)
}

impl Session {
    /// Changes the model for the turns to come; `None` is the session's default. In force after a restart of the CLI,
    /// too. CLI 2.1.328 does not look whether there is such a model: the next turn fails if there is none.
    ///
    /// ```
    /// async fn faster(session: &greenroom::Session) -> greenroom::Result<()> {
    ///     println!("now {:?}", session.set_model(Some("haiku")).await?.model);
    ///     Ok(())
    /// }
    /// # let _ = faster;
    /// ```
    ///
    /// # Errors
    /// Those of [`control`](Session::control).
    pub async fn set_model(&self, model: Option<&str>) -> Result<Reply<ModelSet>> {
        self.request(Body::new("set_model").with("model", or_null(model))).await
    }

    /// Changes how the CLI decides on tools that no rule allows. In force after a restart of the CLI, too: one that
    /// refuses it then is not gone on with. It is what was set here last that is in force again, also when the mode has
    /// changed otherwise since: by a permission decision that sets one, or by the plan mode that the model enters and leaves.
    ///
    /// # Errors
    /// Those of [`control`](Session::control). CLI 2.1.328 refuses
    /// [`BypassPermissions`](PermissionMode::BypassPermissions) with the [code](crate::Error::code)
    /// `bypass_not_launched` if it was not started to allow it.
    pub async fn set_permission_mode(&self, mode: PermissionMode) -> Result<Reply<PermissionModeSet>> {
        self.request(Body::new("set_permission_mode").with("mode", mode.as_str())).await
    }

    /// Sets another permission mode for the tools of one MCP server; `None` takes it back. In force after a restart of
    /// the CLI, too: one that refuses [`Default`](McpPermissionMode::Default) then is not gone on with. A server that is
    /// not known is no error, but a warning.
    ///
    /// # Errors
    /// Those of [`control`](Session::control).
    pub async fn set_mcp_permission_mode_override(
        &self,
        server: &str,
        mode: Option<McpPermissionMode>,
    ) -> Result<Reply<PermissionOverrideSet>> {
        let mode = or_null(mode.as_ref().map(McpPermissionMode::as_str));
        let body = Body::new("set_mcp_permission_mode_override").with("serverName", server);
        self.request(body.with("mode", mode)).await
    }

    /// Sets how many tokens the model may think; `None` is the session's default. How thinking is shown stays as it is.
    /// In force after a restart of the CLI, too.
    ///
    /// # Errors
    /// Those of [`control`](Session::control).
    pub async fn set_max_thinking_tokens(&self, max_thinking_tokens: Option<u64>) -> Result<()> {
        let tokens = or_null(max_thinking_tokens);
        self.acknowledged(Body::new("set_max_thinking_tokens").with("max_thinking_tokens", tokens)).await
    }

    /// Sets how thinking is shown; `None` is the CLI's default. How much the model may think stays as it is. In force
    /// after a restart of the CLI, too. It is a `set_max_thinking_tokens` request without tokens.
    ///
    /// # Errors
    /// Those of [`control`](Session::control); `Refused` where
    /// [`Highlights`](ThinkingDisplay::Highlights) cannot be.
    pub async fn set_thinking_display(&self, display: Option<ThinkingDisplay>) -> Result<()> {
        let display = or_null(display.as_ref().map(ThinkingDisplay::as_str));
        self.acknowledged(Body::new("set_max_thinking_tokens").with("thinking_display", display)).await
    }

    /// Lays settings over those of all files, for this session: an object, key by key at its top; `null` takes a key
    /// back. In force after a restart of the CLI, too. A `model` among them and [`set_model`](Session::set_model) take
    /// each other's place.
    ///
    /// # Errors
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption) if it is no object; those of [`control`](Session::control): then
    /// nothing of it is in force. CLI 2.1.328 takes keys that it does not know, too.
    pub async fn apply_flag_settings(&self, settings: Value) -> Result<()> {
        self.acknowledged(Body::new("apply_flag_settings").object("settings", settings)).await
    }

    /// Writes settings into a file, for sessions to come as well: an object. The CLI takes few keys, which
    /// [`SettingsFile`] names.
    ///
    /// # Errors
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption) if it is no object; those of [`control`](Session::control).
    pub async fn update_settings(&self, file: SettingsFile, settings: Value) -> Result<()> {
        let body = Body::new("update_settings").with("source", file.as_str());
        self.acknowledged(body.object("settings", settings)).await
    }

    /// All settings, merged and by source (`get_settings`).
    ///
    /// No type of this is published: it is what CLI 2.1.328 was seen to answer.
    ///
    /// # Errors
    /// Those of [`control`](Session::control).
    pub async fn settings(&self) -> Result<Reply<SessionSettings>> {
        self.request(Body::new("get_settings")).await
    }

    /// Changes the CLI's working directory, and with it the project. The transcript moves to the folder of the new
    /// project (CLI 2.1.328). Look at the [status](SetCwdResult::status): a folder that nobody has trusted yet is not
    /// entered, and a change during a turn is rejected; neither is an error. In force after a restart of the CLI, too:
    /// one that rejects it then is not gone on with. It is started in the folder of the [options](crate::Options::cwd), finds
    /// the conversation all the same, and changes to the absolute path that the CLI said it had changed to (CLI 2.1.328
    /// resumes by id from the old folder what it has moved to that of another project).
    ///
    /// ```
    /// use greenroom::requests::{SetCwd, SetCwdStatus};
    ///
    /// async fn enter(session: &greenroom::Session, path: &str) -> greenroom::Result<()> {
    ///     let result = session.set_cwd(path).await?;
    ///     if let (SetCwdStatus::NeedsTrust, Some(directory)) = (&result.status, &result.directory) {
    ///         // Ask the person first.
    ///         session.set_cwd(SetCwd::new(path).trust(directory)).await?;
    ///     }
    ///     Ok(())
    /// }
    /// # let _ = enter;
    /// ```
    ///
    /// No type of this is published: it is what CLI 2.1.328 was seen to answer.
    ///
    /// # Errors
    /// Those of [`control`](Session::control).
    pub async fn set_cwd(&self, path: impl Into<SetCwd>) -> Result<Reply<SetCwdResult>> {
        let SetCwd { path, trust_accepted, trusted_directory } = path.into();
        let body = Body::new("set_cwd").path("path", &path).maybe("trust_accepted", trust_accepted);
        self.request(match trusted_directory {
            Some(directory) => body.path("trusted_directory", &directory),
            None => body,
        })
        .await
    }

    /// Adds a folder to those that the session works in: one below the working directory, or below a directory that was
    /// given at the start. In force after a restart of the CLI, too, by the absolute path that the CLI answers with.
    ///
    /// # Errors
    /// Those of [`control`](Session::control); `Refused` for any other folder, and for one that is registered.
    pub async fn register_repo_root(&self, root: impl Into<RegisterRepoRoot>) -> Result<Reply<RepoRoot>> {
        let RegisterRepoRoot { directory, reload_claude_md, reload_plugins, reload_skills } = root.into();
        let body = Body::new("register_repo_root").path("directory", &directory);
        let body = body.maybe("reload_claude_md", reload_claude_md).maybe("reload_plugins", reload_plugins);
        self.request(body.maybe("reload_skills", reload_skills)).await
    }

    /// Tells the CLI whether anybody watches what it writes; `None` if that is not known, which counts as yes. It matters
    /// only to a CLI that was told to join pieces of a message (`CLAUDE_CODE_STREAM_EVENT_HOLD_MS`): without anybody who
    /// watches it may hold them longer. In force after a restart of the CLI, too.
    ///
    /// # Errors
    /// Those of [`control`](Session::control).
    pub async fn set_has_subscribers(&self, has_subscribers: Option<bool>) -> Result<()> {
        let body = Body::new("set_has_subscribers");
        self.acknowledged(body.with("has_subscribers", or_null(has_subscribers))).await
    }

    /// Gives the session a title. The CLI writes it down with the conversation.
    ///
    /// # Errors
    /// Those of [`control`](Session::control); `Refused` if another conversation is meant.
    pub async fn rename_session(&self, title: impl Into<RenameSession>) -> Result<()> {
        let RenameSession { title, source, session_id } = title.into();
        let body = Body::new("rename_session").with("title", title).with("source", source.as_str());
        self.acknowledged(body.maybe("session_id", session_id)).await
    }

    /// Sets the colour of the session: a name, or `default`.
    ///
    /// # Errors
    /// Those of [`control`](Session::control). CLI 2.1.328 declares this request and does not know it in this mode:
    /// [`Unsupported`](crate::ErrorKind::Unsupported).
    pub async fn set_color(&self, color: &str) -> Result<()> {
        self.acknowledged(Body::new("set_color").with("color", color)).await
    }

    /// Has the model make up a title from a description; with `persist` the CLI takes it for the session. It has the time
    /// of [`Timeouts::long_request`](crate::Timeouts::long_request).
    ///
    /// No type of this is published: it is what CLI 2.1.328 was seen to answer.
    ///
    /// # Errors
    /// Those of [`control`](Session::control).
    pub async fn generate_session_title(
        &self,
        description: &str,
        persist: bool,
    ) -> Result<Reply<SessionTitle>> {
        let body = Body::new("generate_session_title").with("description", description);
        self.long_request(body.with("persist", persist)).await
    }
}
