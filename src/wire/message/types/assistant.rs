//! Messages of the model.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::content::parse::Blocks;
use super::content::{ContentBlock, ToolUseRef, join};
use super::reason::ApiErrorKind;
use super::usage::Usage;
use crate::wire::lenient::object;
use crate::wire::message::view::message;

message! {
    /// Text and tool calls of the model (`type` `assistant`).
    ///
    /// The CLI sends a frame as soon as one content block is complete, so consecutive frames may belong to the same
    /// API message; they share [`ApiMessage::id`]. A failed API call also arrives here, with [`error`](Self::error) set
    /// and the reason as text, right before the turn's result.
    ///
    /// Without an object `message` that has a `content`, the message is [`Message::Other`](crate::Message::Other).
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
            /// The message of the Messages API, or its complete part.
            #[serde(deserialize_with = "object")]
            message: ApiMessage,
        }
        /// Set if the API call failed.
        error: Option<ApiErrorKind>,
        /// The HTTP status of the failed API call.
        api_error_status: Option<u16>,
        /// The API request.
        request_id: Option<String>,
        /// The subagent that wrote the message; `None` on the main thread.
        agent_id: Option<String>,
        subagent_type: Option<String>,
        /// The subagent's task, in a few words.
        task_description: Option<String>,
        /// Uuids of earlier messages that this message replaces and that should no longer be shown.
        supersedes: Vec<String>,
        /// An interrupt cut the message off.
        aborted: bool,
        /// Reason for asking the model again.
        resume_reason: Option<String>,
        /// The model continues thinking that was cut off.
        resumed_from_incomplete_thinking: bool,
        /// Display mode of the thinking.
        thinking_display: Option<String>,
        /// Fill of the context window, in the CLI's shape; [`Session::context_usage`](crate::Session::context_usage) asks for
        /// more.
        context_usage: Option<Value>,
        /// Usage of the session and its quotas, in the CLI's shape.
        usage_report: Option<Value>,
        /// RFC 3339.
        timestamp: Option<String>,
    }
}

message! {
    /// The message of the Messages API inside an [`AssistantMessage`].
    ApiMessage {
        read {
            /// The blocks of this frame, usually one.
            #[serde(deserialize_with = "content_blocks")]
            content: Vec<ContentBlock>,
        }
        /// The API's id, shared by all frames of one message.
        id: Option<String>,
        /// The model that answered; `<synthetic>` if the CLI made the message itself.
        model: Option<String>,
        /// `assistant`.
        role: Option<String>,
        /// Stop reason: `end_turn`, `tool_use`, `max_tokens`, and others. Usually `None`, because the CLI sends a frame
        /// before the API message ends.
        stop_reason: Option<String>,
        /// The text at which the model stopped.
        stop_sequence: Option<String>,
        /// Tokens so far; not final. The turn's result has the totals.
        usage: Option<Usage>,
    }
}

fn content_blocks<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<ContentBlock>, D::Error> {
    Blocks::deserialize(from).map(|Blocks(content)| content)
}

impl AssistantMessage {
    /// The text blocks, joined without a separator. Empty if there are none.
    pub fn text(&self) -> String {
        join(&self.message.content, "")
    }

    /// The tool calls.
    pub fn tool_uses(&self) -> impl Iterator<Item = ToolUseRef<'_>> {
        self.message.content.iter().filter_map(ContentBlock::as_tool_use)
    }
}
