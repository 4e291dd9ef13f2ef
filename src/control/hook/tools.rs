//! Events around a tool call.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::define::event;
use crate::control::fields::{Fields, McpServerProvenance, open_enum};
use crate::control::permission::{PermissionDecision, PermissionUpdate};

open_enum! {
    /// What a `PreToolUse` hook says of a call, and a `PreModelSwitch` hook of a switch.
    ///
    /// ```
    /// assert_eq!(greenroom::hook::HookPermission::Defer.as_str(), "defer");
    /// ```
    HookPermission {
        /// It may run, without asking.
        Allow = "allow",
        /// It may not.
        Deny = "deny",
        /// The person, or the application, is asked.
        Ask = "ask",
        /// The run stops here, and the call stands in `deferred_tool_use` of its result.
        Defer = "defer",
    }
}

event! {
    /// Before a tool runs, and before any question about its permission.
    PreToolUse: PreToolUseInput, PreToolUseOutput, PreToolUseFields;
    sample r#"{"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "toolu_1", "mcp_server": {"name": "calc", "source": "sdk"}}"#;
    input {
        /// The tool, by the name that the model sees.
        tool_name: String,
        /// Its arguments.
        tool_input: Value,
        /// The id of the model's tool use.
        tool_use_id: String,
    }
    may {
        /// The server, for a tool of an MCP server.
        mcp_server: McpServerProvenance,
    }
    output {
        /// Whether it may run.
        permission_decision: HookPermission,
        /// Why. The model reads it when the call is denied.
        permission_decision_reason: String,
        /// Arguments that take the place of those of the model: an object.
        updated_input: Value,
        /// Something for the model to read.
        additional_context: String,
    }
}

impl PreToolUseOutput {
    /// It may run, without asking.
    pub fn allow() -> Self {
        Self::pass().permission_decision(HookPermission::Allow)
    }

    /// It may not run; the model reads why.
    pub fn deny(reason: impl Into<String>) -> Self {
        Self::pass().permission_decision(HookPermission::Deny).permission_decision_reason(reason)
    }

    /// The person, or the application, is to decide.
    pub fn ask(reason: impl Into<String>) -> Self {
        Self::pass().permission_decision(HookPermission::Ask).permission_decision_reason(reason)
    }

    /// The run stops here, and the call stands in `deferred_tool_use` of its result.
    pub fn defer() -> Self {
        Self::pass().permission_decision(HookPermission::Defer)
    }
}

event! {
    /// After a tool ran, before the model reads its result.
    PostToolUse: PostToolUseInput, PostToolUseOutput, PostToolUseFields;
    sample r#"{"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_response": {"stdout": "a"}, "tool_use_id": "toolu_1", "duration_ms": 12}"#;
    input {
        /// The tool, by the name that the model sees.
        tool_name: String,
        /// Its arguments.
        tool_input: Value,
        /// What it answered, in the tool's own shape.
        tool_response: Value,
        /// The id of the model's tool use.
        tool_use_id: String,
    }
    may {
        /// How long it ran, in milliseconds, without permissions and hooks.
        duration_ms: u64,
        /// The server, for a tool of an MCP server.
        mcp_server: McpServerProvenance,
    }
    output {
        /// Something for the model to read beside the result.
        additional_context: String,
        /// What the model reads in place of the result. It has to have the shape of the tool's results, or the CLI drops
        /// it.
        updated_tool_output: Value,
        /// The same for tools of MCP servers only; `updated_tool_output` does for all.
        updated_mcp_tool_output: Value = "updatedMCPToolOutput",
        /// What the classifier of the permission mode `auto` reads beside the result: statements of the person and
        /// nothing that a tool or a model wrote. At most 2000 UTF-16 units.
        classifier_context: String,
    }
}

event! {
    /// After a tool failed.
    PostToolUseFailure: PostToolUseFailureInput, PostToolUseFailureOutput, PostToolUseFailureFields;
    sample r#"{"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "toolu_1", "error": "exit code 1", "is_interrupt": false, "duration_ms": 12}"#;
    input {
        /// The tool, by the name that the model sees.
        tool_name: String,
        /// Its arguments.
        tool_input: Value,
        /// The id of the model's tool use.
        tool_use_id: String,
        /// What went wrong.
        error: String,
    }
    may {
        /// Whether it was interrupted.
        is_interrupt: bool,
        /// How long it ran, in milliseconds, without permissions and hooks.
        duration_ms: u64,
        /// The server, for a tool of an MCP server.
        mcp_server: McpServerProvenance,
    }
    output {
        /// Something for the model to read beside the error.
        additional_context: String,
    }
}

event! {
    /// After all tool calls of one message of the model have their results, before the model reads them. Once for all
    /// of them.
    PostToolBatch: PostToolBatchInput, PostToolBatchOutput, PostToolBatchFields;
    sample r#"{"tool_calls": [{"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "toolu_1", "tool_response": "a"}]}"#;
    input {
        /// The calls.
        tool_calls: Vec<BatchedToolCall>,
    }
    may {}
    output {
        /// Something for the model to read beside the results.
        additional_context: String,
    }
}

