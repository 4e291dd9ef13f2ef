//! Messages in pieces, while the model writes them.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::assistant::ApiMessage;
use super::content::ContentBlock;
use super::read::{Head, fits, maybe, maybe_count};
use super::usage::Usage;

/// A piece of a message that the model is still writing (`type` `stream_event`): one event of the Messages
/// API's stream. Sent only if partial messages were asked for
/// ([`include_partial_messages`](crate::Options::include_partial_messages)).
///
/// [`Turn::deltas`](crate::Turn::deltas) puts the pieces together.
///
/// Without an object `event` that has a string `type` this is [`Message::Other`](crate::Message::Other).
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
    pub(super) head: Head,
    raw: Box<RawValue>,
    event: Box<RawValue>,
    event_type: String,
    api_event: ApiEvent,
    /// Which content block of the message the event is about, from 0.
    pub index: Option<u64>,
    /// The API's id of the message that is being written.
    pub api_message_id: Option<String>,
    /// How long the first token took, in milliseconds. On the first event of a message.
    pub ttft_ms: Option<u64>,
    /// How thinking is to be shown, as a word. On the first event of a message.
    pub thinking_display: Option<String>,
    /// Why the model was asked once more, if it was, as a word.
    pub resume_reason: Option<String>,
}

/// An event of the Messages API's stream, typed. Which block it is about is [`StreamEvent::index`].
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
    /// A message begins (`message_start`). Its content is still empty.
    MessageStart(Box<ApiMessage>),
    /// A block begins (`content_block_start`). Its text and its arguments are still empty.
    ContentBlockStart(Box<ContentBlock>),
    /// Something is added to a block (`content_block_delta`).
    ContentBlockDelta(BlockDelta),
    /// A block is complete (`content_block_stop`).
    ContentBlockStop,
    /// What is known at the end of a message (`message_delta`).
    #[non_exhaustive]
    MessageDelta {
        /// Why the model stopped.
        stop_reason: Option<String>,
        /// The text at which it stopped, if that is why.
        stop_sequence: Option<String>,
        /// Tokens of the whole message.
        usage: Option<Box<Usage>>,
    },
    /// A message is complete (`message_stop`).
    MessageStop,
    /// Nothing, so that the connection stays open (`ping`).
    Ping,
    /// The stream has failed (`error`): the API's error as it came.
    Error(Value),
    /// Any other event, and one that does not have its shape: see [`StreamEvent::event`].
    Unknown,
}

/// What is added to a block.
///
/// ```
/// use greenroom::message::BlockDelta;
///
/// let delta: BlockDelta = serde_json::from_str(r#"{"type": "text_delta", "text": "Hel"}"#)?;
/// assert_eq!(delta, BlockDelta::Text("Hel".into()));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum BlockDelta {
    /// Text (`text_delta`).
    Text(String),
    /// Reasoning (`thinking_delta`).
    Thinking(String),
    /// A part of the JSON text of the arguments (`input_json_delta`).
    InputJson(String),
    /// What proves to the API that reasoning was not changed (`signature_delta`).
    Signature(String),
    /// What a text is taken from (`citations_delta`).
    Citation(Value),
    /// A part of a summary (`compaction_delta`).
    Compaction(String),
    /// Anything else, as it came.
    Unknown(Value),
}

super::common!(StreamEvent);

impl StreamEvent {
    /// The types of events that this library knows.
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

    /// The API's event, as JSON.
    pub fn event(&self) -> &RawValue {
        &self.event
    }

    /// The API's event, parsed on each call. `null` if it has no [`Value`]: nested too deep, or a number
    /// beyond the range of `f64`.
    pub fn event_value(&self) -> Value {
        fits(&self.event).unwrap_or_default()
    }

    /// The API's event, typed.
    pub fn api_event(&self) -> &ApiEvent {
        &self.api_event
    }

    /// The `type` of the event: `message_start`, `content_block_start`, `content_block_delta`,
    /// `content_block_stop`, `message_delta`, `message_stop`, and others.
    pub fn event_type(&self) -> &str {
        &self.event_type
    }

