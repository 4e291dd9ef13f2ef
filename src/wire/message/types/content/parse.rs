//! Parses content blocks.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;

use super::{ContentBlock, ToolResultContent};
use crate::wire::lenient::{fits, read_object};

impl ContentBlock {
    /// # Errors
    /// The JSON has no [`Value`]: it is nested too deep, or has a number out of range.
    fn parse(raw: &RawValue, place: Place) -> serde_json::Result<Self> {
        match Self::known(raw, place) {
            Some(block) => Ok(block),
            None => serde_json::from_str(raw.get()).map(ContentBlock::Unknown),
        }
    }

    fn known(raw: &RawValue, place: Place) -> Option<Self> {
        let fields: BlockFields<'_> = read_object(raw.get()).ok()?;
        match &*fields.kind {
            "text" => Some(ContentBlock::Text {
                text: fields.text?,
                citations: fields.citations.and_then(fits).unwrap_or_default(),
            }),
            "thinking" => Some(ContentBlock::Thinking {
                thinking: fields.thinking?,
                signature: fields.signature.unwrap_or_default(),
            }),
            "tool_use" => Some(ContentBlock::ToolUse {
                id: fields.id?,
                name: fields.name?,
                input: serde_json::from_str(fields.input?.get()).ok()?,
            }),
            "tool_result" if place == Place::Message => Some(ContentBlock::ToolResult {
                tool_use_id: fields.tool_use_id?,
                content: result_content(fields.content)?,
                is_error: fields.is_error.unwrap_or_default(),
            }),
            "server_tool_use" => Some(ContentBlock::ServerToolUse {
                id: fields.id?,
                name: fields.name?,
                input: serde_json::from_str(fields.input?.get()).ok()?,
            }),
            kind if kind.ends_with("_tool_result") && place == Place::Message => {
                Some(ContentBlock::ServerToolResult {
                    kind: kind.to_owned(),
                    tool_use_id: fields.tool_use_id?,
                    content: serde_json::from_str(fields.content?.get()).ok()?,
                })
            }
            "image" => Some(ContentBlock::Image { source: fields.source.and_then(fits)? }),
            _ => None,
        }
    }
}

/// Reads the content of a tool result.
fn result_content(content: Option<&RawValue>) -> Option<ToolResultContent> {
    Some(match content {
        None => ToolResultContent::Blocks(Vec::new()),
        Some(raw) if raw.get().starts_with('"') => {
            ToolResultContent::Text(serde_json::from_str(raw.get()).ok()?)
        }
        Some(raw) => ToolResultContent::Blocks(blocks(raw, Place::ToolResult).ok()?),
    })
}

/// The place of a block. A tool result inside of a tool result is not parsed, so that no input makes the parser recurse
/// without end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Message,
    ToolResult,
}

/// The fields of all known blocks together: `RawValue` does not work in tagged enums.
#[derive(Default, Deserialize)]
#[serde(default)]
struct BlockFields<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    id: Option<String>,
    name: Option<String>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    tool_use_id: Option<String>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    is_error: Option<bool>,
    #[serde(borrow)]
    citations: Option<&'a RawValue>,
    #[serde(borrow)]
    source: Option<&'a RawValue>,
}

fn blocks(raw: &RawValue, place: Place) -> serde_json::Result<Vec<ContentBlock>> {
    let items: Vec<&RawValue> = serde_json::from_str(raw.get())?;
    items.into_iter().map(|item| ContentBlock::parse(item, place)).collect()
}

/// The `content` of a message: a list of blocks, or a string, which counts as one text block.
#[derive(Debug)]
pub(crate) struct Blocks(pub(crate) Vec<ContentBlock>);

impl<'de> Deserialize<'de> for Blocks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&'de RawValue>::deserialize(deserializer)?;
        let blocks = if raw.get().starts_with('"') {
            serde_json::from_str(raw.get())
                .map(|text| vec![ContentBlock::Text { text, citations: Vec::new() }])
        } else {
            blocks(raw, Place::Message)
        };
        blocks.map(Blocks).map_err(de::Error::custom)
    }
}

/// Reads a single block, as in the `content_block_start` of a stream.
impl<'de> Deserialize<'de> for ContentBlock {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ContentBlock::parse(<&'de RawValue>::deserialize(deserializer)?, Place::Message)
            .map_err(de::Error::custom)
    }
}
