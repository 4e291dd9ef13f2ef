//! Changes of the permission rules, suggested by the CLI or returned with a decision.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::PermissionMode;
use crate::control::fields::requests;
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
    pub enum PermissionDestination {
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

requests! {
    /// A change of the permission rules.
    ///
    /// The CLI suggests changes with a request
    /// ([`permission_suggestions`](super::PermissionRequest::permission_suggestions)) and accepts changes with a decision.
    /// It drops *all* changes of a decision if one of them is malformed; [`add_rules`](Self::add_rules) and [`set_mode`](Self::set_mode)
    /// make well-formed ones. For another kind, change the fields of one of these.
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
    part PermissionUpdate {
        /// `addRules`, `replaceRules` (of the same behaviour and destination), `removeRules`, `setMode`,
        /// `addDirectories` or `removeDirectories`.
        or_default kind: String = "type",
        /// For changes of rules.
        may rules: Vec<PermissionRule>,
        /// For changes of rules.
        may behavior: PermissionBehavior,
        /// For `setMode`.
        may mode: PermissionMode,
        /// For changes of the working directories.
        may directories: Vec<String>,
        /// In a decision without one, `session` is sent: the CLI needs a destination.
        may destination: PermissionDestination,
    }
}

impl PermissionUpdate {
    /// A change for this session.
    fn of_session(kind: &str) -> Self {
        Self {
            kind: kind.into(),
            rules: None,
            behavior: None,
            mode: None,
            directories: None,
            destination: Some(PermissionDestination::Session),
            extra: Map::new(),
        }
    }

    /// The change as it is sent: with a destination, unless it changes nothing that is known here.
    pub(super) fn stored(mut self) -> Self {
        if self.rules.is_some() || self.mode.is_some() || self.directories.is_some() {
            self.destination.get_or_insert(PermissionDestination::Session);
        }
        self
    }

    /// Adds rules for this session.
    pub fn add_rules(
        behavior: PermissionBehavior,
        rules: impl IntoIterator<Item = impl Into<PermissionRule>>,
    ) -> Self {
        let rules = rules.into_iter().map(Into::into).collect();
        Self { rules: Some(rules), behavior: Some(behavior), ..Self::of_session("addRules") }
    }

    /// Sets the permission mode for this session.
    pub fn set_mode(mode: PermissionMode) -> Self {
        Self { mode: Some(mode), ..Self::of_session("setMode") }
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

by_serde!(PermissionRule);

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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{from_value, json, to_value};

    use super::*;

    #[test]
    fn a_change_without_a_destination_is_sent_for_the_session() {
        let sent =
            |change: Value| to_value(from_value::<PermissionUpdate>(change).unwrap().stored()).unwrap();
        for change in [
            json!({ "type": "addRules", "behavior": "allow", "rules": [{ "toolName": "Bash" }] }),
            json!({ "type": "setMode", "mode": "plan", "destination": null }),
            json!({ "type": "addDirectories", "directories": ["/srv"] }),
        ] {
            let mut expected = change.clone();
            expected["destination"] = json!("session");
            assert_eq!(sent(change), expected);
        }
        let unknown = json!({ "type": "addWish", "wish": "more" });
        assert_eq!(sent(unknown.clone()), unknown);
    }
}
