//! The end of a turn.

use std::collections::BTreeMap;

use serde::{Deserialize, de};
use serde_json::Value;
use serde_json::value::RawValue;

use super::read::{Head, count, list, map, maybe, maybe_count};
use super::usage::{ModelUsage, Usage};

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
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ResultMessage {
    pub(super) head: Head,
    raw: Box<RawValue>,
    /// `success`, `error_during_execution`, `error_max_turns`, `error_max_budget_usd`,
    /// `error_max_structured_output_retries`. The set is open.
    pub subtype: String,
    /// Whether the turn failed. If the CLI did not say: whether the subtype is other than `success`.
    pub is_error: bool,
    /// What the model said last, or the text of a failed API call. With the subtype `success` only.
    pub result: Option<String>,
    /// What went wrong. With the other subtypes only.
    pub errors: Vec<String>,
    /// How many steps the turn took, as the CLI counts them; 0 if no model was called.
    pub num_turns: u64,
    /// How long the turn took, in milliseconds.
    pub duration_ms: u64,
    /// How long it waited for the API, in milliseconds.
    pub duration_api_ms: u64,
    /// What the conversation has cost so far in US dollars, as the CLI reckons it: not this turn alone, and
    /// what was resumed included.
    pub total_cost_usd: Option<f64>,
    /// Tokens of this turn, without its subagents.
    pub usage: Option<Usage>,
    /// Tokens and cost of the conversation so far, by model.
    pub model_usage: BTreeMap<String, ModelUsage>,
    /// Tool calls that were not allowed in this turn.
    pub permission_denials: Vec<PermissionDenial>,
    /// The answer in the form that an output schema asked for.
    pub structured_output: Option<Value>,
    /// Why the turn ended: `completed`, `max_turns`, `aborted_streaming`, `aborted_tools`, `api_error`,
    /// `prompt_too_long`, and others. The set is open.
    pub terminal_reason: Option<String>,
    /// Why the model stopped: `end_turn`, `tool_use`, `max_tokens`, and others.
    pub stop_reason: Option<String>,
    /// The HTTP status of a failed API call.
    pub api_error_status: Option<u16>,
    /// Why the session could not start, as a word (`cli_version_too_old`, `bypass_root`, and others).
    pub startup_failure_reason: Option<String>,
    /// How many more turns are waiting: above 0, more results follow. `None` if the CLI does not say, as
    /// when the session could not start.
    pub queued_turn_count: Option<u64>,
    /// The number of this result in the process, from 0.
    pub result_index: Option<u64>,
    /// The slash command that the turn consisted of, without the slash, such as `compact`; no model was
    /// asked.
    pub local_command: Option<String>,
    /// What set the turn off, if it was no prompt: an object with a `kind`, such as `task-notification`.
    pub origin: Option<Value>,
}

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

super::common!(ResultMessage);

impl ResultMessage {
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

/// Reads the typed part.
pub(super) fn read(subtype: Option<&str>, text: &str) -> serde_json::Result<Fields> {
    match subtype {
        Some(_) => serde_json::from_str(text),
        None => Err(de::Error::missing_field("subtype")),
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Fields {
    is_error: Option<bool>,
    #[serde(deserialize_with = "maybe")]
    result: Option<String>,
    #[serde(deserialize_with = "list")]
    errors: Vec<String>,
    #[serde(deserialize_with = "count")]
    num_turns: u64,
    #[serde(deserialize_with = "count")]
    duration_ms: u64,
    #[serde(deserialize_with = "count")]
    duration_api_ms: u64,
    #[serde(deserialize_with = "maybe")]
    total_cost_usd: Option<f64>,
    #[serde(deserialize_with = "maybe")]
    usage: Option<Usage>,
    #[serde(rename = "modelUsage", deserialize_with = "map")]
    model_usage: BTreeMap<String, ModelUsage>,
    #[serde(deserialize_with = "list")]
    permission_denials: Vec<PermissionDenial>,
    #[serde(deserialize_with = "maybe")]
    structured_output: Option<Value>,
    #[serde(deserialize_with = "maybe")]
    terminal_reason: Option<String>,
    #[serde(deserialize_with = "maybe")]
    stop_reason: Option<String>,
    #[serde(deserialize_with = "maybe")]
    api_error_status: Option<u16>,
    #[serde(deserialize_with = "maybe")]
    startup_failure_reason: Option<String>,
    #[serde(deserialize_with = "maybe_count")]
    queued_turn_count: Option<u64>,
    #[serde(deserialize_with = "maybe_count")]
    result_index: Option<u64>,
    #[serde(deserialize_with = "maybe")]
    local_command: Option<String>,
    #[serde(deserialize_with = "maybe")]
    origin: Option<Value>,
}

impl Fields {
    pub(super) fn finish(self, head: Head, raw: Box<RawValue>) -> ResultMessage {
        let subtype = head.subtype.clone().unwrap_or_default();
        ResultMessage {
            head,
            raw,
            is_error: self.is_error.unwrap_or(subtype != "success"),
            subtype,
            result: self.result,
            errors: self.errors,
            num_turns: self.num_turns,
            duration_ms: self.duration_ms,
            duration_api_ms: self.duration_api_ms,
            total_cost_usd: self.total_cost_usd,
            usage: self.usage,
            model_usage: self.model_usage,
            permission_denials: self.permission_denials,
            structured_output: self.structured_output,
            terminal_reason: self.terminal_reason,
            stop_reason: self.stop_reason,
            api_error_status: self.api_error_status,
            startup_failure_reason: self.startup_failure_reason,
            queued_turn_count: self.queued_turn_count,
            result_index: self.result_index,
            local_command: self.local_command,
            origin: self.origin,
        }
    }
}
