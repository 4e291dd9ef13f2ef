//! The end of a turn.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::origin::Origin;
use super::read::{Head, maybe};
use super::reason::{FastModeState, StartupFailureReason, TerminalReason};
use super::usage::{ModelUsage, Usage};
use super::view::{loose, message, view};

message! {
    /// The end of a turn (`type` `result`). Each turn ends with exactly one.
    ///
    /// A result is an error in two ways: a `subtype` other than `success`, or `success` with
    /// [`is_error`](Self::is_error), which is a failed API call. [`is_success`](Self::is_success) and
    /// [`error_text`](Self::error_text) cover both.
    ///
    /// Without a string `subtype`, or if `is_error` is there and is no boolean, this is
    /// [`Message::Other`](crate::Message::Other).
    ///
    /// ```
    /// use greenroom::Message;
    ///
    /// let line = r#"{"num_turns": 1, "subtype": "success", "is_error": true, "type": "result",
    ///     "result": "API Error: 529 overloaded", "api_error_status": 529, "terminal_reason": "api_error"}"#;
    /// let Message::Result(end) = Message::parse(line)? else { unreachable!() };
    /// assert!(!end.is_success());
    /// assert_eq!(end.error_text().as_deref(), Some("API Error: 529 overloaded"));
    /// assert_eq!(end.api_error_status, Some(529));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    ResultMessage {
        read {
            #[serde(default)]
            is_error: Option<bool>,
        }
        made |fields, head| {
            /// `success`, `error_during_execution`, `error_max_turns`, `error_max_budget_usd`,
            /// `error_max_structured_output_retries`. The set is open.
            subtype: String = head.subtype.clone().unwrap_or_default(),
            /// Whether the turn failed. If the CLI did not say: whether the subtype is other than `success`.
            is_error: bool = fields.is_error.unwrap_or(subtype != "success"),
        }
        /// What the model said last, or the text of a failed API call. With the subtype `success` only.
        result: Option<String>,
        /// What went wrong. With the other subtypes only.
        errors: Vec<String>,
        /// How many steps the turn took, as the CLI counts them; 0 if no model was called.
        num_turns: u64,
        /// How long the turn took, in milliseconds.
        duration_ms: u64,
        /// How long it waited for the API, in milliseconds.
        duration_api_ms: u64,
        /// What the conversation has cost so far in US dollars, as the CLI reckons it: not this turn alone, and
        /// what was resumed included. It begins at 0 again when the conversation does
        /// ([`ConversationReset`](crate::message::ConversationReset)); [`UsageTracker`](crate::message::UsageTracker)
        /// adds up over that. A turn without a model call was seen to say 0 before the first real one (CLI 2.1.328).
        total_cost_usd: Option<f64>,
        /// Tokens of this turn, without its subagents.
        usage: Option<Usage>,
        /// Tokens and cost of the conversation so far, by model.
        model_usage: BTreeMap<String, ModelUsage> = "modelUsage",
        /// Tokens and cost since the last result, by model (seen with CLI 2.1.328).
        model_usage_since_last_result: BTreeMap<String, ModelUsage>,
        /// Tool calls that were not allowed in this turn.
        permission_denials: Vec<PermissionDenial>,
        /// The answer in the form that an output schema asked for.
        structured_output: Option<Value>,
        /// A call that a hook deferred: the turn ended before it ran.
        deferred_tool_use: Option<DeferredToolUse>,
        /// Why the turn ended.
        terminal_reason: Option<TerminalReason>,
        /// Why the model stopped: `end_turn`, `tool_use`, `max_tokens`, and others.
        stop_reason: Option<String>,
        /// The HTTP status of a failed API call.
        api_error_status: Option<u16>,
        /// What the API calls its error, such as `overloaded_error`.
        api_error_type: Option<String>,
        /// Why the session could not start.
        startup_failure_reason: Option<StartupFailureReason>,
        /// The configuration file that is broken, if that is why.
        invalid_config_file: Option<InvalidConfigFile>,
        /// How many more turns are waiting: above 0, more results follow. `None` if the CLI does not say, as
        /// when the session could not start.
        queued_turn_count: Option<u64>,
        /// The number of this result in the process, from 0.
        result_index: Option<u64>,
        /// The slash command that the turn consisted of, without the slash, such as `compact`; no model was
        /// asked.
        local_command: Option<String>,
        /// What set the turn off, if it was no prompt.
        origin: Option<Origin>,
        /// Why the model was asked once more, if it was, as a word.
        resume_reason: Option<String>,
        /// When the credentials expire (RFC 3339).
        credential_expires_at: Option<String>,
        /// Whether the fast mode is on.
        fast_mode_state: Option<FastModeState>,
        /// Why the fast mode cannot be used, as a word.
        fast_mode_disabled_reason: Option<String>,
        /// The subagents of the turn (seen with CLI 2.1.328).
        subagent_stats: Option<SubagentStats>,
        /// How often the turn was stopped for safety (seen with CLI 2.1.328).
        safety_stops: Option<u64>,
        /// Whether a process that was started in advance took the session.
        warm_spare_claimed: Option<bool>,
        /// From the prompt to the first token, in milliseconds.
        ttft_ms: Option<u64>,
        /// From the prompt to the first token of the stream, in milliseconds.
        ttft_stream_ms: Option<u64>,
        /// From the prompt to the first request to the API, in milliseconds.
        time_to_request_ms: Option<u64>,
        /// From the start of the process to the first request to the API, in milliseconds.
        time_to_request_from_spawn_ms: Option<u64>,
        /// When the first request was sent, in milliseconds since 1970.
        request_sent_wall_ms: Option<u64>,
        /// From the prompt to the first frame with content, in milliseconds.
        first_content_frame_ms: Option<u64>,
        /// Tokens read by the first request that came from no cache.
        first_request_input_tokens: Option<u64>,
        /// Tokens read by the first request that came from the prompt cache.
        first_request_cache_read_input_tokens: Option<u64>,
        /// The moment from which the times of this message count, in milliseconds since 1970.
        time_origin_ms: Option<f64>,
    }
}

