//! Requests to decide whether a tool may run.

use serde::Deserialize;
use serde_json::Value;

use super::{PermissionUpdate, Question, plain_text, question};
use crate::control::fields::requests;
use crate::control::lazy::LazyValue;
use crate::wire::message::abridge::{most_values, values};

requests! {
    /// The MCP server that a request is about, and where its definition comes from.
    part McpServerProvenance {
        /// Any server can have any name: decide about trust by `source`.
        need name: String,
        /// `sdk`, `plugin`, `user`, `project`, `local`, `dynamic`, `managed`, `enterprise`, `claudeai`, `agent`. The set is
        /// open: treat an unknown source as configured by somebody else, never as this application.
        need source: String,
    }
}

impl McpServerProvenance {
    /// Whether the server is a [`ToolServer`](crate::ToolServer) of this session.
    pub fn is_in_process(&self) -> bool {
        self.source == "sdk"
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

requests! {
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
    request PermissionRequest {
        need tool_name: String,
        /// The arguments of the call: an object, or null if the CLI sent none. Parsed on the first use.
        or_default input: LazyValue,
        may tool_use_id: String,
        /// Rule changes after which the CLI would not ask again. Return one with
        /// [`PermissionDecision::update`](crate::PermissionDecision::update), or all with
        /// [`PermissionDecision::allow_always`](crate::PermissionDecision::allow_always).
        or_default permission_suggestions: Vec<PermissionUpdate>,
        /// The path that needs the permission.
        may blocked_path: String,
        /// The reason for the request. May contain escape sequences of a terminal: show [`reason_text`](Self::reason_text)
        /// instead.
        may decision_reason: String,
        /// `rule`, `mode`, `subcommandResults` (parts of a compound shell command, with a safety check perhaps: see
        /// [`classifier_approvable`](PermissionRequest::classifier_approvable)), `permissionPromptTool`, `hook`,
        /// `asyncAgent`, `sandboxOverride`, `workingDir`, `safetyCheck`, `classifier` (of the mode `auto`), `other`, or
        /// another word.
        may decision_reason_type: String,
        /// Set if a safety check is involved; `false` if at least one check wants a person to decide.
        may classifier_approvable: bool,
        /// Do not offer a lasting permission ("do not ask again").
        or_default suppress_always_allow_rule: bool,
        /// A single key must not approve the call.
        or_default default_to_no: bool,
        /// A user's `ask` rule matched: always ask the user.
        may matched_ask_rule: MatchedAskRule,
        /// A plain "yes" or "no" is not enough: the user has to see the details.
        or_default requires_user_interaction: bool,
        /// The question to the user.
        may title: String,
        /// A short name of the tool.
        may display_name: String,
        /// A line below the title.
        may description: String,
        /// The subagent that makes the call.
        may agent_id: String,
        /// The server of an MCP tool.
        may mcp_server: McpServerProvenance,
    }
}

impl PermissionRequest {
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
        let json = self.input.raw().get();
        if values(json) > most_values(json.len()) {
            return Some(Err("the questions cannot be read: they hold too many values".into()));
        }
        let questions = self.input.get("questions").unwrap_or(&Value::Null);
        Some(Vec::deserialize(questions).map_err(|error| format!("the questions cannot be read: {error}")))
    }
}
