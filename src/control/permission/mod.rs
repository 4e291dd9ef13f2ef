//! May this tool run? Requests, decisions, changes of the rules, and the questions of `AskUserQuestion`.
//!
//! The handler is given with [`SessionBuilder::can_use_tool`](crate::SessionBuilder::can_use_tool). It is asked only
//! about what no rule, no mode and no hook has decided.
//!
//! | the handler | what the CLI is told |
//! |---|---|
//! | decides | the decision |
//! | returns an error, panics | denied, with the text |
//! | does not answer within [`Timeouts::permission`](crate::Timeouts::permission) | denied |
//! | is not there | an error, which the CLI takes for a denial |

mod decision;
mod question;
mod update;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::fields::{Fields, open_enum};

pub use super::fields::McpServerProvenance;
pub(crate) use decision::Understands;
pub use decision::{DecisionClassification, PermissionDecision};
pub use question::{Answers, Question, QuestionOption, Unanswered};
pub use update::{
    DirectoryChange, ModeChange, PermissionBehavior, PermissionDestination, PermissionRule, PermissionUpdate,
    RuleChange,
};

open_enum! {
    /// What made the CLI ask.
    ///
    /// ```
    /// use greenroom::permission::DecisionReasonType;
    ///
    /// assert_eq!(DecisionReasonType::from("safetyCheck"), DecisionReasonType::SafetyCheck);
    /// ```
    DecisionReasonType {
        /// A rule.
        Rule = "rule",
        /// The permission mode.
        Mode = "mode",
        /// Parts of a compound shell command. A safety check may be among them: see
        /// [`classifier_approvable`](PermissionRequest::classifier_approvable).
        SubcommandResults = "subcommandResults",
        /// A permission prompt tool.
        PermissionPromptTool = "permissionPromptTool",
        /// A hook.
        Hook = "hook",
        /// An agent in the background.
        AsyncAgent = "asyncAgent",
        /// The call wants to leave the sandbox.
        SandboxOverride = "sandboxOverride",
        /// The working directory.
        WorkingDir = "workingDir",
        /// A safety check.
        SafetyCheck = "safetyCheck",
        /// The classifier of the mode `auto`.
        Classifier = "classifier",
        /// Something else, by the CLI's own word.
        SomethingElse = "other",
    }
}

/// The `ask` rule of the person that forced a request.
///
/// Its texts may contain escape sequences of a terminal: show them through [`plain_text`].
///
/// ```
/// let rule: greenroom::permission::MatchedAskRule = serde_json::from_value(serde_json::json!({
///     "source": "userSettings", "tool_name": "Bash", "rule_content": "git push:*"
/// }))?;
/// assert_eq!(rule.rule_content.as_deref(), Some("git push:*"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct MatchedAskRule {
    /// Where it is written, such as `userSettings`.
    pub source: String,
    /// The tool that it names.
    pub tool_name: String,
    /// What it says beyond the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule_content: Option<String>,
    /// Every other field, as it came.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl<'de> Deserialize<'de> for MatchedAskRule {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut fields = Fields::read(from)?;
        Ok(Self {
            source: fields.need("source")?,
            tool_name: fields.need("tool_name")?,
            rule_content: fields.may("rule_content"),
            extra: fields.rest(),
        })
    }
}

/// The CLI asks whether a tool may run: no rule allows it and none denies it (`can_use_tool`).
///
/// ```
/// let request: greenroom::PermissionRequest = serde_json::from_value(serde_json::json!({
///     "tool_name": "Bash", "input": { "command": "ls" }, "tool_use_id": "toolu_1", "title": "List files?",
///     "decision_reason": "\u{1b}[31mdangerous\u{1b}[0m",
/// }))?;
/// assert_eq!(request.title.as_deref(), Some("List files?"));
/// assert_eq!(request.reason_text().as_deref(), Some("dangerous"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PermissionRequest {
    /// The tool, by the name that the model sees.
    pub tool_name: String,
    /// Its arguments.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub input: Value,
    /// The id of the model's tool use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_use_id: Option<String>,
    /// Updates that would keep the CLI from asking again; hand one back with
    /// [`PermissionDecision::update`], or all with [`PermissionDecision::allow_always`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub permission_suggestions: Vec<PermissionUpdate>,
    /// The path that is in the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_path: Option<String>,
    /// Why the CLI asks, as it came. It may contain escape sequences of a terminal: show
    /// [`reason_text`](Self::reason_text) instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision_reason: Option<String>,
    /// What made the CLI ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision_reason_type: Option<DecisionReasonType>,
    /// There if a safety check is involved: `false` if at least one of them wants a person to decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classifier_approvable: Option<bool>,
    /// Nothing that lasts ("do not ask again") may be offered.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub suppress_always_allow_rule: bool,
    /// A single key must not approve it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub default_to_no: bool,
    /// An `ask` rule of the person forced the request: a program should not approve it in the person's place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matched_ask_rule: Option<MatchedAskRule>,
    /// A plain "yes" or "no" does not do: the person has to see what it is about.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub requires_user_interaction: bool,
    /// What to ask the person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// A short name of the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// A line below the title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The subagent that asks, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The server, for a tool of an MCP server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_server: Option<McpServerProvenance>,
    /// Every other field, as it came.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl PermissionRequest {
    /// Why the CLI asks, without what a terminal would take for an instruction.
    pub fn reason_text(&self) -> Option<String> {
        self.decision_reason.as_deref().map(plain_text)
    }

    /// What the model wants to ask the person, if the request is a call of `AskUserQuestion`. Answered with
    /// [`PermissionDecision::answer_questions`]. `None` if it is not, and if what it asks cannot be read.
    pub fn questions(&self) -> Option<Vec<Question>> {
        self.read_questions()?.ok()
    }

    /// The same; the text of what is wrong with the questions if they cannot be read.
    pub(crate) fn read_questions(&self) -> Option<Result<Vec<Question>, String>> {
        if self.tool_name != question::TOOL {
            return None;
        }
        let questions = self.input.get("questions").unwrap_or(&Value::Null);
        Some(Vec::deserialize(questions).map_err(|error| format!("the questions cannot be read: {error}")))
    }
}