view! {
    /// A call that a hook deferred, in a [`ResultMessage`].
    part DeferredToolUse: r#"{"id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}"#
        => r#"view.input["command"] == "ls""#
    {
        /// The call.
        id: String,
        /// The tool.
        name: String,
        /// The arguments.
        input: Value,
    }

    /// A configuration file that is broken, in a [`ResultMessage`].
    part InvalidConfigFile: r#"{"path": "/srv/.claude.json", "is_global": true, "backup_searched": false}"#
        => r#"view.is_global"#
    {
        /// The file.
        path: String,
        /// Whether it is the one of the user.
        is_global: bool,
        /// Whether a copy of it was looked for.
        backup_searched: bool,
        /// The copy.
        backup_path: Option<String>,
    }

    /// The subagents of a turn, in a [`ResultMessage`].
    part SubagentStats: r#"{"spawned": 1, "completed": 1, "by_type": {"general-purpose": 1}}"#
        => r#"view.spawned == 1 && view.by_type["general-purpose"] == 1"#
    {
        /// How many were begun.
        spawned: u64,
        /// How many of those were begun in the background.
        started_in_background: u64,
        /// How many of those were begun by subagents.
        spawned_by_subagents: u64,
        /// How deep they stood.
        max_depth: u64,
        /// How many came to their end.
        completed: u64,
        /// How many failed.
        failed: u64,
        /// How many were killed, by whom: `parent`, `user`, `system`.
        killed: BTreeMap<String, u64>,
        /// How many were not begun, by the limit: `depth_limit`, `concurrency_limit`, `budget`.
        refused: BTreeMap<String, u64>,
        /// How the model asked for them: `background`, `foreground`, `unset`.
        requested: BTreeMap<String, u64>,
        /// How many of each type.
        by_type: BTreeMap<String, u64>,
    }
}

loose!(PermissionDenial);

/// A tool call that was not allowed.
///
/// ```
/// use greenroom::Message;
///
/// let line = r#"{"type": "result", "subtype": "success", "permission_denials": [
///     {"tool_name": "Bash", "tool_use_id": "toolu_1", "tool_input": {"command": "rm x"}}]}"#;
/// let Message::Result(end) = Message::parse(line)? else { unreachable!() };
/// assert_eq!(end.permission_denials[0].tool_name, "Bash");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct PermissionDenial {
    /// The tool.
    pub tool_name: String,
    /// The id of the call.
    #[serde(default, deserialize_with = "maybe")]
    pub tool_use_id: Option<String>,
    /// The arguments; `null` if they were not sent.
    #[serde(default)]
    pub tool_input: Value,
}

impl ResultMessage {
    /// The subtypes that this library knows.
    pub const SUBTYPES: &'static [&'static str] = &[
        "success",
        "error_during_execution",
        "error_max_turns",
        "error_max_budget_usd",
        "error_max_structured_output_retries",
    ];

    /// Whether the turn ended well: the subtype is `success` and it is no error.
    pub fn is_success(&self) -> bool {
        self.subtype == "success" && !self.is_error
    }

    /// What went wrong, in words; `None` if the turn ended well.
    ///
    /// With the subtype `success` it is the `result`, otherwise the `errors`, joined by `; ` (as the official
    /// TypeScript SDK does it). If that is empty, the HTTP status or the subtype stands in.
    pub fn error_text(&self) -> Option<String> {
        if self.is_success() {
            return None;
        }
        let text = if self.subtype == "success" {
            self.result.as_deref().unwrap_or_default().trim().to_owned()
        } else {
            let errors: Vec<&str> = self.errors.iter().map(|e| e.trim()).filter(|e| !e.is_empty()).collect();
            errors.join("; ")
        };
        Some(match self.api_error_status {
            _ if !text.is_empty() => text,
            Some(status) => format!("the API answered with status {status}"),
            None if self.subtype == "success" => "the turn failed; the CLI gave no reason".to_owned(),
            None => self.subtype.clone(),
        })
    }
}
