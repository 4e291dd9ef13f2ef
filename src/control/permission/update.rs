//! Changes of the permission rules: what the CLI suggests, and what a decision may carry.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::control::fields::open_enum;
use crate::options::PermissionMode;

open_enum! {
    /// What a rule says of the calls that it matches.
    ///
    /// ```
    /// assert_eq!(greenroom::permission::PermissionBehavior::Ask.as_str(), "ask");
    /// ```
    PermissionBehavior {
        /// They run.
        Allow = "allow",
        /// They do not run.
        Deny = "deny",
        /// The person is asked.
        Ask = "ask",
    }
}

open_enum! {
    /// Where a change is written down, and so for how long it holds.
    ///
    /// ```
    /// use greenroom::permission::PermissionDestination;
    ///
    /// assert_eq!(PermissionDestination::default(), PermissionDestination::Session);
    /// ```
    PermissionDestination {
        /// The person's own settings.
        UserSettings = "userSettings",
        /// The project's settings, which others share.
        ProjectSettings = "projectSettings",
        /// The project's settings that are the person's own.
        LocalSettings = "localSettings",
        /// Nowhere: it ends with the CLI's process, and the one that is started in its place after a crash does not know it.
        Session = "session",
        /// As if it had been given on the command line.
        CliArg = "cliArg",
    }
}

#[allow(clippy::derivable_impls, reason = "the enum is made by a macro")]
impl Default for PermissionDestination {
    fn default() -> Self {
        Self::Session
    }
}

/// A change of the permission rules.
///
/// The CLI suggests such changes with a request
/// ([`permission_suggestions`](super::PermissionRequest::permission_suggestions)), and takes them with a decision. It
/// drops *all* changes of a decision if one of them is not well formed; those that are made here are.
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
    /// These rules come on top.
    AddRules(RuleChange),
    /// These rules take the place of all that say the same behaviour at the same destination.
    ReplaceRules(RuleChange),
    /// These rules go.
    RemoveRules(RuleChange),
    /// The permission mode.
    SetMode(ModeChange),
    /// Directories in which the CLI may work.
    AddDirectories(DirectoryChange),
    /// Directories in which it may work no more.
    RemoveDirectories(DirectoryChange),
    /// A kind that this library does not know, or one without what belongs to it, as it came.
    #[serde(untagged)]
    Other(Value),
}

impl PermissionUpdate {
    /// Adds rules, for this session: see [`to`](PermissionUpdate::to).
    pub fn add_rules(
        behavior: PermissionBehavior,
        rules: impl IntoIterator<Item = impl Into<PermissionRule>>,
    ) -> Self {
        Self::AddRules(RuleChange::new(behavior, rules))
    }

    /// Replaces all rules of this behaviour, for this session.
    pub fn replace_rules(
        behavior: PermissionBehavior,
        rules: impl IntoIterator<Item = impl Into<PermissionRule>>,
    ) -> Self {
        Self::ReplaceRules(RuleChange::new(behavior, rules))
    }

    /// Removes rules, for this session.
    pub fn remove_rules(
        behavior: PermissionBehavior,
        rules: impl IntoIterator<Item = impl Into<PermissionRule>>,
    ) -> Self {
        Self::RemoveRules(RuleChange::new(behavior, rules))
    }

    /// Sets the permission mode, for this session.
    pub fn set_mode(mode: PermissionMode) -> Self {
        Self::SetMode(ModeChange { mode, destination: PermissionDestination::Session, extra: Map::new() })
    }

    /// Adds directories, for this session.
    pub fn add_directories(directories: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::AddDirectories(DirectoryChange::new(directories))
    }

    /// Removes directories, for this session.
    pub fn remove_directories(directories: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::RemoveDirectories(DirectoryChange::new(directories))
    }

