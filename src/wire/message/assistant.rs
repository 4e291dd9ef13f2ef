//! What the model says.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::content::{Blocks, ContentBlock, ToolUseRef, join};
use super::context::{ContextUsage, UsageReport};
use super::read::{Head, maybe};
use super::reason::ApiErrorKind;
use super::usage::Usage;
use super::view::{message, view};

message! {
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
    /// use greenroom::message::ApiErrorKind;
    ///
    /// let line = r#"{"type": "assistant", "uuid": "u1", "error": "rate_limit", "api_error_status": 429,
    ///     "message": {"model": "<synthetic>", "content": [{"type": "text", "text": "API Error"}]}}"#;
    /// let Message::Assistant(said) = Message::parse(line)? else { unreachable!() };
    /// assert_eq!(said.text(), "API Error");
    /// assert_eq!((said.error.clone(), said.api_error_status), (Some(ApiErrorKind::RateLimit), Some(429)));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    AssistantMessage {
        read {
            message: MessageFields,
        }
        made |fields, _head| {
            /// The message of the Messages API, or the part of it that is complete.
            message: ApiMessage = fields.message.finish(),
        }
        /// Why the API call failed.
        error: Option<ApiErrorKind>,
        /// The HTTP status of the failed API call.
        api_error_status: Option<u16>,
        /// What the API calls its error, such as `overloaded_error`.
        api_error_type: Option<String>,
        /// Whether the CLI made the message to tell of a failed API call.
        is_api_error_message: bool,
        /// The id of the API request.
        request_id: Option<String>,
        /// The subagent that speaks; `None` on the main thread.
        agent_id: Option<String>,
        /// What kind of subagent it is.
        subagent_type: Option<String>,
        /// What the subagent was asked to do, in a few words.
        task_description: Option<String>,
        /// Uuids of earlier messages that this one replaces: they should no longer be shown. See
        /// [`remove_superseded`](crate::message::remove_superseded).
        supersedes: Vec<String>,
        /// Whether the message was cut off by an interrupt.
        aborted: bool,
        /// Why the model was asked once more, if it was, as a word.
        resume_reason: Option<String>,
        /// Whether the model goes on with thinking that was cut off.
        resumed_from_incomplete_thinking: bool,
        /// For people: what the tools are called.
        tool_use_meta: Vec<ToolUseMeta>,
        /// How long the model thought, in milliseconds.
        thinking_duration_ms: Option<u64>,
        /// How thinking is to be shown, as a word.
        thinking_display: Option<String>,
        /// How full the context is.
        context_usage: Option<ContextUsage>,
        /// What the session used so far.
        usage_report: Option<UsageReport>,
        /// When the CLI made the message (RFC 3339).
        timestamp: Option<String>,
    }
}

view! {
    /// What a tool is called for people, in an [`AssistantMessage`].
    part ToolUseMeta: r#"{"id": "toolu_1", "display_name": "Add", "server_display_name": "calc", "tool_name": "add"}"#
        => r#"view.display_name.as_deref() == Some("Add")"#
    {
        /// The call.
        id: String,
        /// The tool's title.
        display_name: Option<String>,
        /// The server's title.
        server_display_name: Option<String>,
        /// The tool's name at its server.
        tool_name: Option<String>,
    }
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
    /// The text at which it stopped, if that is why.
    pub stop_sequence: Option<String>,
    /// Tokens so far; not final. The turn's result has the totals.
    pub usage: Option<Usage>,
}

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
    stop_sequence: Option<String>,
    #[serde(default, deserialize_with = "maybe")]
    usage: Option<Usage>,
}

impl MessageFields {
    fn finish(self) -> ApiMessage {
        let MessageFields { id, model, role, content: Blocks(content), stop_reason, stop_sequence, usage } =
            self;
        ApiMessage { id, model, role, content, stop_reason, stop_sequence, usage }
    }
}

/// As in a stream: the beginning of a message.
impl<'de> Deserialize<'de> for ApiMessage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        MessageFields::deserialize(deserializer).map(MessageFields::finish)
    }
}
