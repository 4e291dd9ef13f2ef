//! Partial messages, while the model writes them.

use std::borrow::Cow;
use std::sync::OnceLock;

use serde_json::Value;

use super::assistant::ApiMessage;
use super::content::ContentBlock;
use super::usage::Usage;
use crate::wire::message::read::{Text, field};
use crate::wire::message::typed::Typed;

pub(crate) mod parse;

/// A partial message (`type` `stream_event`): one event of the Messages API's stream. Sent only with
/// [`include_partial_messages`](crate::Options::include_partial_messages).
///
/// [`Turn::deltas`](crate::Turn::deltas) puts partial messages together.
///
/// Without an object `event` that has a string `type`, the message is [`Message::Other`](crate::Message::Other).
///
/// ```
/// use greenroom::Message;
///
/// let line = r#"{"type": "stream_event", "event": {"type": "content_block_delta", "index": 0,
///     "delta": {"type": "text_delta", "text": "Hel"}}}"#;
/// let Message::StreamEvent(piece) = Message::parse(line)? else { unreachable!() };
/// assert_eq!((piece.event_type(), piece.text_delta()), ("content_block_delta", Some("Hel")));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StreamEvent {
    event_type: Cow<'static, str>,
    /// Parsed on first use if it is a delta: most events are deltas, and not every reader looks into them.
    api_event: OnceLock<ApiEvent>,
    delta: Option<Text>,
    /// Number of the content block that the event is about, from 0.
    pub index: Option<u64>,
    /// The API's id of the message.
    pub api_message_id: Option<String>,
    /// Milliseconds to the first token. Only on the first event of a message.
    pub ttft_ms: Option<u64>,
    /// Display mode of the thinking. Only on the first event of a message.
    pub thinking_display: Option<String>,
    /// Reason for asking the model again.
    pub resume_reason: Option<String>,
}

/// An event of the Messages API's stream. [`StreamEvent::index`] is the number of its block.
///
/// ```
/// use greenroom::Message;
/// use greenroom::message::ApiEvent;
///
/// let line = r#"{"type": "stream_event", "event": {"type": "message_delta",
///     "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}}}"#;
/// let Message::StreamEvent(piece) = Message::parse(line)? else { unreachable!() };
/// let ApiEvent::MessageDelta { stop_reason, usage, .. } = piece.api_event() else { unreachable!() };
/// assert_eq!(stop_reason.as_deref(), Some("end_turn"));
/// assert_eq!(usage.as_ref().map(|usage| usage.output_tokens), Some(9));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ApiEvent {
    /// Start of a message, without content (`message_start`).
    MessageStart(Box<ApiMessage>),
    /// Start of a block, without text or arguments (`content_block_start`).
    ContentBlockStart(Box<ContentBlock>),
    /// Addition to a block (`content_block_delta`).
    ContentBlockDelta(BlockDelta),
    /// End of a block (`content_block_stop`).
    ContentBlockStop,
    /// Facts that are known at the end of a message (`message_delta`).
    #[non_exhaustive]
    MessageDelta {
        /// `end_turn`, `tool_use`, `max_tokens`, and others.
        stop_reason: Option<String>,
        /// The text at which the model stopped.
        stop_sequence: Option<String>,
        /// Tokens of the whole message.
        usage: Option<Box<Usage>>,
    },
    /// End of a message (`message_stop`).
    MessageStop,
    /// Keeps the connection open (`ping`).
    Ping,
    /// The stream failed (`error`), with the API's error.
    Error(Value),
    /// Any other event, or an event of an unexpected shape: see [`Typed::event_value`].
    Unknown,
}

/// An addition to a block.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum BlockDelta {
    /// Text (`text_delta`).
    Text(String),
    /// Reasoning (`thinking_delta`).
    Thinking(String),
    /// Part of the JSON text of the arguments (`input_json_delta`).
    InputJson(String),
    /// Proof for the API that reasoning is unchanged (`signature_delta`).
    Signature(String),
    /// Source of the text (`citations_delta`).
    Citation(Value),
    /// Any other addition, unchanged.
    Unknown(Value),
}

impl StreamEvent {
    /// The known types of events.
    pub const EVENT_TYPES: &'static [&'static str] = &[
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "ping",
        "error",
    ];

    /// The `type` of the event: `message_start`, `content_block_start`, `content_block_delta`,
    /// `content_block_stop`, `message_delta`, `message_stop`, and others.
    pub fn event_type(&self) -> &str {
        &self.event_type
    }
}

impl Typed<StreamEvent> {
    /// The API's event, parsed from the JSON on each call. `null` if the event is nested too deep or has a number out of
    /// range.
    pub fn event_value(&self) -> Value {
        field(self.raw(), "event").unwrap_or_default()
    }

    /// The API's event, typed.
    pub fn api_event(&self) -> &ApiEvent {
        self.api_event.get_or_init(|| {
            let delta = self.delta.as_ref().map(|delta| delta.read(self.raw()));
            let delta = delta.and_then(|delta| serde_json::from_str::<Option<BlockDelta>>(delta).ok());
            delta.flatten().map_or(ApiEvent::Unknown, ApiEvent::ContentBlockDelta)
        })
    }

    /// The added text, if the event adds text.
    pub fn text_delta(&self) -> Option<&str> {
        match self.api_event() {
            ApiEvent::ContentBlockDelta(BlockDelta::Text(text)) => Some(text),
            _ => None,
        }
    }
}
