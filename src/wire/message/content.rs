//! The blocks that assistant and user messages are made of.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;
use serde_json::value::RawValue;

use super::read::fits;

mod source;

pub use source::{MediaSource, WebSearchContent, WebSearchResult};

/// One piece of a message: text, thinking, a tool call, a tool's result, a picture, or something newer.
///
/// The names are those of the Messages API. A block of another type, or one whose fields are not as expected, is
/// [`Unknown`](ContentBlock::Unknown). Fields that have no place here, such as `cache_control`, are in the
/// [`raw`](crate::Message::raw) JSON of the message.
///
/// ```
/// use greenroom::{ContentBlock, Message};
///
/// let line = r#"{"type": "assistant", "message": {"content": [
///     {"type": "text", "text": "I will add them."},
///     {"type": "tool_use", "id": "toolu_1", "name": "mcp__calc__add", "input": {"a": 5, "b": 3}}
/// ]}}"#;
/// for block in Message::parse(line)?.content() {
///     match block {
///         ContentBlock::Text { text, .. } => assert_eq!(text, "I will add them."),
///         ContentBlock::ToolUse { name, input, .. } => {
///             assert_eq!(name, "mcp__calc__add");
///             assert_eq!(input["a"], 5);
///         }
///         _ => {}
///     }
/// }
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ContentBlock {
    /// Text (`text`).
    #[non_exhaustive]
    Text {
        /// What is said.
        text: String,
        /// What it is taken from, in the API's shape.
        citations: Vec<Value>,
    },
    /// The model's reasoning (`thinking`).
    #[non_exhaustive]
    Thinking {
        /// The reasoning, or a summary of it; may be empty.
        thinking: String,
        /// What proves to the API that the text was not changed; empty if there was none.
        signature: String,
    },
    /// Reasoning that is not shown (`redacted_thinking`).
    #[non_exhaustive]
    RedactedThinking {
        /// The reasoning, encrypted.
        data: String,
    },
    /// The model calls a tool (`tool_use`).
    #[non_exhaustive]
    ToolUse {
        /// The call's id, `toolu_…`; the result names it.
        id: String,
        /// The tool. One of an MCP server is called `mcp__SERVER__TOOL`.
        name: String,
        /// The arguments, an object.
        input: Value,
    },
    /// What a tool call came to (`tool_result`). Stands in user messages.
    #[non_exhaustive]
    ToolResult {
        /// The id of the call.
        tool_use_id: String,
        /// What the model reads.
        content: ToolResultContent,
        /// Whether the call failed, or was refused.
        is_error: bool,
    },
    /// The model calls a tool on the API's side, such as `web_search` (`server_tool_use`).
    #[non_exhaustive]
    ServerToolUse {
        /// The call's id, `srvtoolu_…`; the result names it.
        id: String,
        /// The tool.
        name: String,
        /// The arguments.
        input: Value,
    },
    /// What a web search on the API's side came to (`web_search_tool_result`).
    #[non_exhaustive]
    WebSearchToolResult {
        /// The id of the call.
        tool_use_id: String,
        /// What was found, or why nothing could be.
        content: WebSearchContent,
    },
    /// What another tool on the API's side came to: `web_fetch_tool_result`, `code_execution_tool_result`,
    /// `bash_code_execution_tool_result`, `text_editor_code_execution_tool_result`, `tool_search_tool_result`,
    /// `advisor_tool_result`, and any other type that ends with `_tool_result`.
    #[non_exhaustive]
    ServerToolResult {
        /// The type of the block.
        kind: String,
        /// The id of the call.
        tool_use_id: String,
        /// What it came to, in the tool's own shape.
        content: Value,
    },
    /// The model calls a tool of an MCP server that the API talks to (`mcp_tool_use`).
    #[non_exhaustive]
    McpToolUse {
        /// The call's id; the result names it.
        id: String,
        /// The tool.
        name: String,
        /// The server.
        server_name: String,
        /// The arguments.
        input: Value,
    },
    /// What the call of such a tool came to (`mcp_tool_result`).
    #[non_exhaustive]
    McpToolResult {
        /// The id of the call.
        tool_use_id: String,
        /// What the model reads.
        content: ToolResultContent,
        /// Whether the call failed.
        is_error: bool,
    },
    /// A picture (`image`).
    #[non_exhaustive]
    Image {
        /// Where it is.
        source: MediaSource,
    },
    /// A document, such as a PDF (`document`).
    #[non_exhaustive]
    Document {
        /// Where it is.
        source: MediaSource,
        /// Its title.
        title: Option<String>,
        /// What the model is told about it.
        context: Option<String>,
    },
    /// Something that was found, and may be cited (`search_result`).
    #[non_exhaustive]
    SearchResult {
        /// Where it was found.
        source: String,
        /// Its title.
        title: String,
        /// What it says: text blocks.
        content: Vec<ContentBlock>,
    },
    /// A file for the container in which code is run (`container_upload`).
    #[non_exhaustive]
    ContainerUpload {
        /// The file.
        file_id: String,
    },
    /// A tool that was found by a search, and is there from now on (`tool_reference`).
    #[non_exhaustive]
    ToolReference {
        /// The tool.
        tool_name: String,
    },
    /// What the conversation before came to (`compaction`).
    #[non_exhaustive]
    Compaction {
        /// The summary; `None` if there is none.
        content: Option<String>,
    },
    /// Any other block, as it came.
    Unknown(Value),
}