impl<'de> Deserialize<'de> for PermissionRequest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut fields = Fields::read(from)?;
        fields.may::<String>("subtype");
        Ok(Self {
            tool_name: fields.need("tool_name")?,
            input: fields.or_default("input"),
            tool_use_id: fields.may("tool_use_id"),
            permission_suggestions: fields.or_default("permission_suggestions"),
            blocked_path: fields.may("blocked_path"),
            decision_reason: fields.may("decision_reason"),
            decision_reason_type: fields.may("decision_reason_type"),
            classifier_approvable: fields.may("classifier_approvable"),
            suppress_always_allow_rule: fields.or_default("suppress_always_allow_rule"),
            default_to_no: fields.or_default("default_to_no"),
            matched_ask_rule: fields.may("matched_ask_rule"),
            requires_user_interaction: fields.or_default("requires_user_interaction"),
            title: fields.may("title"),
            display_name: fields.may("display_name"),
            description: fields.may("description"),
            agent_id: fields.may("agent_id"),
            mcp_server: fields.may("mcp_server"),
            extra: fields.rest(),
        })
    }
}

/// A text of the CLI without escape sequences and control characters. Line breaks stay, and a tab is a space.
///
/// ```
/// assert_eq!(greenroom::permission::plain_text("\u{1b}[1mrm\u{1b}[0m -rf\u{7}"), "rm -rf");
/// ```
pub fn plain_text(text: &str) -> String {
    let text = strip_ansi_escapes::strip_str(text.replace('\t', " "));
    text.chars().filter(|char| *char == '\n' || !char.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_request_is_read_whole_and_written_as_it_came() {
        let raw = json!({
            "tool_name": "mcp__calc__wipe", "input": {"a": 1}, "tool_use_id": "t", "blocked_path": "/etc",
            "permission_suggestions": [
                {"type": "addRules", "rules": [{"toolName": "Bash", "ruleContent": "ls:*"}], "behavior": "allow", "destination": "localSettings"},
                {"type": "of_tomorrow", "a": 1},
            ],
            "decision_reason": "\u{1b}[31mno\u{1b}[0m", "decision_reason_type": "safetyCheck",
            "classifier_approvable": false, "suppress_always_allow_rule": true, "default_to_no": true,
            "matched_ask_rule": {"source": "userSettings", "tool_name": "Bash", "rule_content": "ls", "x": 1},
            "requires_user_interaction": true, "title": "T", "display_name": "D", "description": "S",
            "agent_id": "a1", "mcp_server": {"name": "calc", "source": "sdk"}, "plugin": {"name": "p"},
            "decision_reason_code": 7,
        });
        let request = PermissionRequest::deserialize(&raw).unwrap();
        assert_eq!(request.decision_reason_type, Some(DecisionReasonType::SafetyCheck));
        assert_eq!(request.reason_text().as_deref(), Some("no"));
        assert!(matches!(request.permission_suggestions[0], PermissionUpdate::AddRules(_)));
        assert!(request.mcp_server.as_ref().unwrap().is_in_process());
        assert_eq!(request.extra.keys().collect::<Vec<_>>(), ["decision_reason_code", "plugin"]);
        assert_eq!(serde_json::to_value(&request).unwrap(), raw);
    }

    #[test]
    fn a_field_of_another_shape_spoils_nothing_and_is_kept() {
        let raw =
            json!({"tool_name": "Bash", "input": {}, "title": 7, "decision_reason_type": "of_tomorrow"});
        let request = PermissionRequest::deserialize(&raw).unwrap();
        assert_eq!((request.title.as_deref(), &request.extra["title"]), (None, &json!(7)));
        assert_eq!(request.decision_reason_type, Some(DecisionReasonType::Other("of_tomorrow".into())));
        let error = PermissionRequest::deserialize(json!({"input": {}})).unwrap_err();
        assert_eq!(error.to_string(), "missing field `tool_name`");
    }

    #[test]
    fn a_text_for_a_person_has_nothing_for_a_terminal_in_it() {
        let text = "a\u{1b}]0;title\u{7}b\u{1b}[2Jc\u{9b}d\r\n\te\u{1b}(0é\u{8}";
        assert_eq!(plain_text(text), "abcd\n eé");
    }
}
