//! Requests to decide whether a tool may run.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::{McpServerProvenance, PermissionUpdate, Question, plain_text, question};
use crate::control::fields::{RequestFields, requests};
use crate::control::lazy::LazyValue;
use crate::wire::message::abridge::{most_values, values};
use crate::wire::words::words;

words! {
    /// The cause of a permission request.
    pub enum DecisionReasonType {
        Rule = "rule",
        Mode = "mode",
        /// Parts of a compound shell command. A safety check may be among them: see
        /// [`classifier_approvable`](PermissionRequest::classifier_approvable).
        SubcommandResults = "subcommandResults",
        PermissionPromptTool = "permissionPromptTool",
        Hook = "hook",
        /// An agent in the background.
        AsyncAgent = "asyncAgent",
        /// The call wants to leave the sandbox.
        SandboxOverride = "sandboxOverride",
        WorkingDir = "workingDir",
        SafetyCheck = "safetyCheck",
        /// The classifier of the mode `auto`.
        Classifier = "classifier",
        /// The CLI's word `other`.
        SomethingElse = "other",
    }
}

requests! {
    /// The user's `ask` rule that forced a request. Its texts may contain escape sequences of a terminal: show them
    /// through [`plain_text`].
    part MatchedAskRule {
        /// Where the rule is written, such as `userSettings`.
        need source: String,
        need tool_name: String,
        /// The rule's condition on the call.
        may rule_content: String,
    }
}

/// The CLI asks whether a tool may run (`can_use_tool`): no rule, mode or hook decided.
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
#[allow(missing_docs, reason = "fields are named as on the wire")]
#[non_exhaustive]
pub struct PermissionRequest {
    pub tool_name: String,
    #[serde(skip_serializing_if = "LazyValue::is_null")]
    pub(super) input: LazyValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_use_id: Option<String>,
    /// Rule changes after which the CLI would not ask again. Return one with
    /// [`PermissionDecision::update`](crate::PermissionDecision::update), or all with
    /// [`PermissionDecision::allow_always`](crate::PermissionDecision::allow_always).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub permission_suggestions: Vec<PermissionUpdate>,
    /// The path that needs the permission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_path: Option<String>,
    /// The reason for the request. May contain escape sequences of a terminal: show [`reason_text`](Self::reason_text)
    /// instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision_reason_type: Option<DecisionReasonType>,
    /// Set if a safety check is involved; `false` if at least one check wants a person to decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classifier_approvable: Option<bool>,
    /// Do not offer a lasting permission ("do not ask again").
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub suppress_always_allow_rule: bool,
    /// A single key must not approve the call.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub default_to_no: bool,
    /// A user's `ask` rule matched: always ask the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matched_ask_rule: Option<MatchedAskRule>,
    /// A plain "yes" or "no" is not enough: the user has to see the details.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub requires_user_interaction: bool,
    /// The question to the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// A short name of the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// A line below the title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The subagent that makes the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The server of an MCP tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_server: Option<McpServerProvenance>,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl PermissionRequest {
    /// The arguments of the call: an object, or `Null` if the CLI sent none. Parsed on the first use, which takes many
    /// times the memory of the JSON if it holds very many values.
    pub fn input(&self) -> &Value {
        &self.input
    }

    /// The arguments as the CLI wrote them, to be read as a type of yours.
    pub fn raw_input(&self) -> &RawValue {
        self.input.raw()
    }

    /// [`decision_reason`](Self::decision_reason) without escape sequences of a terminal.
    pub fn reason_text(&self) -> Option<String> {
        self.decision_reason.as_deref().map(plain_text)
    }

    /// The model's questions to the user, if the request is a call of `AskUserQuestion` and its questions can be read.
    /// Answer with [`PermissionDecision::answer_questions`](crate::PermissionDecision::answer_questions).
    pub fn questions(&self) -> Option<Vec<Question>> {
        self.read_questions()?.ok()
    }

    /// [`questions`](Self::questions), or why they cannot be read.
    pub(crate) fn read_questions(&self) -> Option<Result<Vec<Question>, String>> {
        if self.tool_name != question::TOOL {
            return None;
        }
        let json = self.raw_input().get();
        if values(json) > most_values(json.len()) {
            return Some(Err("the questions cannot be read: they hold too many values".into()));
        }
        let questions = self.input().get("questions").unwrap_or(&Value::Null);
        Some(Vec::deserialize(questions).map_err(|error| format!("the questions cannot be read: {error}")))
    }
}

impl<'de> Deserialize<'de> for PermissionRequest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut fields = RequestFields::read(from)?;
        fields.may::<String>("subtype");
        Ok(Self {
            tool_name: fields.need("tool_name")?,
            // Arguments that do not parse stay in the rest, which is an error.
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
            extra: fields.rest()?,
        })
    }
}
