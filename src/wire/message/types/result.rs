//! The end of a turn.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use super::origin::Origin;
use super::reason::TerminalReason;
use super::usage::{ModelUsage, Usage};
use crate::wire::message::read::raw_field;
use crate::wire::message::typed::Typed;
use crate::wire::message::view::message;
use crate::wire::objects::objects;

message! {
    /// The end of a turn (`type` `result`). Each turn ends with exactly one result.
    ///
    /// A turn fails in two ways: with a `subtype` other than `success`, or with `success` and
    /// [`is_error`](Self::is_error), which is a failed API call. [`is_success`](Self::is_success) and
    /// [`error_text`](Self::error_text) cover both.
    ///
    /// Without a `subtype`, or with an `is_error` that is no boolean, the message is
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
            /// `success`, `error_during_execution`, `error_max_turns`, `error_max_budget_usd`,
            /// `error_max_structured_output_retries`; an open set.
            subtype: String,
            /// The turn failed. `None` if the CLI does not say: see [`is_success`](Self::is_success).
            #[serde(default)]
            is_error: Option<bool>,
        }
        /// The model's last answer, or the text of a failed API call. Only with the subtype `success`.
        result: Option<String>,
        /// Error texts. Only with the other subtypes.
        errors: Vec<String>,
        /// Steps of the turn, as the CLI counts them; 0 if no model was called.
        num_turns: u64,
        duration_ms: u64,
        /// Time spent waiting for the API.
        duration_api_ms: u64,
        /// Cost of the whole conversation so far, resumed parts included, as the CLI estimates it, in US dollars.
        /// Starts at 0 again after a [`ConversationReset`](crate::message::ConversationReset);
        /// [`UsageTracker`](crate::message::UsageTracker) adds up the parts. With CLI 2.1.328, a turn without a model
        /// call reports 0 before the first model call.
        total_cost_usd: Option<f64>,
        /// Tokens of this turn, without its subagents.
        usage: Option<Usage>,
        /// Tokens and cost of the conversation so far, by model.
        model_usage: BTreeMap<String, ModelUsage> = "modelUsage",
        /// Tokens and cost since the last result, by model (seen with CLI 2.1.328); `None` if the CLI does not say.
        model_usage_since_last_result: Option<BTreeMap<String, ModelUsage>>,
        /// Tool calls of this turn that were denied.
        permission_denials: Vec<PermissionDenial>,
        /// The answer in the shape of the output schema.
        structured_output: Option<Value>,
        /// A tool call that a hook deferred. The turn ended before the call.
        deferred_tool_use: Option<DeferredToolUse>,
        terminal_reason: Option<TerminalReason>,
        /// Stop reason: `end_turn`, `tool_use`, `max_tokens`, and others.
        stop_reason: Option<String>,
        /// The HTTP status of a failed API call.
        api_error_status: Option<u16>,
        /// Why the session could not start, such as `org_pin_mismatch` or `config_file_invalid`; an open set.
        startup_failure_reason: Option<String>,
        /// The broken configuration file, if the session could not start because of it.
        invalid_config_file: Option<InvalidConfigFile>,
        /// Turns that still wait; above 0, more results follow. `None` if the CLI does not say, as when the session
        /// could not start.
        queued_turn_count: Option<u64>,
        /// Number of this result in the process, from 0.
        result_index: Option<u64>,
        /// The slash command, without the slash, if the turn was only a command such as `compact` and called no model.
        local_command: Option<String>,
        /// The cause of the turn, if it was no prompt.
        origin: Option<Origin>,
        /// Reason for asking the model again.
        resume_reason: Option<String>,
        /// RFC 3339.
        credential_expires_at: Option<String>,
        /// `off`, `on`, or `cooldown` until a used-up fast mode returns.
        fast_mode_state: Option<String>,
        /// Reason if the fast mode is unavailable.
        fast_mode_disabled_reason: Option<String>,
        /// A process that was started in advance took over the session.
        warm_spare_claimed: Option<bool>,
        /// From the prompt to the first token.
        ttft_ms: Option<u64>,
        /// From the prompt to the first token of the stream.
        ttft_stream_ms: Option<u64>,
        /// From the prompt to the first API request.
        time_to_request_ms: Option<u64>,
        /// From the start of the process to the first API request.
        time_to_request_from_spawn_ms: Option<u64>,
        /// Time of the first API request, in milliseconds since 1970.
        request_sent_wall_ms: Option<u64>,
        /// From the prompt to the first frame with content.
        first_content_frame_ms: Option<u64>,
        /// Zero point of the times above, in milliseconds since 1970.
        time_origin_ms: Option<f64>,
    }
}

objects! {
    /// A tool call that a hook deferred, in a [`ResultMessage`].
    part DeferredToolUse {
        id: String,
        name: String,
        input: Value,
    }

    /// A denied tool call, in a [`ResultMessage`].
    part PermissionDenial {
        tool_name: String,
        tool_use_id: Option<String>,
        /// The arguments; `null` if they were not sent.
        tool_input: Value,
    }

    /// A broken configuration file, in a [`ResultMessage`].
    part InvalidConfigFile {
        path: String,
        /// The file is the user's own, not the project's.
        is_global: bool,
        /// The CLI looked for a backup of the file.
        backup_searched: bool,
        backup_path: Option<String>,
    }
}

impl Typed<ResultMessage> {
    /// The structured output as JSON, if the typed view may be incomplete.
    pub(crate) fn whole_structured_output(&self) -> Option<Box<RawValue>> {
        if !self.head.abridged {
            return None;
        }
        raw_field(self.raw(), "structured_output").filter(|json| json.get() != "null")
    }
}

impl ResultMessage {
    /// The known subtypes.
    pub const SUBTYPES: &'static [&'static str] = &[
        "success",
        "error_during_execution",
        "error_max_turns",
        "error_max_budget_usd",
        "error_max_structured_output_retries",
    ];

    /// Whether the turn succeeded: the subtype is `success` and `is_error` is not true.
    pub fn is_success(&self) -> bool {
        self.subtype == "success" && self.is_error != Some(true)
    }

    /// The error text; `None` if the turn succeeded.
    ///
    /// With the subtype `success` it is `result`, otherwise `errors` joined by `; ` (as in the official TypeScript
    /// SDK). If these are empty, it names the HTTP status or the subtype.
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
