//! One line of a transcript: as it is, and what its links and marks say.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::wire::message::read::{list, maybe, mend, or_default};

/// One line of a transcript, as JSON. What a [`SessionStore`](crate::store::SessionStore) keeps.
///
/// Two entries are equal if their JSON is, whatever the order of fields and the white space. Cloning is cheap.
///
/// ```
/// use greenroom::sessions::TranscriptEntry;
///
/// let entry: TranscriptEntry = serde_json::from_str(r#"{"type": "tag", "tag": "nightly", "uuid": "u1"}"#)?;
/// assert_eq!((entry.kind(), entry.uuid()), (Some("tag"), Some("u1")));
/// assert_eq!(entry.value()["tag"], "nightly");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone)]
pub struct TranscriptEntry {
    raw: Arc<RawValue>,
    kind: Option<String>,
    uuid: Option<String>,
}

#[derive(Deserialize)]
struct Names {
    #[serde(default, rename = "type", deserialize_with = "maybe")]
    kind: Option<String>,
    #[serde(default, deserialize_with = "maybe")]
    uuid: Option<String>,
}

impl TranscriptEntry {
    /// Reads one line.
    ///
    /// # Errors
    /// If it is not one JSON object.
    pub fn parse(line: &str) -> Result<Self, serde_json::Error> {
        Self::from_raw(serde_json::from_str::<&RawValue>(line)?.to_owned())
    }

    pub(crate) fn from_raw(raw: Box<RawValue>) -> Result<Self, serde_json::Error> {
        // Only an object has the fields of one; a list would be read as a struct, too.
        if !raw.get().starts_with('{') {
            return Err(de::Error::custom("an entry of a transcript is a JSON object"));
        }
        let Names { kind, uuid } = serde_json::from_str(&mend(raw.get()))?;
        Ok(Self { raw: raw.into(), kind, uuid })
    }

    /// The exact JSON.
    pub fn raw(&self) -> &RawValue {
        &self.raw
    }

    /// The JSON, parsed; `null` if it has no [`Value`], because it is nested too deeply.
    pub fn value(&self) -> Value {
        serde_json::from_str(&mend(self.raw.get())).unwrap_or(Value::Null)
    }

    /// The `type`: `user`, `assistant`, `system`, `attachment`, `custom-title`, `tag`, and many others.
    pub fn kind(&self) -> Option<&str> {
        self.kind.as_deref()
    }

    /// The entry's own id, which those that are a part of the conversation have. A store that meets one a second time
    /// under the same key should drop it: a batch is sent again when its first attempt failed.
    pub fn uuid(&self) -> Option<&str> {
        self.uuid.as_deref()
    }
}

impl TryFrom<Value> for TranscriptEntry {
    type Error = serde_json::Error;

    fn try_from(value: Value) -> Result<Self, serde_json::Error> {
        Self::from_raw(serde_json::value::to_raw_value(&value)?)
    }
}

impl PartialEq for TranscriptEntry {
    fn eq(&self, other: &Self) -> bool {
        self.raw.get() == other.raw.get() || self.value() == other.value()
    }
}

/// Writes the JSON exactly as it was read (with `serde_json`; another format may refuse it).
impl Serialize for TranscriptEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for TranscriptEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_raw(Box::<RawValue>::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl fmt::Debug for TranscriptEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.raw.get())
    }
}

/// What an entry says of its place in the conversation.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Link {
    #[serde(default, rename = "type", deserialize_with = "or_default")]
    pub(crate) kind: String,
    #[serde(default, deserialize_with = "maybe")]
    pub(crate) subtype: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) uuid: String,
    #[serde(default, deserialize_with = "maybe")]
    pub(crate) parent_uuid: Option<String>,
    #[serde(default, deserialize_with = "maybe")]
    pub(crate) session_id: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) is_sidechain: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) is_meta: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) is_compact_summary: bool,
    #[serde(default, deserialize_with = "maybe")]
    pub(crate) team_name: Option<String>,
    #[serde(default, deserialize_with = "maybe")]
    pub(crate) agent_id: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) timestamp: String,
    #[serde(default, rename = "sourceToolAssistantUUID", deserialize_with = "maybe")]
    pub(crate) source_tool_assistant: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) message: Said,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) compact_metadata: Compacted,
}

