//! Events of tool calls and their permissions.

use serde_json::Value;

use super::define::event;
use crate::control::fields::requests;
use crate::control::lazy::LazyValue;
use crate::control::permission::{McpServerProvenance, PermissionDecision, PermissionUpdate};
use crate::wire::words::words;

words! {
    /// Decision of a `PreToolUse` hook about a call, and of a `PreModelSwitch` hook about a switch.
    pub enum HookPermission {
        /// Allows the call without a permission prompt.
        Allow = "allow",
        /// Denies the call.
        Deny = "deny",
        /// Asks the user or the application.
        Ask = "ask",
        /// Ends the run; the call is in `deferred_tool_use` of the run's result.
        Defer = "defer",
    }
}

event! {
    /// Before a tool runs, and before any permission prompt.
    PreToolUse: PreToolUseInput, PreToolUseOutput, PreToolUseFields;
    input { tool_name: String, tool_input: LazyValue, tool_use_id: String, }
    may { mcp_server: McpServerProvenance, }
    output {
        permission_decision: HookPermission,
        /// The model reads the reason when the call is denied.
        permission_decision_reason: String,
        /// Replaces the model's arguments: an object.
        updated_input: Value,
        /// Text that the model reads.
        additional_context: String,
    }
}

impl PreToolUseOutput {
    /// Allows the call without a permission prompt.
    pub fn allow() -> Self {
        Self::pass().permission_decision(HookPermission::Allow)
    }

    /// Denies the call; the model reads the reason.
    pub fn deny(reason: impl Into<String>) -> Self {
        Self::pass().permission_decision(HookPermission::Deny).permission_decision_reason(reason)
    }

    /// Lets the user or the application decide.
    pub fn ask(reason: impl Into<String>) -> Self {
        Self::pass().permission_decision(HookPermission::Ask).permission_decision_reason(reason)
    }
}

event! {
    /// After a tool ran, before the model reads the result.
    PostToolUse: PostToolUseInput, PostToolUseOutput, PostToolUseFields;
    input {
        tool_name: String,
        tool_input: LazyValue,
        /// The result, in a shape of the tool's own.
        tool_response: LazyValue,
        tool_use_id: String,
    }
    may {
        /// Milliseconds, without permission prompts and hooks.
        duration_ms: u64,
        mcp_server: McpServerProvenance,
    }
    output {
        /// Text that the model reads beside the result.
        additional_context: String,
        /// Replaces the result. It must have the shape of the tool's results; the CLI drops any other.
        updated_tool_output: Value,
        /// Replaces the result of an MCP tool only; `updated_tool_output` works for all tools.
        updated_mcp_tool_output: Value = "updatedMCPToolOutput",
        /// Text for the classifier of the permission mode `auto`, at most 2000 UTF-16 units: statements of the user,
        /// nothing that a tool or a model wrote.
        classifier_context: String,
    };

    /// After a tool failed.
    PostToolUseFailure: PostToolUseFailureInput, PostToolUseFailureOutput, PostToolUseFailureFields;
    input { tool_name: String, tool_input: LazyValue, tool_use_id: String, error: String, }
    may {
        is_interrupt: bool,
        /// Milliseconds, without permission prompts and hooks.
        duration_ms: u64,
        mcp_server: McpServerProvenance,
    }
    output {
        /// Text that the model reads beside the error.
        additional_context: String,
    };

    /// After all tool calls of one message of the model have their results, before the model reads the results. Runs
    /// once for the whole batch.
    PostToolBatch: PostToolBatchInput, PostToolBatchOutput, PostToolBatchFields;
    input { tool_calls: Vec<BatchedToolCall>, }
    output {
        /// Text that the model reads beside the results.
        additional_context: String,
    }
}

requests! {
    /// A call of a [`PostToolBatch`].
    part BatchedToolCall {
        need tool_name: String,
        need tool_input: LazyValue,
        need tool_use_id: String,
        may tool_response: LazyValue,
    }
}

event! {
    /// Before the user is asked for a permission. CLI 2.1.328 was seen to ask the application's permission handler at
    /// the same time; the first decision counts.
    PermissionRequest: PermissionRequestInput, PermissionRequestOutput, PermissionRequestFields;
    input { tool_name: String, tool_input: LazyValue, }
    may {
        /// Rule changes after which the CLI would not ask again.
        permission_suggestions: Vec<PermissionUpdate>,
        mcp_server: McpServerProvenance,
    }
    output {
        /// The decision as JSON: prefer `PermissionRequestOutput::decide`.
        permission: Value = "decision",
    }
}

impl PermissionRequestOutput {
    /// The hook decides, and nobody is asked, unless the decision is
    /// [`undecided`](PermissionDecision::undecided). The decision's classification is not sent.
    ///
    /// Answers to questions ([`PermissionDecision::answer_questions`]) fail the hook: they belong into the call's
    /// arguments, which a hook's decision does not have. Answer in
    /// [`on_question`](crate::SessionBuilder::on_question), or allow the call with all its arguments
    /// ([`PermissionDecision::allow_with`]).
    pub fn decide(decision: PermissionDecision) -> Self {
        if decision.is_undecided() {
            return Self::pass();
        }
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
    input { tool_name: String, tool_input: LazyValue, tool_use_id: String, reason: String, }
    may { mcp_server: McpServerProvenance, }
    output {
        /// Tells the model that it may try again.
        retry: bool,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hook::{HookOutput, tests::wire};
    use serde_json::json;

    #[test]
    fn outputs_about_a_call_have_the_names_of_the_wire() {
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
        assert_eq!(decided(PreToolUseOutput::pass().permission_decision(HookPermission::Defer)), "defer");
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
    fn a_hook_decision_has_no_field_that_only_a_handler_sends() {
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
