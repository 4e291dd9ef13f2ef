//! Changes of the permission rules, suggested by the CLI or returned with a decision.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::PermissionMode;
use crate::wire::lenient::by_serde;
use crate::wire::words::words;

words! {
    /// The effect of a rule on the calls that it matches.
    pub enum PermissionBehavior {
        Allow = "allow",
        Deny = "deny",
        Ask = "ask",
    }
}

words! {
    /// Where a change is stored, and so how long it lasts.
    pub enum PermissionDestination or "session" {
        /// The user's own settings.
        UserSettings = "userSettings",
        /// The project's settings, shared with others.
        ProjectSettings = "projectSettings",
        /// The user's own settings for the project.
        LocalSettings = "localSettings",
        /// Only in the CLI's process: the change is lost when the CLI exits, and is not restored after a crash.
        Session = "session",
        /// As if given on the command line.
        CliArg = "cliArg",
    }
}

/// A change of the permission rules.
///
/// The CLI suggests changes with a request
/// ([`permission_suggestions`](super::PermissionRequest::permission_suggestions)) and accepts changes with a decision.
/// It drops *all* changes of a decision if one of them is malformed; the functions below make well-formed ones.
///
/// ```
/// use greenroom::permission::{PermissionBehavior, PermissionRule, PermissionUpdate};
///
/// let update = PermissionUpdate::add_rules(PermissionBehavior::Allow, [PermissionRule::matching("Bash", "ls:*")]);
/// assert_eq!(serde_json::to_value(update)?, serde_json::json!({
///     "type": "addRules", "behavior": "allow", "destination": "session",
///     "rules": [{ "toolName": "Bash", "ruleContent": "ls:*" }],
/// }));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
#[non_exhaustive]
pub enum PermissionUpdate {
    /// Adds rules.
    AddRules(RuleChange),
    /// Replaces all rules of the same behaviour at the same destination.
    ReplaceRules(RuleChange),
    /// Removes rules.
    RemoveRules(RuleChange),
    /// Sets the permission mode.
    SetMode(ModeChange),
    /// Adds working directories.
    AddDirectories(DirectoryChange),
    /// Removes working directories.
    RemoveDirectories(DirectoryChange),
    /// A change that this library cannot read, as it came.
    #[serde(untagged)]
    Other(Value),
}

by_serde!(PermissionUpdate);

impl PermissionUpdate {
    /// Adds rules for this session; [`to`](PermissionUpdate::to) sets another destination.
    pub fn add_rules(
        behavior: PermissionBehavior,
        rules: impl IntoIterator<Item = impl Into<PermissionRule>>,
    ) -> Self {
        Self::AddRules(RuleChange::new(behavior, rules))
    }

    /// Replaces all rules of this behaviour for this session.
    pub fn replace_rules(
        behavior: PermissionBehavior,
        rules: impl IntoIterator<Item = impl Into<PermissionRule>>,
    ) -> Self {
        Self::ReplaceRules(RuleChange::new(behavior, rules))
    }

    /// Removes rules for this session.
    pub fn remove_rules(
        behavior: PermissionBehavior,
        rules: impl IntoIterator<Item = impl Into<PermissionRule>>,
    ) -> Self {
        Self::RemoveRules(RuleChange::new(behavior, rules))
    }

    /// Sets the permission mode for this session.
    pub fn set_mode(mode: PermissionMode) -> Self {
        Self::SetMode(ModeChange { mode, destination: PermissionDestination::Session, extra: Map::new() })
    }

    /// Adds working directories for this session.
    pub fn add_directories(directories: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::AddDirectories(DirectoryChange::new(directories))
    }

    /// Removes working directories for this session.
    pub fn remove_directories(directories: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::RemoveDirectories(DirectoryChange::new(directories))
    }

    /// Sets the destination.
    pub fn to(mut self, destination: PermissionDestination) -> Self {
        match &mut self {
            Self::AddRules(change) | Self::ReplaceRules(change) | Self::RemoveRules(change) => {
                change.destination = destination;
            }
            Self::SetMode(change) => change.destination = destination,
            Self::AddDirectories(change) | Self::RemoveDirectories(change) => {
                change.destination = destination;
            }
            Self::Other(Value::Object(change)) => {
                change.insert("destination".into(), destination.as_str().into());
            }
            Self::Other(_) => {}
        }
        self
    }
}

/// Rules to add, replace or remove.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are named as on the wire")]
#[non_exhaustive]
pub struct RuleChange {
    pub rules: Vec<PermissionRule>,
    pub behavior: PermissionBehavior,
    #[serde(default)]
    pub destination: PermissionDestination,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl RuleChange {
    fn new(behavior: PermissionBehavior, rules: impl IntoIterator<Item = impl Into<PermissionRule>>) -> Self {
        Self {
            rules: rules.into_iter().map(Into::into).collect(),
            behavior,
            destination: PermissionDestination::Session,
            extra: Map::new(),
        }
    }
}

/// A new permission mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are named as on the wire")]
#[non_exhaustive]
pub struct ModeChange {
    pub mode: PermissionMode,
    #[serde(default)]
    pub destination: PermissionDestination,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Working directories to add or remove.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are named as on the wire")]
#[non_exhaustive]
pub struct DirectoryChange {
    pub directories: Vec<String>,
    #[serde(default)]
    pub destination: PermissionDestination,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl DirectoryChange {
    fn new(directories: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            directories: directories.into_iter().map(Into::into).collect(),
            destination: PermissionDestination::Session,
            extra: Map::new(),
        }
    }
}

/// The calls that a rule matches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PermissionRule {
    /// Name of the tool.
    pub tool_name: String,
    /// A pattern in the tool's own syntax; `None` matches every call of the tool. Never sent as null, for which the CLI
    /// would drop every change of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule_content: Option<String>,
    /// Every other field, as it came.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl PermissionRule {
    /// Matches every call of this tool.
    pub fn tool(name: impl Into<String>) -> Self {
        Self { tool_name: name.into(), rule_content: None, extra: Map::new() }
    }

    /// Matches calls of this tool by a pattern, such as `Bash` and `ls:*`.
    pub fn matching(tool_name: impl Into<String>, content: impl Into<String>) -> Self {
        Self { tool_name: tool_name.into(), rule_content: Some(content.into()), extra: Map::new() }
    }
}

impl From<&str> for PermissionRule {
    /// Matches every call of the tool with this name.
    fn from(tool_name: &str) -> Self {
        Self::tool(tool_name)
    }
}