    /// The same, written down there.
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

/// Rules that come or go.
///
/// ```
/// use greenroom::permission::PermissionUpdate;
///
/// let update: PermissionUpdate = serde_json::from_value(serde_json::json!({
///     "type": "removeRules", "rules": [{ "toolName": "Bash" }], "behavior": "deny", "destination": "session",
/// }))?;
/// let PermissionUpdate::RemoveRules(change) = update else { unreachable!() };
/// assert_eq!(change.rules[0].tool_name, "Bash");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RuleChange {
    /// The rules.
    pub rules: Vec<PermissionRule>,
    /// What they say.
    pub behavior: PermissionBehavior,
    /// Where it is written down.
    #[serde(default)]
    pub destination: PermissionDestination,
    /// Every other field, as it came.
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

/// Another permission mode.
///
/// ```
/// use greenroom::{PermissionMode, permission::PermissionUpdate};
///
/// let PermissionUpdate::SetMode(change) = PermissionUpdate::set_mode(PermissionMode::Plan) else { unreachable!() };
/// assert_eq!(change.mode, PermissionMode::Plan);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModeChange {
    /// The mode.
    pub mode: PermissionMode,
    /// Where it is written down.
    #[serde(default)]
    pub destination: PermissionDestination,
    /// Every other field, as it came.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Directories that come or go.
///
/// ```
/// use greenroom::permission::PermissionUpdate;
///
/// let PermissionUpdate::AddDirectories(change) = PermissionUpdate::add_directories(["/srv"]) else { unreachable!() };
/// assert_eq!(change.directories, ["/srv"]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DirectoryChange {
    /// Their paths.
    pub directories: Vec<String>,
    /// Where it is written down.
    #[serde(default)]
    pub destination: PermissionDestination,
    /// Every other field, as it came.
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

/// Which calls a rule matches.
///
/// ```
/// use greenroom::permission::PermissionRule;
///
/// let rule = PermissionRule::matching("Bash", "git status:*");
/// assert_eq!((rule.tool_name.as_str(), rule.rule_content.as_deref()), ("Bash", Some("git status:*")));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PermissionRule {
    /// The tool.
    pub tool_name: String,
    /// What the call must be like, in the tool's own words; every call of the tool without it. Left out and never null:
    /// the CLI would drop every change of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule_content: Option<String>,
    /// Every other field, as it came.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl PermissionRule {
    /// Every call of this tool.
    pub fn tool(name: impl Into<String>) -> Self {
        Self { tool_name: name.into(), rule_content: None, extra: Map::new() }
    }

    /// Calls of this tool that are like this, such as `Bash` and `ls:*`.
    pub fn matching(tool_name: impl Into<String>, content: impl Into<String>) -> Self {
        Self { tool_name: tool_name.into(), rule_content: Some(content.into()), extra: Map::new() }
    }
}

impl From<&str> for PermissionRule {
    /// Every call of the tool with this name.
    fn from(tool_name: &str) -> Self {
        Self::tool(tool_name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_kind_is_read_and_written_as_it_came() {
        let rules = json!([{"toolName": "Bash", "ruleContent": "ls:*"}, {"toolName": "Read", "new": 1}]);
        let of = |kind: &str| json!({"type": kind, "rules": rules, "behavior": "allow", "destination": "cliArg", "new": 1});
        let dirs = |kind: &str| json!({"type": kind, "directories": ["/a"], "destination": "of_tomorrow"});
        let all = [
            of("addRules"),
            of("replaceRules"),
            of("removeRules"),
            json!({"type": "setMode", "mode": "acceptEdits", "destination": "session"}),
            json!({"type": "setMode", "mode": "of_tomorrow", "destination": "session"}),
            dirs("addDirectories"),
            dirs("removeDirectories"),
        ];
        for raw in all {
            let update = PermissionUpdate::deserialize(&raw).unwrap();
            assert!(!matches!(update, PermissionUpdate::Other(_)), "{raw}");
            assert_eq!(serde_json::to_value(&update).unwrap(), raw);
        }
    }

    #[test]
    fn what_is_not_known_is_kept() {
        for raw in [
            json!({"type": "of_tomorrow", "x": [1]}),
            json!({"type": "setMode", "mode": 7, "destination": "session"}),
            json!({"type": "addRules"}),
            json!("no object"),
        ] {
            let update = PermissionUpdate::deserialize(&raw).unwrap();
            assert_eq!(update, PermissionUpdate::Other(raw.clone()));
            assert_eq!(serde_json::to_value(&update).unwrap(), raw);
        }
    }

    #[test]
    fn a_content_of_null_is_left_out_and_a_missing_destination_is_the_session() {
        let raw = json!({"type": "addRules", "rules": [{"toolName": "Bash", "ruleContent": null}], "behavior": "deny"});
        let update = PermissionUpdate::deserialize(raw).unwrap();
        assert_eq!(
            serde_json::to_value(update).unwrap(),
            json!({"type": "addRules", "rules": [{"toolName": "Bash"}], "behavior": "deny", "destination": "session"})
        );
    }

    #[test]
    fn a_change_goes_where_it_is_sent() {
        let update = PermissionUpdate::add_rules(PermissionBehavior::Allow, ["Bash"])
            .to(PermissionDestination::UserSettings);
        assert_eq!(serde_json::to_value(update).unwrap()["destination"], "userSettings");
        let other = PermissionUpdate::Other(json!({"type": "x"})).to(PermissionDestination::Session);
        assert_eq!(serde_json::to_value(other).unwrap(), json!({"type": "x", "destination": "session"}));
    }
}