    /// The text that was added, if the event adds text.
    pub fn text_delta(&self) -> Option<&str> {
        match &self.api_event {
            ApiEvent::ContentBlockDelta(BlockDelta::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The reasoning that was added, if the event adds some.
    pub fn thinking_delta(&self) -> Option<&str> {
        match &self.api_event {
            ApiEvent::ContentBlockDelta(BlockDelta::Thinking(text)) => Some(text),
            _ => None,
        }
    }

    /// The piece that was added to the arguments of a tool call, if the event adds one: a part of a JSON
    /// text, which is complete when the block ends.
    pub fn input_json_delta(&self) -> Option<&str> {
        match &self.api_event {
            ApiEvent::ContentBlockDelta(BlockDelta::InputJson(text)) => Some(text),
            _ => None,
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Fields {
    event: EventFields,
    #[serde(default, deserialize_with = "maybe")]
    api_message_id: Option<String>,
    #[serde(default, deserialize_with = "maybe_count")]
    ttft_ms: Option<u64>,
    #[serde(default, deserialize_with = "maybe")]
    thinking_display: Option<String>,
    #[serde(default, deserialize_with = "maybe")]
    resume_reason: Option<String>,
}

/// The event, read and kept.
struct EventFields {
    raw: Box<RawValue>,
    kind: String,
    index: Option<u64>,
    event: ApiEvent,
}

impl<'de> Deserialize<'de> for EventFields {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Event<'a> {
            #[serde(rename = "type")]
            kind: String,
            #[serde(default, deserialize_with = "maybe_count")]
            index: Option<u64>,
            #[serde(borrow)]
            delta: Option<&'a RawValue>,
            #[serde(borrow)]
            message: Option<&'a RawValue>,
            #[serde(borrow)]
            content_block: Option<&'a RawValue>,
            #[serde(borrow)]
            usage: Option<&'a RawValue>,
            #[serde(borrow)]
            error: Option<&'a RawValue>,
        }
        let raw = <&'de RawValue>::deserialize(deserializer)?;
        let Event { kind, index, delta, message, content_block, usage, error } =
            serde_json::from_str(raw.get())
                .map_err(|error| serde::de::Error::custom(format!("event: {error}")))?;
        let event = match kind.as_str() {
            "content_block_delta" => delta.and_then(fits).map(ApiEvent::ContentBlockDelta),
            "message_start" => message.and_then(fits).map(ApiEvent::MessageStart),
            "content_block_start" => content_block.and_then(fits).map(ApiEvent::ContentBlockStart),
            "content_block_stop" => Some(ApiEvent::ContentBlockStop),
            "message_delta" => {
                let Stop { stop_reason, stop_sequence } = delta.and_then(fits).unwrap_or_default();
                Some(ApiEvent::MessageDelta { stop_reason, stop_sequence, usage: usage.and_then(fits) })
            }
            "message_stop" => Some(ApiEvent::MessageStop),
            "ping" => Some(ApiEvent::Ping),
            "error" => error.and_then(fits).map(ApiEvent::Error),
            _ => None,
        };
        Ok(EventFields { raw: raw.to_owned(), kind, index, event: event.unwrap_or(ApiEvent::Unknown) })
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Stop {
    #[serde(deserialize_with = "maybe")]
    stop_reason: Option<String>,
    #[serde(deserialize_with = "maybe")]
    stop_sequence: Option<String>,
}

impl<'de> Deserialize<'de> for BlockDelta {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Fields<'a> {
            #[serde(borrow, rename = "type")]
            kind: Cow<'a, str>,
            text: Option<String>,
            thinking: Option<String>,
            partial_json: Option<String>,
            signature: Option<String>,
            #[serde(borrow)]
            citation: Option<&'a RawValue>,
            #[serde(borrow)]
            content: Option<&'a RawValue>,
        }
        let raw = <&'de RawValue>::deserialize(deserializer)?;
        let known = || {
            let fields: Fields<'_> = fits(raw)?;
            match &*fields.kind {
                "text_delta" => fields.text.map(BlockDelta::Text),
                "thinking_delta" => fields.thinking.map(BlockDelta::Thinking),
                "input_json_delta" => fields.partial_json.map(BlockDelta::InputJson),
                "signature_delta" => fields.signature.map(BlockDelta::Signature),
                "citations_delta" => fields.citation.and_then(fits).map(BlockDelta::Citation),
                "compaction_delta" => fields.content.and_then(fits).map(BlockDelta::Compaction),
                _ => None,
            }
        };
        match known() {
            Some(delta) => Ok(delta),
            None => {
                serde_json::from_str(raw.get()).map(BlockDelta::Unknown).map_err(serde::de::Error::custom)
            }
        }
    }
}

impl Fields {
    pub(super) fn finish(self, head: Head, raw: Box<RawValue>) -> StreamEvent {
        let EventFields { raw: event, kind: event_type, index, event: api_event } = self.event;
        StreamEvent {
            head,
            raw,
            event,
            event_type,
            api_event,
            index,
            api_message_id: self.api_message_id,
            ttft_ms: self.ttft_ms,
            thinking_display: self.thinking_display,
            resume_reason: self.resume_reason,
        }
    }
}
