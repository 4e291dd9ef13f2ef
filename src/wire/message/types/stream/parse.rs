//! Reads partial messages.

use std::borrow::Cow;
use std::sync::OnceLock;

use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;

use super::{ApiEvent, BlockDelta, StreamEvent};
use crate::wire::lenient::{JsonSource, Lenient, ListRule, fits, object, or_default, read_object};
use crate::wire::message::read::{RawFields, Text, known};

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

/// The event of a partial message, which must be an object.
pub(crate) struct PieceEvent<'a>(RawEvent<'a>);

impl<'de: 'a, 'a> Deserialize<'de> for PieceEvent<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        object(from).map(PieceEvent)
    }
}

impl StreamEvent {
    /// Reads a partial message; `kept` is the JSON of the message, if the message keeps it as it was read.
    pub(crate) fn read(
        fields: &RawFields<'_, PieceEvent<'_>>,
        kept: Option<&str>,
    ) -> serde_json::Result<Self> {
        let PieceEvent(event) = fields.event.as_ref().ok_or_else(|| de::Error::missing_field("event"))?;
        let delta = event.delta.filter(|_| event.kind == "content_block_delta");
        Ok(Self {
            event_type: known(&event.kind, Self::EVENT_TYPES),
            api_event: if delta.is_some() { OnceLock::new() } else { event.typed().into() },
            delta: delta.map(|delta| Text::of(delta.get(), kept)),
            index: event.index,
            api_message_id: fields.api_message_id.and_then(fits),
            ttft_ms: fields.ttft_ms.and_then(|raw| Lenient::read(JsonSource::Raw(raw), ListRule::Fitting)),
            thinking_display: fields.thinking_display.and_then(fits),
            resume_reason: fields.resume_reason.and_then(fits),
        })
    }
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