/// A call of a [`PostToolBatch`].
///
/// ```
/// let call: greenroom::hook::BatchedToolCall = serde_json::from_value(serde_json::json!({
///     "tool_name": "Bash", "tool_input": { "command": "ls" }, "tool_use_id": "toolu_1"
/// }))?;
/// assert_eq!(call.tool_response, None);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct BatchedToolCall {
    /// The tool, by the name that the model sees.
    pub tool_name: String,
    /// Its arguments.
    pub tool_input: Value,
    /// The id of the model's tool use.
    pub tool_use_id: String,
    /// What it answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_response: Option<Value>,
    /// Every other field, as it came.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl<'de> Deserialize<'de> for BatchedToolCall {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut fields = Fields::read(from)?;
        Ok(Self {
            tool_name: fields.need("tool_name")?,
            tool_input: fields.need("tool_input")?,
            tool_use_id: fields.need("tool_use_id")?,
            tool_response: fields.may("tool_response"),
            extra: fields.rest(),
        })
    }
}

event! {
    /// Before the person is asked whether a tool may run. CLI 2.1.328 was seen to ask the application's permission handler
    /// at the same time; the first of the two to decide is the one that counts.
    PermissionRequest: PermissionRequestInput, PermissionRequestOutput, PermissionRequestFields;
    sample r#"{"tool_name": "Bash", "tool_input": {"command": "ls"}, "permission_suggestions": [{"type": "setMode", "mode": "acceptEdits", "destination": "session"}]}"#;
    input {
        /// The tool, by the name that the model sees.
        tool_name: String,
        /// Its arguments.
        tool_input: Value,
    }
    may {
        /// Updates that would keep the CLI from asking again.
        permission_suggestions: Vec<PermissionUpdate>,
        /// The server, for a tool of an MCP server.
        mcp_server: McpServerProvenance,
    }
    output {
        /// The decision as it stands on the wire: see `PermissionRequestOutput::decide`.
        permission: Value = "decision",
    }
}

impl PermissionRequestOutput {
    /// The hook decides, and nobody is asked. How the decision came about is not said here.
    ///
    /// Answers to questions ([`PermissionDecision::answer_questions`]) are a failure of the hook: they go with the
    /// arguments of the call, which a decision does not know. Give the whole arguments
    /// ([`PermissionDecision::allow_with`]), or leave it to [`on_question`](crate::SessionBuilder::on_question).
    pub fn decide(decision: PermissionDecision) -> Self {
        if decision.answers_questions() {
            let problem = "answered questions in a decision, which cannot carry them: answer in `on_question`, or allow \
                           the call with its whole arguments";
            return Self { problem: Some(problem.into()), ..Self::pass() };
        }
        Self::pass().permission(decision.to_hook())
    }
}

event! {
    /// After the classifier of the permission mode `auto` denied a call.
    PermissionDenied: PermissionDeniedInput, PermissionDeniedOutput, PermissionDeniedFields;
    sample r#"{"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "toolu_1", "reason": "not asked for"}"#;
    input {
        /// The tool, by the name that the model sees.
        tool_name: String,
        /// Its arguments.
        tool_input: Value,
        /// The id of the model's tool use.
        tool_use_id: String,
        /// Why.
        reason: String,
    }
    may {
        /// The server, for a tool of an MCP server.
        mcp_server: McpServerProvenance,
    }
    output {
        /// Whether the model is told that it may try again.
        retry: bool,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hook::{HookOutput, tests::wire};
    use serde_json::json;

    #[test]
    fn what_can_be_said_of_a_call_is_on_the_wire() {
        let deny = PreToolUseOutput::deny("no").additional_context("c").updated_input(json!({"a": 1}));
        assert_eq!(
            wire(deny),
            json!({"hookSpecificOutput": {
                "hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": "no",
                "additionalContext": "c", "updatedInput": {"a": 1},
            }})
        );
        let decided =
            |output: PreToolUseOutput| wire(output)["hookSpecificOutput"]["permissionDecision"].clone();
        assert_eq!(decided(PreToolUseOutput::allow()), "allow");
        assert_eq!(decided(PreToolUseOutput::ask("?")), "ask");
        assert_eq!(decided(PreToolUseOutput::defer()), "defer");
        let changed = PostToolUseOutput::pass()
            .updated_mcp_tool_output("a")
            .updated_tool_output("b")
            .classifier_context("c");
        assert_eq!(
            wire(changed),
            json!({"hookSpecificOutput": {
                "hookEventName": "PostToolUse", "updatedMCPToolOutput": "a", "updatedToolOutput": "b",
                "classifierContext": "c",
            }})
        );
    }

    #[test]
    fn a_hook_decides_as_a_handler_does_without_what_only_the_handler_says() {
        let rule = PermissionUpdate::set_mode(crate::PermissionMode::Plan);
        let decisions = [
            (PermissionDecision::allow(), json!({"behavior": "allow"})),
            (
                PermissionDecision::allow_with(json!({"a": 1})).update(rule),
                json!({"behavior": "allow", "updatedInput": {"a": 1},
                    "updatedPermissions": [{"type": "setMode", "mode": "plan", "destination": "session"}]}),
            ),
            (
                PermissionDecision::deny_and_interrupt("no"),
                json!({"behavior": "deny", "message": "no", "interrupt": true}),
            ),
        ];
        for (decision, expected) in decisions {
            let output: HookOutput = PermissionRequestOutput::decide(decision).into();
            let specific = &output.to_wire("PermissionRequest").unwrap()["hookSpecificOutput"];
            assert_eq!(specific["decision"], expected);
        }
    }
}
