//! The fields of a transcript's entry that link it to other entries.

use serde::Deserialize;

use crate::wire::lenient::{by_json, or_default};
use crate::wire::message::read::mend;

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
