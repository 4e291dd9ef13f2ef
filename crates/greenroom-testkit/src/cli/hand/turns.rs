//! The handshake and the turns of a CLI that is played by hand.

use serde_json::{Value, json};

use super::CliEnd;

/// Newer than any version that greenroom may demand.
const VERSION: &str = "999.0.0-scripted";

/// Capabilities that the CLI reports.
const CAPABILITIES: [&str; 7] = [
    "sdk_mcp_manifests",
    "interrupt_receipt_v1",
    "interrupt_cancel_queued_v1",
    "mcp_read_resource_v1",
    "mcp_call_result_not_for_model_v1",
    "mcp_call_check_permissions_v1",
    "reload_plugins_refuse_if_busy_v1",
];

/// Fields of `initialize`, and what a CLI of today says when it has taken them.
const APPLIED: [(&str, &str); 4] = [
    ("mcpServers", "mcp_servers_applied"),
    ("plugins", "plugins_applied"),
    ("settings", "settings_applied"),
    ("managedSettings", "managed_settings_applied"),
];

impl CliEnd {
    /// Answers `initialize` as a CLI of today does, and returns it.
    pub async fn handshake(&mut self) -> Value {
        let initialize = self.expect_request("initialize").await;
        let answer = Self::handshake_answer(&initialize);
        self.answer(&initialize, answer);
        initialize
    }

    pub(crate) fn handshake_answer(initialize: &Value) -> Value {
        let parked = initialize["request"]["sdkMcpServerManifests"].as_object().map(|manifests| {
            manifests.keys().map(|name| (name.clone(), json!("parked"))).collect::<serde_json::Map<_, _>>()
        });
        let mut answer = json!({
            "claude_code_version": VERSION,
            "capabilities": CAPABILITIES,
            "sdk_mcp_manifests_parked": parked.unwrap_or_default(),
            "hook_on_failure_supported": true,
            "hooks_applied": true,
            "commands": [],
        });
        for (field, applied) in APPLIED {
            if initialize["request"].get(field).is_some() {
                answer[applied] = json!(true);
            }
        }
        answer
    }

    /// Writes a message, with the `session_id` and a fresh `uuid` if it has none.
    pub fn message(&mut self, mut message: Value) {
        if message.get("session_id").is_none() {
            message["session_id"] = json!(self.session_id);
        }
        if message.get("uuid").is_none() {
            message["uuid"] = json!(uuid::Uuid::new_v4().to_string());
        }
        self.send(message);
    }

    /// Begins a turn: writes `system/init`, which names the conversation.
    pub fn begin_turn(&mut self) {
        self.message(json!({
            "type": "system", "subtype": "init", "cwd": "/", "model": "scripted", "tools": [], "mcp_servers": [],
            "permissionMode": "default", "claude_code_version": VERSION, "capabilities": CAPABILITIES,
        }));
    }

    /// Ends the turn of this prompt with an answer.
    pub fn finish_turn(&mut self, prompt: &Value, text: &str) {
        self.finish_turn_with(prompt, text, json!({}));
    }

    /// Like [`finish_turn`](CliEnd::finish_turn), with these fields added to the result or in place of its fields.
    pub(crate) fn finish_turn_with(&mut self, prompt: &Value, text: &str, fields: Value) {
        let result = json!({
            "type": "result", "subtype": "success", "is_error": false, "result": text, "num_turns": 1,
            "duration_ms": 0, "duration_api_ms": 0, "total_cost_usd": 0.0, "terminal_reason": "completed",
            "stop_reason": "end_turn",
            "usage": { "input_tokens": 1, "output_tokens": 1 }, "user_message_uuids": [prompt["uuid"]],
        });
        self.message(with_fields(result, fields));
    }

    /// Ends the turn of this prompt with an error, as the CLI does when it was interrupted (`aborted_tools`) or
    /// gave up (`max_turns` and others).
    pub fn fail_turn(&mut self, prompt: &Value, terminal_reason: &str, text: &str) {
        self.fail_turn_with(terminal_reason, text, json!({ "user_message_uuids": [prompt["uuid"]] }));
    }

    /// Like [`fail_turn`](CliEnd::fail_turn), with these fields added to the result.
    pub(crate) fn fail_turn_with(&mut self, terminal_reason: &str, text: &str, fields: Value) {
        let result = json!({
            "type": "result", "subtype": "error_during_execution", "is_error": true, "errors": [text],
            "num_turns": 1, "duration_ms": 0, "duration_api_ms": 0, "terminal_reason": terminal_reason,
        });
        self.message(with_fields(result, fields));
    }
}

fn with_fields(mut message: Value, fields: Value) -> Value {
    if let (Value::Object(message), Value::Object(fields)) = (&mut message, fields) {
        message.extend(fields);
    }
    message
}
