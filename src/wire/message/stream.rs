//! Messages in pieces, while the model writes them.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::read::{Head, fits, maybe, maybe_count};

/// A piece of a message that the model is still writing (`type` `stream_event`): one event of the Messages
/// API's stream. Sent only if partial messages were asked for
/// ([`include_partial_messages`](crate::Options::include_partial_messages)).
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
    delta: Option<Delta>,
    /// Which content block of the message the event is about, from 0.
    pub index: Option<u64>,
    /// The API's id of the message that is being written.
    pub api_message_id: Option<String>,
    /// How long the first token took, in milliseconds. On the first event of a message.
    pub ttft_ms: Option<u64>,
}

#[derive(Clone, Debug)]
enum Delta {
    Text(String),
    Thinking(String),
    InputJson(String),
}

super::common!(StreamEvent);

impl StreamEvent {
    /// The API's event, as JSON.
    pub fn event(&self) -> &RawValue {
        &self.event
    }

    /// The API's event, parsed on each call. `null` if it has no [`Value`]: nested too deep, or a number
    /// beyond the range of `f64`.
    pub fn event_value(&self) -> Value {
        fits(&self.event).unwrap_or_default()
    }

    /// The `type` of the event: `message_start`, `content_block_start`, `content_block_delta`,
    /// `content_block_stop`, `message_delta`, `message_stop`, and others.
    pub fn event_type(&self) -> &str {
        &self.event_type
    }

    /// The text that was added, if the event adds text.
    pub fn text_delta(&self) -> Option<&str> {
        match &self.delta {
            Some(Delta::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The reasoning that was added, if the event adds some.
    pub fn thinking_delta(&self) -> Option<&str> {
        match &self.delta {
            Some(Delta::Thinking(text)) => Some(text),
            _ => None,
        }
    }

    /// The piece that was added to the arguments of a tool call, if the event adds one: a part of a JSON
    /// text, which is complete when the block ends.
    pub fn input_json_delta(&self) -> Option<&str> {
        match &self.delta {
            Some(Delta::InputJson(text)) => Some(text),
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
}

/// The event, read and kept.
struct EventFields {
    raw: Box<RawValue>,
    kind: String,
    index: Option<u64>,
    delta: Option<Delta>,
}

impl<'de> Deserialize<'de> for EventFields {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Event {
            #[serde(rename = "type")]
            kind: String,
            #[serde(default, deserialize_with = "maybe_count")]
            index: Option<u64>,
            #[serde(default, deserialize_with = "maybe")]
            delta: Option<Delta>,
        }
        let raw = <&'de RawValue>::deserialize(deserializer)?;
        let Event { kind, index, delta } = serde_json::from_str(raw.get())
            .map_err(|error| serde::de::Error::custom(format!("event: {error}")))?;
        Ok(EventFields { raw: raw.to_owned(), kind, index, delta })
    }
}

impl<'de> Deserialize<'de> for Delta {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Fields<'a> {
            #[serde(borrow, rename = "type")]
            kind: Cow<'a, str>,
            text: Option<String>,
            thinking: Option<String>,
            partial_json: Option<String>,
        }
        let fields = Fields::deserialize(deserializer)?;
        let delta = match &*fields.kind {
            "text_delta" => fields.text.map(Delta::Text),
            "thinking_delta" => fields.thinking.map(Delta::Thinking),
            "input_json_delta" => fields.partial_json.map(Delta::InputJson),
            _ => None,
        };
        delta.ok_or_else(|| serde::de::Error::custom("not a delta that is known"))
    }
}

impl Fields {
    pub(super) fn finish(self, head: Head, raw: Box<RawValue>) -> StreamEvent {
        let EventFields { raw: event, kind: event_type, index, delta } = self.event;
        StreamEvent {
            head,
            raw,
            event,
            event_type,
            delta,
            index,
            api_message_id: self.api_message_id,
            ttft_ms: self.ttft_ms,
        }
    }
}
