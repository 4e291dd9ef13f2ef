//! Settings: the model, the permission mode, thinking, settings files, the title.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::info::SettingsError;
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

    /// Settings of a session, merged and by source.
    ///
    /// ```
    /// async fn show(session: &greenroom::Session) -> greenroom::Result<()> {
    ///     let settings = session.requests().settings().await?;
    ///     println!("{:?}, effort {:?}", settings.applied.model, settings.applied.effort);
    ///     for source in &settings.sources {
    ///         println!("{}: {} settings", source.source, source.settings.len());
    ///     }
    ///     Ok(())
    /// }
    /// # let _ = show;
    /// ```
    answer SessionSettings {
        /// All settings, merged.
        effective: Map<String, Value>,
        /// Each source with settings, weakest first.
        sources: Vec<SettingsSource>,
        applied: AppliedSettings,
        /// Broken settings files, which have no effect.
        errors: Vec<SettingsError>,
        /// State of the settings that a server provides; `ineligible` if there are none.
        served_settings_state: Option<String>,
    }

    /// Settings of one source.
    answer SettingsSource {
        /// `userSettings`, `projectSettings`, `localSettings`, `flagSettings`, `policySettings`; an open set.
        source: String,
        settings: Map<String, Value>,
    }

    /// Settings that the session uses in the end.
    answer AppliedSettings {
        /// The model's id.
        model: Option<String>,
        effort: Option<String>,
        /// The advising model.
        advisor: Option<String>,
        ultracode: Option<bool>,
    }
}

impl SessionSettings {
    /// The strongest source of each key in [`effective`](Self::effective). If several sources have parts of an object,
    /// the other parts are in [`sources`](Self::sources).
    ///
    /// ```
    /// let settings: greenroom::requests::SessionSettings = serde_json::from_str(
    ///     r#"{"effective": {"model": "haiku"}, "sources": [
    ///         {"source": "userSettings", "settings": {"model": "opus"}},
    ///         {"source": "flagSettings", "settings": {"model": "haiku"}}]}"#)?;
    /// assert_eq!(settings.provenance()["model"].source, "flagSettings");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn provenance(&self) -> BTreeMap<&str, &SettingsSource> {
        let of = |key: &String| self.sources.iter().rev().find(|source| source.settings.contains_key(key));
        self.effective.keys().filter_map(|key| Some((key.as_str(), of(key)?))).collect()
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

/// A new title, for [`Requests::rename_session`](crate::session::Requests::rename_session).
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field has a method of its name")]
#[non_exhaustive]
pub struct RenameSession {
    pub title: String,
    pub session_id: Option<String>,
}

impl RenameSession {
    /// A title for the current conversation.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), session_id: None }
    }

    /// Renames only this conversation: the CLI refuses after a `/clear`, which starts another conversation.
    pub fn session_id(mut self, session_id: impl Into<String>) -> Self {
        self.session_id = Some(session_id.into());
        self
    }
}

super::convert_from!(RenameSession: &str, String);
