//! Lines of a transcript: the exact JSON, and the fields that link it to other entries.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::wire::lenient::{by_json, or_default};
use crate::wire::message::read::mend;

/// A line of a transcript, as JSON. A [`SessionStore`](crate::store::SessionStore) keeps these.
///
/// Two entries are equal if their JSON is equal, apart from the order of fields and white space. Cloning is cheap.
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
    #[serde(default, rename = "type", deserialize_with = "or_default")]
    kind: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    uuid: Option<String>,
}

impl TranscriptEntry {
    /// Reads one line.
    ///
    /// # Errors
    /// If the line is not one JSON object.
    pub fn parse(line: &str) -> Result<Self, serde_json::Error> {
        Self::from_raw(serde_json::from_str::<&RawValue>(line)?.to_owned())
    }

    pub(crate) fn from_raw(raw: Box<RawValue>) -> Result<Self, serde_json::Error> {
        // Serde would also read a list into `Names`.
        if !raw.get().starts_with('{') {
            return Err(de::Error::custom("a transcript entry is a JSON object, and this line is not"));
        }
        let Names { kind, uuid } = serde_json::from_str(&mend(raw.get()))?;
        Ok(Self { raw: raw.into(), kind, uuid })
    }

    /// The exact JSON.
    pub fn raw(&self) -> &RawValue {
        &self.raw
    }

    /// The parsed JSON; `null` if it is nested too deeply to be parsed.
    pub fn value(&self) -> Value {
        serde_json::from_str(&mend(self.raw.get())).unwrap_or(Value::Null)
    }

    /// The `type`: `user`, `assistant`, `system`, `attachment`, `custom-title`, `tag`, and many others.
    pub fn kind(&self) -> Option<&str> {
        self.kind.as_deref()
    }

    /// The entry's own id, which every entry of the conversation has. A store should drop an entry whose uuid it
    /// already has under the same key: a batch is sent again after a failed attempt.
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

/// Writes the JSON exactly as it was read. Only `serde_json` supports this.
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

/// The fields of an entry that place it in the conversation. Named as in the CLI's transcripts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EntryLink {
    #[serde(default, rename = "type", deserialize_with = "or_default")]
    pub(crate) kind: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) subtype: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) uuid: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) parent_uuid: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) session_id: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) is_sidechain: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) is_meta: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) is_compact_summary: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) team_name: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) agent_id: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) timestamp: String,
    #[serde(default, rename = "sourceToolAssistantUUID", deserialize_with = "or_default")]
    pub(crate) source_tool_assistant: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) message: LinkedMessage,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) compact_metadata: Compacted,
}

/// The parts of a message that link calls and results.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct LinkedMessage {
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) id: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    content: Vec<LinkedBlock>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct LinkedBlock {
    #[serde(default, rename = "type", deserialize_with = "or_default")]
    kind: String,
    #[serde(default, deserialize_with = "or_default")]
    id: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    tool_use_id: Option<String>,
}

/// Messages that a compaction keeps: written before its boundary, and part of the conversation after it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Compacted {
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) preserved_messages: Option<PreservedMessages>,
    #[serde(default, deserialize_with = "or_default")]
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

by_json!(LinkedMessage, LinkedBlock, Compacted, PreservedMessages, PreservedSegment);

impl EntryLink {
    /// `None` if the line is no entry.
    pub(crate) fn read(line: &str) -> Option<Self> {
        serde_json::from_str(&mend(line)).ok()
    }

    /// Whether the entry is part of the conversation's tree.
    pub(crate) fn is_linked(&self) -> bool {
        !self.uuid.is_empty()
            && matches!(&*self.kind, "user" | "assistant" | "progress" | "system" | "attachment")
    }

    pub(crate) fn is_user_or_assistant(&self) -> bool {
        matches!(&*self.kind, "user" | "assistant")
    }

    pub(crate) fn is_boundary(&self) -> bool {
        self.kind == "system" && self.subtype.as_deref() == Some("compact_boundary")
    }

    /// The message id that all entries of one answer of the model share.
    pub(crate) fn response(&self) -> Option<&str> {
        self.message.id.as_deref().filter(|id| self.kind == "assistant" && !id.is_empty())
    }

    /// Ids of the tool calls in this entry.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &str> {
        let blocks = self.message.content.iter().filter(|block| block.kind == "tool_use");
        blocks.filter_map(|block| block.id.as_deref())
    }

    /// Ids of the tool calls whose results are in this entry.
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
    fn a_field_of_the_wrong_type_loses_only_that_field() {
        let link =
            EntryLink::read(r#"{"type":"user","uuid":"u","parentUuid":7,"isMeta":"no","message":"text"}"#);
        let link = link.unwrap();
        assert!(link.is_linked() && !link.is_meta && link.parent_uuid.is_none());
        let link = EntryLink::read(
            r#"{"type":"assistant","uuid":"u","message":{"id":"m","content":[7,{"type":"tool_use","id":"t"}]}}"#,
        );
        assert_eq!(link.unwrap().calls().collect::<Vec<_>>(), ["t"]);
    }
}
