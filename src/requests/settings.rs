//! Settings: the model, the permission mode, thinking, settings files, the title.

use serde_json::{Map, Value};

use super::info::SettingsError;
use super::read::{answers, words};

answers! {
    /// The model that is in force.
    ///
    /// ```
    /// let answer: greenroom::requests::ModelSet = serde_json::from_str(r#"{"model": "claude-haiku-4-5"}"#)?;
    /// assert_eq!(answer.model.as_deref(), Some("claude-haiku-4-5"));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct ModelSet {
        /// Its id, if the CLI says so (CLI 2.1.328 does).
        pub model: Option<String> = "model",
    }

    /// The permission mode that is in force.
    ///
    /// ```
    /// let answer: greenroom::requests::PermissionModeSet = serde_json::from_str(r#"{"mode": "plan"}"#)?;
    /// assert_eq!(answer.mode.as_deref(), Some("plan"));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct PermissionModeSet {
        /// The mode in the CLI's spelling, if it says so (CLI 2.1.328 does).
        pub mode: Option<String> = "mode",
    }

    /// What the CLI says of an override of the permission mode for one MCP server.
    ///
    /// ```
    /// let answer: greenroom::requests::PermissionOverrideSet =
    ///     serde_json::from_str(r#"{"warning": "MCP server 'x' is not known"}"#)?;
    /// assert!(answer.warning.is_some());
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct PermissionOverrideSet {
        /// What was odd about it, such as a server that is not known.
        pub warning: Option<String> = "warning",
    }

    /// The settings of a session, merged and by where they come from.
    ///
    /// ```
    /// async fn show(session: &greenroom::Session) -> greenroom::Result<()> {
    ///     let settings = session.settings().await?;
    ///     println!("{:?}, effort {:?}", settings.applied.model, settings.applied.effort);
    ///     for source in &settings.sources {
    ///         println!("{}: {} settings", source.source, source.settings.len());
    ///     }
    ///     Ok(())
    /// }
    /// # let _ = show;
    /// ```
    pub struct SessionSettings {
        /// All settings, merged.
        pub effective: Map<String, Value> = "effective",
        /// The settings of each source that has any, from the weakest to the strongest.
        pub sources: Vec<SettingsSource> = "sources",
        /// What the session works with.
        pub applied: AppliedSettings = "applied",
        /// The files that could not be read, and so count for nothing.
        pub errors: Vec<SettingsError> = "errors",
        /// How it stands with settings that a server hands out; `ineligible` where there are none.
        pub served_settings_state: Option<String> = "served_settings_state",
    }

    /// The settings of one source.
    ///
    /// ```
    /// let source: greenroom::requests::SettingsSource =
    ///     serde_json::from_str(r#"{"source": "localSettings", "settings": {"outputStyle": "Concise"}}"#)?;
    /// assert_eq!(source.settings["outputStyle"], "Concise");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct SettingsSource {
        /// Which: `userSettings`, `projectSettings`, `localSettings`, `flagSettings`, `policySettings`; an open set.
        pub source: String = "source",
        /// Its settings.
        pub settings: Map<String, Value> = "settings",
    }

    /// What a session works with, after everything that has a say in it.
    ///
    /// ```
    /// let applied: greenroom::requests::AppliedSettings =
    ///     serde_json::from_str(r#"{"model": "claude-haiku-4-5", "effort": "low"}"#)?;
    /// assert_eq!(applied.effort.as_deref(), Some("low"));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct AppliedSettings {
        /// The model's id.
        pub model: Option<String> = "model",
        /// The level of effort.
        pub effort: Option<String> = "effort",
        /// The model that advises, if one does.
        pub advisor: Option<String> = "advisor",
        /// Whether `ultracode` is on.
        pub ultracode: Option<bool> = "ultracode",
    }
}

words! {
    /// A settings file that [`Session::update_settings`](crate::Session::update_settings) can write.
    ///
    /// ```
    /// assert_eq!(greenroom::requests::SettingsFile::Local.as_str(), "localSettings");
    /// ```
    pub enum SettingsFile {
        /// The project's local one (`.claude/settings.local.json`). CLI 2.1.328 takes `outputStyle` only.
        Local = "localSettings",
        /// The user's own (`~/.claude/settings.json`). CLI 2.1.328 takes `effortLevel` only, which it saves for the model
        /// of the session.
        User = "userSettings",
    }

    /// A permission mode for the tools of one MCP server.
    ///
    /// ```
    /// assert_eq!(greenroom::requests::McpPermissionMode::Auto.as_str(), "auto");
    /// ```
    pub enum McpPermissionMode {
        /// What no rule allows is asked for.
        Default = "default",
        /// A classifier decides. CLI 2.1.328 refuses it for models that have no auto mode.
        Auto = "auto",
    }

    /// Who chose a title.
    ///
    /// ```
    /// assert_eq!(greenroom::requests::RenameSource::Host.as_str(), "host");
    /// ```
    pub enum RenameSource {
        /// The user, in the application that hosts the session.
        Host = "host",
        /// Somebody elsewhere.
        Remote = "remote",
    }
}

/// A new title for the session.
///
/// ```
/// use greenroom::requests::RenameSession;
///
/// let rename = RenameSession::new("Adding numbers").session_id("5edf22c9-8cc7-4887-8c1e-e7178f90e5a1");
/// # let _ = rename;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RenameSession {
    /// The title.
    pub title: String,
    /// Who chose it.
    pub source: RenameSource,
    /// The conversation that is meant.
    pub session_id: Option<String>,
}

impl RenameSession {
    /// This title, chosen by the user of the application ([`RenameSource::Host`]), for whatever conversation it is.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), source: RenameSource::Host, session_id: None }
    }

    /// Chosen by somebody else.
    pub fn source(mut self, source: RenameSource) -> Self {
        self.source = source;
        self
    }

    /// Only if the conversation still is this one: after a `/clear` it is another, and the CLI refuses then.
    pub fn session_id(mut self, session_id: impl Into<String>) -> Self {
        self.session_id = Some(session_id.into());
        self
    }
}

impl From<&str> for RenameSession {
    fn from(title: &str) -> Self {
        Self::new(title)
    }
}

impl From<String> for RenameSession {
    fn from(title: String) -> Self {
        Self::new(title)
    }
}