/// What a tool result holds: text, or blocks.
///
/// ```
/// use greenroom::{Message, ToolResultContent};
///
/// let line = r#"{"type": "user", "message": {"content": [
///     {"type": "tool_result", "tool_use_id": "toolu_1", "content": "8"}
/// ]}}"#;
/// let message = Message::parse(line)?;
/// let result = message.tool_results().next().unwrap();
/// assert_eq!(*result.content, ToolResultContent::Text("8".into()));
/// assert_eq!(result.content.text(), "8");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ToolResultContent {
    /// Plain text: what built-in tools give.
    Text(String),
    /// A list of blocks: what MCP tools give. Empty if the result had no content.
    Blocks(Vec<ContentBlock>),
}

impl ToolResultContent {
    /// The text; that of several blocks is joined by newlines, and blocks of another kind are left out.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            ToolResultContent::Text(text) => Cow::Borrowed(text),
            ToolResultContent::Blocks(blocks) => Cow::Owned(join(blocks, "\n")),
        }
    }
}

/// A tool call in a message, borrowed from its block.
///
/// ```
/// use greenroom::Message;
///
/// let line = r#"{"type": "assistant", "message": {"content": [
///     {"type": "tool_use", "id": "toolu_1", "name": "mcp__calc__add", "input": {"a": 5, "b": 3}}
/// ]}}"#;
/// let message = Message::parse(line)?;
/// let call = message.tool_uses().next().unwrap();
/// assert_eq!((call.id, call.name), ("toolu_1", "mcp__calc__add"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolUseRef<'a> {
    /// The call's id, `toolu_…`.
    pub id: &'a str,
    /// The tool. One of an MCP server is called `mcp__SERVER__TOOL`.
    pub name: &'a str,
    /// The arguments, an object.
    pub input: &'a Value,
}

/// A tool's result in a message, borrowed from its block.
///
/// ```
/// use greenroom::Message;
///
/// let line = r#"{"type": "user", "message": {"content": [
///     {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no such file", "is_error": true}
/// ]}}"#;
/// let message = Message::parse(line)?;
/// let result = message.tool_results().next().unwrap();
/// assert!(result.is_error && result.tool_use_id == "toolu_1");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolResultRef<'a> {
    /// The id of the call.
    pub tool_use_id: &'a str,
    /// What the model reads.
    pub content: &'a ToolResultContent,
    /// Whether the call failed, or was refused.
    pub is_error: bool,
}

