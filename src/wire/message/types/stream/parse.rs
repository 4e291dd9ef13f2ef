//! Reads partial messages: most of them in one pass.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::OnceLock;

use serde::Deserialize;
use serde::de::{self, MapAccess};
use serde_json::value::RawValue;

use super::{ApiEvent, BlockDelta, StreamEvent};
use crate::wire::lenient::{JsonSource, Lenient, ListRule, Object, fits, or_default, read_object};
use crate::wire::message::read::{MessageHead, Rest, Span, known, mend};

#[derive(Deserialize)]
pub(crate) struct StreamFields {
    event: EventFields,
    #[serde(default, deserialize_with = "or_default")]
    api_message_id: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    ttft_ms: Option<u64>,
    #[serde(default, deserialize_with = "or_default")]
    thinking_display: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    resume_reason: Option<String>,
}

/// The API's event, with raw parts.
#[derive(Deserialize)]
struct RawEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(default, deserialize_with = "or_default")]
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

impl RawEvent<'_> {
    fn typed(&self) -> ApiEvent {
        let event = match &*self.kind {
            "content_block_delta" => self.delta.and_then(fits).map(ApiEvent::ContentBlockDelta),
            "message_start" => self.message.and_then(fits).map(ApiEvent::MessageStart),
            "content_block_start" => self.content_block.and_then(fits).map(ApiEvent::ContentBlockStart),
            "content_block_stop" => Some(ApiEvent::ContentBlockStop),
            "message_delta" => {
                let MessageEnd { stop_reason, stop_sequence } = self.delta.and_then(fits).unwrap_or_default();
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

/// The API's event, read and with its JSON.
struct EventFields {
    raw: Box<RawValue>,
    kind: Cow<'static, str>,
    index: Option<u64>,
    event: ApiEvent,
}

impl<'de> Deserialize<'de> for EventFields {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&'de RawValue>::deserialize(deserializer)?;
        let event: RawEvent<'_> =
            read_object(raw.get()).map_err(|error| de::Error::custom(format!("event: {error}")))?;
        Ok(EventFields {
            raw: raw.to_owned(),
            kind: known(&event.kind, StreamEvent::EVENT_TYPES),
            index: event.index,
            event: event.typed(),
        })
    }
}

/// The fields of a partial message besides its head, raw.
#[derive(Default)]
struct RawPiece<'a> {
    event: Option<RawEvent<'a>>,
    api_message_id: Option<&'a RawValue>,
    ttft_ms: Option<&'a RawValue>,
    thinking_display: Option<&'a RawValue>,
    resume_reason: Option<&'a RawValue>,
}

impl<'de> Rest<'de> for RawPiece<'de> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        let slot = match name {
            "event" if self.event.is_none() => {
                self.event = Some(map.next_value_seed(Object(PhantomData))?);
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
            Some(_) => Err(de::Error::custom("duplicate field")),
        }
    }
}

/// Reads a partial message in one pass, because most messages are partial. A message that differs in any way from what
/// the CLI usually writes is given back, for [`StreamFields`].
pub(crate) fn quick(raw: Box<RawValue>) -> Result<StreamEvent, Box<RawValue>> {
    let text = raw.get();
    if !text.starts_with(r#"{"type":"stream_event","#) || matches!(mend(text), Cow::Owned(_)) {
        return Err(raw);
    }
    let mut piece = RawPiece::default();
    let (head, event) = match MessageHead::read(text, true, &mut piece) {
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
        ttft_ms: piece.ttft_ms.and_then(|raw| Lenient::read(JsonSource::Raw(raw), ListRule::Fitting)),
        thinking_display: piece.thinking_display.and_then(fits),
        resume_reason: piece.resume_reason.and_then(fits),
        raw,
    })
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MessageEnd {
    #[serde(deserialize_with = "or_default")]
    stop_reason: Option<String>,
    #[serde(deserialize_with = "or_default")]
    stop_sequence: Option<String>,
}

impl<'de> Deserialize<'de> for BlockDelta {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct DeltaFields<'a> {
            #[serde(borrow, rename = "type")]
            kind: Cow<'a, str>,
            text: Option<String>,
            thinking: Option<String>,
            partial_json: Option<String>,
            signature: Option<String>,
            #[serde(borrow)]
            citation: Option<&'a RawValue>,
        }
        let raw = <&'de RawValue>::deserialize(deserializer)?;
        let known = || {
            let fields: DeltaFields<'_> = read_object(raw.get()).ok()?;
            match &*fields.kind {
                "text_delta" => fields.text.map(BlockDelta::Text),
                "thinking_delta" => fields.thinking.map(BlockDelta::Thinking),
                "input_json_delta" => fields.partial_json.map(BlockDelta::InputJson),
                "signature_delta" => fields.signature.map(BlockDelta::Signature),
                "citations_delta" => fields.citation.and_then(fits).map(BlockDelta::Citation),
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

impl StreamFields {
    pub(crate) fn finish(self, head: MessageHead, raw: Box<RawValue>) -> StreamEvent {
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
