//! What the model says.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::content::{Blocks, ContentBlock, ToolUseRef, join};
use super::read::{Head, list, maybe, or_default};
use super::usage::Usage;

/// What the model says and which tools it calls (`type` `assistant`).
///
/// The CLI sends a frame as soon as one content block is complete, so several frames in a row may belong to
/// the same API message; they share [`ApiMessage::id`]. A failed API call arrives here as well, with
/// [`error`](Self::error) set and the reason as text, just before the turn's result.
///
/// Without an object `message` that has a `content` this is [`Message::Other`](crate::Message::Other).
///
/// ```
/// use greenroom::Message;
///
/// let line = r#"{"type": "assistant", "uuid": "u1", "error": "rate_limit", "api_error_status": 429,
///     "message": {"model": "<synthetic>", "content": [{"type": "text", "text": "API Error"}]}}"#;
/// let Message::Assistant(said) = Message::parse(line)? else { unreachable!() };
/// assert_eq!(said.text(), "API Error");
/// assert_eq!((said.error.as_deref(), said.api_error_status), (Some("rate_limit"), Some(429)));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AssistantMessage {
    pub(super) head: Head,
    raw: Box<RawValue>,
    /// The message of the Messages API, or the part of it that is complete.
    pub message: ApiMessage,
    /// Why the API call failed: `authentication_failed`, `billing_error`, `rate_limit`, `overloaded`,
    /// `invalid_request`, `model_not_found`, `server_error`, `max_output_tokens`, `unknown`, and others. The
    /// set is open.
    pub error: Option<String>,
    /// The HTTP status of the failed API call.
    pub api_error_status: Option<u16>,
    /// The id of the API request.
    pub request_id: Option<String>,
    /// The subagent that speaks; `None` on the main thread.
    pub agent_id: Option<String>,
    /// What kind of subagent it is.
    pub subagent_type: Option<String>,
    /// What the subagent was asked to do, in a few words.
    pub task_description: Option<String>,
    /// Ids of earlier messages that this one replaces: they should no longer be shown.
    pub supersedes: Vec<String>,
    /// Whether the message was cut off by an interrupt.
    pub aborted: bool,
    /// When the CLI made the message (RFC 3339).
    pub timestamp: Option<String>,
}

/// The message of the Messages API that an [`AssistantMessage`] carries.
///
/// ```
/// use greenroom::Message;
///
/// let line = r#"{"type": "assistant", "message": {"id": "msg_1", "role": "assistant", "stop_reason": null,
///     "usage": {"input_tokens": 10, "output_tokens": 1}, "content": "Hi."}}"#;
/// let Message::Assistant(said) = Message::parse(line)? else { unreachable!() };
/// assert_eq!(said.message.id.as_deref(), Some("msg_1"));
/// assert_eq!(said.message.usage.as_ref().map(|usage| usage.input_tokens), Some(10));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ApiMessage {
    /// The API's id, shared by all frames of one message.
    pub id: Option<String>,
    /// The model that answered; `<synthetic>` if the CLI made the message itself.
    pub model: Option<String>,
    /// `assistant`.
    pub role: Option<String>,
    /// The blocks of this frame, usually one.
    pub content: Vec<ContentBlock>,
    /// Why the model stopped: `end_turn`, `tool_use`, `max_tokens`, and others. `None` as long as the API has
    /// not said so, which is the usual case: frames are sent before the message ends.
    pub stop_reason: Option<String>,
    /// Tokens so far; not final. The turn's result has the totals.
    pub usage: Option<Usage>,
}

super::common!(AssistantMessage);

impl AssistantMessage {
    /// The text of the message: its text blocks, joined without a separator. Empty if it has none.
    pub fn text(&self) -> String {
        join(&self.message.content, "")
    }

    /// The tools that the model calls.
    pub fn tool_uses(&self) -> impl Iterator<Item = ToolUseRef<'_>> {
        self.message.content.iter().filter_map(ContentBlock::as_tool_use)
    }
}

#[derive(Deserialize)]
pub(super) struct Fields {
    message: MessageFields,
    #[serde(default, deserialize_with = "maybe")]
    error: Option<String>,
    #[serde(default, deserialize_with = "maybe")]
    api_error_status: Option<u16>,
    #[serde(default, deserialize_with = "maybe")]
    request_id: Option<String>,
    #[serde(default, deserialize_with = "maybe")]
    agent_id: Option<String>,
    #[serde(default, deserialize_with = "maybe")]
    subagent_type: Option<String>,
    #[serde(default, deserialize_with = "maybe")]
    task_description: Option<String>,
    #[serde(default, deserialize_with = "list")]
    supersedes: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    aborted: bool,
    #[serde(default, deserialize_with = "maybe")]
    timestamp: Option<String>,
}

#[derive(Deserialize)]
struct MessageFields {
    #[serde(default, deserialize_with = "maybe")]
    id: Option<String>,
    #[serde(default, deserialize_with = "maybe")]
    model: Option<String>,
    #[serde(default, deserialize_with = "maybe")]
    role: Option<String>,
    content: Blocks,
    #[serde(default, deserialize_with = "maybe")]
    stop_reason: Option<String>,
    #[serde(default, deserialize_with = "maybe")]
    usage: Option<Usage>,
}

impl Fields {
    pub(super) fn finish(self, head: Head, raw: Box<RawValue>) -> AssistantMessage {
        let MessageFields { id, model, role, content: Blocks(content), stop_reason, usage } = self.message;
        AssistantMessage {
            head,
            raw,
            message: ApiMessage { id, model, role, content, stop_reason, usage },
            error: self.error,
            api_error_status: self.api_error_status,
            request_id: self.request_id,
            agent_id: self.agent_id,
            subagent_type: self.subagent_type,
            task_description: self.task_description,
            supersedes: self.supersedes,
            aborted: self.aborted,
            timestamp: self.timestamp,
        }
    }
}