impl ContentBlock {
    /// The types that this library knows, the `server` results that share a variant among them.
    pub const KINDS: &'static [&'static str] = &[
        "text",
        "thinking",
        "redacted_thinking",
        "tool_use",
        "tool_result",
        "server_tool_use",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "advisor_tool_result",
        "mcp_tool_use",
        "mcp_tool_result",
        "image",
        "document",
        "search_result",
        "container_upload",
        "tool_reference",
        "compaction",
    ];

    /// The block's `type`; empty if it has none.
    pub fn kind(&self) -> &str {
        match self {
            ContentBlock::Text { .. } => "text",
            ContentBlock::Thinking { .. } => "thinking",
            ContentBlock::ToolUse { .. } => "tool_use",
            ContentBlock::ToolResult { .. } => "tool_result",
            ContentBlock::RedactedThinking { .. } => "redacted_thinking",
            ContentBlock::ServerToolUse { .. } => "server_tool_use",
            ContentBlock::WebSearchToolResult { .. } => "web_search_tool_result",
            ContentBlock::ServerToolResult { kind, .. } => kind,
            ContentBlock::McpToolUse { .. } => "mcp_tool_use",
            ContentBlock::McpToolResult { .. } => "mcp_tool_result",
            ContentBlock::Image { .. } => "image",
            ContentBlock::Document { .. } => "document",
            ContentBlock::SearchResult { .. } => "search_result",
            ContentBlock::ContainerUpload { .. } => "container_upload",
            ContentBlock::ToolReference { .. } => "tool_reference",
            ContentBlock::Compaction { .. } => "compaction",
            ContentBlock::Unknown(value) => value.get("type").and_then(Value::as_str).unwrap_or_default(),
        }
    }

    /// The text of a text block.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            ContentBlock::Text { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The reasoning of a thinking block.
    pub fn as_thinking(&self) -> Option<&str> {
        match self {
            ContentBlock::Thinking { thinking, .. } => Some(thinking),
            _ => None,
        }
    }

    /// The call, if the block is one.
    pub fn as_tool_use(&self) -> Option<ToolUseRef<'_>> {
        match self {
            ContentBlock::ToolUse { id, name, input } => Some(ToolUseRef { id, name, input }),
            _ => None,
        }
    }

    /// The result, if the block is one.
    pub fn as_tool_result(&self) -> Option<ToolResultRef<'_>> {
        match self {
            ContentBlock::ToolResult { tool_use_id, content, is_error } => {
                Some(ToolResultRef { tool_use_id, content, is_error: *is_error })
            }
            _ => None,
        }
    }

    /// Fails only where the JSON has no `Value`: nested too deep, or a number out of range.
    fn parse(raw: &RawValue, place: Place) -> serde_json::Result<Self> {
        match Self::known(raw, place) {
            Some(block) => Ok(block),
            None => serde_json::from_str(raw.get()).map(ContentBlock::Unknown),
        }
    }

    fn known(raw: &RawValue, place: Place) -> Option<Self> {
        let fields: Fields<'_> = serde_json::from_str(raw.get()).ok()?;
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

    /// The blocks that are not met every day.
    fn rare(fields: &Fields<'_>, place: Place) -> Option<Self> {
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

/// What a tool result holds.
fn result_content(content: Option<&RawValue>) -> Option<ToolResultContent> {
    Some(match content {
        None => ToolResultContent::Blocks(Vec::new()),
        Some(raw) if raw.get().starts_with('"') => {
            ToolResultContent::Text(serde_json::from_str(raw.get()).ok()?)
        }
        Some(raw) => ToolResultContent::Blocks(blocks(raw, Place::ToolResult).ok()?),
    })
}

/// Where a block stands. A tool result holds no tool result, and a search result no search result: one that seems to
/// is not looked into, so that no input makes the parser recurse without end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Message,
    ToolResult,
    SearchResult,
}

/// The fields of all known blocks together, since `RawValue` does not work in tagged enums.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Fields<'a> {
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
    // What only rare blocks have is not looked at in others.
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

/// The `content` of a message: a list of blocks, or a string, which is the same as one text block.
#[derive(Debug)]
pub(super) struct Blocks(pub(super) Vec<ContentBlock>);

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

/// A single block, as in the start of one in a stream.
impl<'de> Deserialize<'de> for ContentBlock {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ContentBlock::parse(<&'de RawValue>::deserialize(deserializer)?, Place::Message)
            .map_err(de::Error::custom)
    }
}

/// The text of the text blocks, joined.
pub(super) fn join(blocks: &[ContentBlock], separator: &str) -> String {
    let mut joined = String::new();
    for (index, text) in blocks.iter().filter_map(ContentBlock::as_text).enumerate() {
        if index > 0 {
            joined.push_str(separator);
        }
        joined.push_str(text);
    }
    joined
}

#[cfg(test)]
mod tests;
