//! Messages in pieces, while the model writes them.

use std::borrow::Cow;
use std::sync::OnceLock;

use serde::Deserialize;
use serde::de::{self, MapAccess};
use serde_json::Value;
use serde_json::value::RawValue;

use super::assistant::ApiMessage;
use super::content::ContentBlock;
use super::read::{Head, Rest, Span, count_of, fits, known, maybe, maybe_count, mend};
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
    /// `None` if it stands in `raw` as it is.
    event: Option<Box<RawValue>>,
    event_type: Cow<'static, str>,
    api_event: OnceLock<ApiEvent>,
    /// Where the `delta` stands of which the event is made when it is asked for.
    delta: Option<Span>,
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
        #[derive(Deserialize)]
        struct Event<'a> {
            #[serde(borrow)]
            event: &'a RawValue,
        }
        match &self.event {
            Some(event) => event,
            None => {
                serde_json::from_str::<Event<'_>>(self.raw.get()).map_or(RawValue::NULL, |body| body.event)
            }
        }
    }

    /// The API's event, parsed on each call. `null` if it has no [`Value`]: nested too deep, or a number
    /// beyond the range of `f64`.
    pub fn event_value(&self) -> Value {
        fits(self.event()).unwrap_or_default()
    }

    /// The API's event, typed.
    pub fn api_event(&self) -> &ApiEvent {
        // Most are deltas, and not everybody who hears of one looks into it.
        self.api_event.get_or_init(|| {
            let delta = self.delta.map(|delta| delta.read(&self.raw));
            let delta = delta.and_then(|delta| serde_json::from_str::<Option<BlockDelta>>(delta).ok());
            delta.flatten().map_or(ApiEvent::Unknown, ApiEvent::ContentBlockDelta)
        })
    }

    /// The `type` of the event: `message_start`, `content_block_start`, `content_block_delta`,
    /// `content_block_stop`, `message_delta`, `message_stop`, and others.
    pub fn event_type(&self) -> &str {
        &self.event_type
    }

    #[cfg(test)]
    pub(crate) fn is_read_in_one_pass(&self) -> bool {
        self.event.is_none()
    }

    /// The text that was added, if the event adds text.
    pub fn text_delta(&self) -> Option<&str> {
        match self.api_event() {
            ApiEvent::ContentBlockDelta(BlockDelta::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The reasoning that was added, if the event adds some.
    pub fn thinking_delta(&self) -> Option<&str> {
        match self.api_event() {
            ApiEvent::ContentBlockDelta(BlockDelta::Thinking(text)) => Some(text),
            _ => None,
        }
    }

    /// The piece that was added to the arguments of a tool call, if the event adds one: a part of a JSON
    /// text, which is complete when the block ends.
    pub fn input_json_delta(&self) -> Option<&str> {
        match self.api_event() {
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

/// The event, what is in it raw.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
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

impl Event<'_> {
    fn typed(&self) -> ApiEvent {
        let event = match &*self.kind {
            "content_block_delta" => self.delta.and_then(fits).map(ApiEvent::ContentBlockDelta),
            "message_start" => self.message.and_then(fits).map(ApiEvent::MessageStart),
            "content_block_start" => self.content_block.and_then(fits).map(ApiEvent::ContentBlockStart),
            "content_block_stop" => Some(ApiEvent::ContentBlockStop),
            "message_delta" => {
                let Stop { stop_reason, stop_sequence } = self.delta.and_then(fits).unwrap_or_default();
                Some(ApiEvent::MessageDelta { stop_reason, stop_sequence, usage: self.usage.and_then(fits) })
            }
            "message_stop" => Some(ApiEvent::MessageStop),
            "ping" => Some(ApiEvent::Ping),
            "error" => self.error.and_then(fits).map(ApiEvent::Error),
            _ => None,
        };
        event.unwrap_or(ApiEvent::Unknown)
    }
}

/// The event, read and kept.
struct EventFields {
    raw: Box<RawValue>,
    kind: Cow<'static, str>,
    index: Option<u64>,
    event: ApiEvent,
}

impl<'de> Deserialize<'de> for EventFields {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&'de RawValue>::deserialize(deserializer)?;
        let event: Event<'_> =
            serde_json::from_str(raw.get()).map_err(|error| de::Error::custom(format!("event: {error}")))?;
        Ok(EventFields {
            raw: raw.to_owned(),
            kind: known(&event.kind, StreamEvent::EVENT_TYPES),
            index: event.index,
            event: event.typed(),
        })
    }
}

/// What a piece has besides its head, raw.
#[derive(Default)]
struct Piece<'a> {
    event: Option<Event<'a>>,
    api_message_id: Option<&'a RawValue>,
    ttft_ms: Option<&'a RawValue>,
    thinking_display: Option<&'a RawValue>,
    resume_reason: Option<&'a RawValue>,
}

impl<'de> Rest<'de> for Piece<'de> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        let slot = match name {
            "event" if self.event.is_none() => {
                self.event = Some(map.next_value()?);
                return Ok(());
            }
            "api_message_id" => &mut self.api_message_id,
            "ttft_ms" => &mut self.ttft_ms,
            "thinking_display" => &mut self.thinking_display,
            "resume_reason" => &mut self.resume_reason,
            "event" => return Err(de::Error::duplicate_field("event")),
            _ => return map.next_value::<de::IgnoredAny>().map(drop),
        };
        match slot.replace(map.next_value()?) {
            None => Ok(()),
            Some(_) => Err(de::Error::custom("a field that stands twice")),
        }
    }
}

/// Reads a piece that is as the CLI writes them in one pass: there are more of them than of all other messages. One that
/// is otherwise in any way is given back, for [`Fields`].
pub(super) fn quick(raw: Box<RawValue>) -> Result<StreamEvent, Box<RawValue>> {
    let text = raw.get();
    if !text.starts_with(r#"{"type":"stream_event","#) || matches!(mend(text), Cow::Owned(_)) {
        return Err(raw);
    }
    let mut piece = Piece::default();
    let (head, event) = match Head::read(text, true, &mut piece) {
        Ok(head) if head.kind == "stream_event" => match piece.event.take() {
            Some(event) => (head, event),
            None => return Err(raw),
        },
        Ok(_) | Err(_) => return Err(raw),
    };
    let delta = event.delta.filter(|_| event.kind == "content_block_delta");
    let delta = delta.and_then(|delta| Span::of(delta.get(), text));
    Ok(StreamEvent {
        head,
        event: None,
        event_type: known(&event.kind, StreamEvent::EVENT_TYPES),
        api_event: if delta.is_some() { OnceLock::new() } else { event.typed().into() },
        delta,
        index: event.index,
        api_message_id: piece.api_message_id.and_then(fits),
        ttft_ms: piece.ttft_ms.and_then(count_of),
        thinking_display: piece.thinking_display.and_then(fits),
        resume_reason: piece.resume_reason.and_then(fits),
        raw,
    })
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
            event: Some(event),
            event_type,
            api_event: api_event.into(),
            delta: None,
            index,
            api_message_id: self.api_message_id,
            ttft_ms: self.ttft_ms,
            thinking_display: self.thinking_display,
            resume_reason: self.resume_reason,
        }
    }
}