/// What a link needs to know of the message itself.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Said {
    #[serde(default, deserialize_with = "maybe")]
    pub(crate) id: Option<String>,
    #[serde(default, deserialize_with = "list")]
    content: Vec<Block>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Block {
    #[serde(default, rename = "type", deserialize_with = "or_default")]
    kind: String,
    #[serde(default, deserialize_with = "maybe")]
    id: Option<String>,
    #[serde(default, deserialize_with = "maybe")]
    tool_use_id: Option<String>,
}

/// What a compaction kept: it is written before the boundary, and is a part of the conversation after it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Compacted {
    #[serde(default, deserialize_with = "maybe")]
    pub(crate) preserved_messages: Option<PreservedMessages>,
    #[serde(default, deserialize_with = "maybe")]
    pub(crate) preserved_segment: Option<PreservedSegment>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PreservedMessages {
    pub(crate) anchor_uuid: String,
    pub(crate) uuids: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PreservedSegment {
    pub(crate) head_uuid: String,
    pub(crate) anchor_uuid: String,
    pub(crate) tail_uuid: String,
}

impl Link {
    /// The links of a line; `None` if it is no entry at all.
    pub(crate) fn read(line: &str) -> Option<Self> {
        serde_json::from_str(&mend(line)).ok()
    }

    /// Whether it is a part of the conversation's tree.
    pub(crate) fn is_linked(&self) -> bool {
        !self.uuid.is_empty()
            && matches!(&*self.kind, "user" | "assistant" | "progress" | "system" | "attachment")
    }

    pub(crate) fn is_said(&self) -> bool {
        matches!(&*self.kind, "user" | "assistant")
    }

    pub(crate) fn is_boundary(&self) -> bool {
        self.kind == "system" && self.subtype.as_deref() == Some("compact_boundary")
    }

    /// The id that all entries of one answer of the model share.
    pub(crate) fn response(&self) -> Option<&str> {
        self.message.id.as_deref().filter(|id| self.kind == "assistant" && !id.is_empty())
    }

    /// The tools that are called.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &str> {
        let blocks = self.message.content.iter().filter(|block| block.kind == "tool_use");
        blocks.filter_map(|block| block.id.as_deref())
    }

    /// The calls that are answered.
    pub(crate) fn answered_calls(&self) -> impl Iterator<Item = &str> {
        let blocks = self.message.content.iter().filter(|block| block.kind == "tool_result");
        blocks.filter_map(|block| block.tool_use_id.as_deref())
    }

    pub(crate) fn is_tool_result(&self) -> bool {
        self.kind == "user" && self.message.content.iter().any(|block| block.kind == "tool_result")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_an_object_and_is_kept_as_it_came() {
        let line = r#"{ "uuid":"u", "b":1.50, "type":"x" }"#;
        let entry = TranscriptEntry::parse(line).unwrap();
        assert_eq!(serde_json::to_string(&entry).unwrap(), line);
        assert_eq!(entry, TranscriptEntry::parse(r#"{"type":"x","b":1.5,"uuid":"u"}"#).unwrap());
        assert_ne!(entry, TranscriptEntry::parse(r#"{"type":"x","b":2,"uuid":"u"}"#).unwrap());
        for bad in ["[]", r#"["x","u"]"#, "null", "7", "{", ""] {
            assert!(TranscriptEntry::parse(bad).is_err(), "{bad}");
        }
        let odd = TranscriptEntry::parse(r#"{"type":7,"text":"\ud83d"}"#).unwrap();
        assert_eq!((odd.kind(), odd.value()["text"].as_str()), (None, Some("\u{fffd}")));
    }

    #[test]
    fn a_field_of_another_shape_costs_that_field_and_no_more() {
        let link = Link::read(r#"{"type":"user","uuid":"u","parentUuid":7,"isMeta":"no","message":"text"}"#);
        let link = link.unwrap();
        assert!(link.is_linked() && !link.is_meta && link.parent_uuid.is_none());
        let link = Link::read(
            r#"{"type":"assistant","uuid":"u","message":{"id":"m","content":[7,{"type":"tool_use","id":"t"}]}}"#,
        );
        assert_eq!(link.unwrap().calls().collect::<Vec<_>>(), ["t"]);
    }
}
