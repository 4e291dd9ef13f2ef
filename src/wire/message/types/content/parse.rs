//! Parses content blocks.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{ContentBlock, MediaSource, ToolResultContent, WebSearchContent};
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
            _ => Self::rare(&fields, place),
        }
    }

    /// Reads the rare types of blocks.
    fn rare(fields: &BlockFields<'_>, place: Place) -> Option<Self> {
        let word = |raw: Option<&RawValue>| raw.and_then(fits::<String>);
        let value = |raw: &RawValue| serde_json::from_str::<Value>(raw.get()).ok();
        Some(match &*fields.kind {
            "redacted_thinking" => ContentBlock::RedactedThinking { data: word(fields.data)? },
            "server_tool_use" => ContentBlock::ServerToolUse {
                id: fields.id.clone()?,
                name: fields.name.clone()?,
                input: value(fields.input?)?,
            },
            "mcp_tool_use" => ContentBlock::McpToolUse {
                id: fields.id.clone()?,
                name: fields.name.clone()?,
                server_name: word(fields.server_name)?,
                input: value(fields.input?)?,
            },
            "mcp_tool_result" if place == Place::Message => ContentBlock::McpToolResult {
                tool_use_id: fields.tool_use_id.clone()?,
                content: result_content(fields.content)?,
                is_error: fields.is_error.unwrap_or_default(),
            },
            "web_search_tool_result" => ContentBlock::WebSearchToolResult {
                tool_use_id: fields.tool_use_id.clone()?,
                content: WebSearchContent::read(fields.content?)?,
            },
            "image" => ContentBlock::Image { source: MediaSource::read(fields.source?)? },
            "document" => ContentBlock::Document {
                source: MediaSource::read(fields.source?)?,
                title: word(fields.title),
                context: word(fields.context),
            },
            "search_result" if place != Place::SearchResult => ContentBlock::SearchResult {
                source: word(fields.source)?,
                title: word(fields.title)?,
                content: blocks(fields.content?, Place::SearchResult).ok()?,
            },
            "container_upload" => ContentBlock::ContainerUpload { file_id: word(fields.file_id)? },
            "tool_reference" => ContentBlock::ToolReference { tool_name: word(fields.tool_name)? },
            "compaction" => ContentBlock::Compaction { content: word(fields.content) },
            kind if kind.ends_with("_tool_result") && place == Place::Message => {
                ContentBlock::ServerToolResult {
                    kind: kind.to_owned(),
                    tool_use_id: fields.tool_use_id.clone()?,
                    content: value(fields.content?)?,
                }
            }
            _ => return None,
        })
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

/// The place of a block. A tool result inside of a tool result, or a search result inside of a search result, is not
/// parsed, so that no input makes the parser recurse without end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Message,
    ToolResult,
    SearchResult,
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
    // BlockFields of rare blocks stay raw, so that other blocks do not pay for them.
    #[serde(borrow)]
    citations: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    server_name: Option<&'a RawValue>,
    #[serde(borrow)]
    source: Option<&'a RawValue>,
    #[serde(borrow)]
    title: Option<&'a RawValue>,
    #[serde(borrow)]
    context: Option<&'a RawValue>,
    #[serde(borrow)]
    file_id: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_name: Option<&'a RawValue>,
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
