//! Content blocks of assistant and user messages.

use std::borrow::Cow;

use serde_json::Value;

pub(crate) mod parse;

/// A content block of a message: text, thinking, a tool call, a tool's result, an image, or another type.
///
/// The names are those of the Messages API. A block of another type, such as `redacted_thinking` or `document`, or of
/// an unexpected shape is [`Unknown`](ContentBlock::Unknown). Fields that are not declared here, such as `cache_control`, are in
/// the [`raw`](crate::Message::raw) JSON of the message.
///
/// ```
/// use greenroom::message::ContentBlock;
/// use greenroom::Message;
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
#[allow(missing_docs, reason = "fields are named as on the wire")]
#[non_exhaustive]
pub enum ContentBlock {
    /// Text (`text`).
    #[non_exhaustive]
    Text {
        text: String,
        /// Sources of the text, in the API's shape.
        citations: Vec<Value>,
    },
    /// The model's reasoning (`thinking`).
    #[non_exhaustive]
    Thinking {
        /// The reasoning, or a summary of it; may be empty.
        thinking: String,
        /// Proves to the API that the text is unchanged; may be empty.
        signature: String,
    },
    /// The model calls a tool (`tool_use`).
    #[non_exhaustive]
    ToolUse {
        /// `toolu_…`; the result names this id.
        id: String,
        /// The tool. Tools of MCP servers are named `mcp__SERVER__TOOL`.
        name: String,
        /// The arguments, an object.
        input: Value,
    },
    /// The result of a tool call (`tool_result`), in a user message.
    #[non_exhaustive]
    ToolResult {
        tool_use_id: String,
        content: ToolResultContent,
        /// The call failed or was denied.
        is_error: bool,
    },
    /// The model calls a tool of the API, such as `web_search` (`server_tool_use`).
    #[non_exhaustive]
    ServerToolUse {
        /// `srvtoolu_…`; the result names this id.
        id: String,
        name: String,
        input: Value,
    },
    /// The result of a tool of the API: `web_search_tool_result`, `web_fetch_tool_result`,
    /// `code_execution_tool_result`, `advisor_tool_result`, and any other type that ends with `_tool_result`.
    #[non_exhaustive]
    ServerToolResult {
        /// The type of the block.
        kind: String,
        tool_use_id: String,
        /// The result in the tool's own shape.
        content: Value,
    },
    /// An image (`image`).
    #[non_exhaustive]
    Image {
        /// The source in the API's shape: its `type` is `base64`, `url` or `file`.
        source: Value,
    },
    /// Any other block, unchanged.
    Unknown(Value),
}

/// The content of a tool result: text, or blocks.
///
/// ```
/// use greenroom::message::ToolResultContent;
/// use greenroom::Message;
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
    /// Plain text, as built-in tools return.
    Text(String),
    /// A list of blocks, as MCP tools return. Empty if the result had no content.
    Blocks(Vec<ContentBlock>),
}

impl ToolResultContent {
    /// The text. Several text blocks are joined by newlines; other blocks are left out.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            ToolResultContent::Text(text) => Cow::Borrowed(text),
            ToolResultContent::Blocks(blocks) => Cow::Owned(join(blocks, "\n")),
        }
    }
}

/// A tool call in a message, borrowed from [`ContentBlock::ToolUse`]: see
/// [`Message::tool_uses`](crate::Message::tool_uses).
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "fields are those of the block")]
#[non_exhaustive]
pub struct ToolUseRef<'a> {
    pub id: &'a str,
    pub name: &'a str,
    pub input: &'a Value,
}

/// A tool's result in a message, borrowed from [`ContentBlock::ToolResult`]: see
/// [`Message::tool_results`](crate::Message::tool_results).
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "fields are those of the block")]
#[non_exhaustive]
pub struct ToolResultRef<'a> {
    pub tool_use_id: &'a str,
    pub content: &'a ToolResultContent,
    pub is_error: bool,
}

impl ContentBlock {
    /// The block's `type`; empty if it has none.
    pub fn kind(&self) -> &str {
        match self {
            ContentBlock::Text { .. } => "text",
            ContentBlock::Thinking { .. } => "thinking",
            ContentBlock::ToolUse { .. } => "tool_use",
            ContentBlock::ToolResult { .. } => "tool_result",
            ContentBlock::ServerToolUse { .. } => "server_tool_use",
            ContentBlock::ServerToolResult { kind, .. } => kind,
            ContentBlock::Image { .. } => "image",
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

    /// The tool call of a `tool_use` block.
    pub fn as_tool_use(&self) -> Option<ToolUseRef<'_>> {
        match self {
            ContentBlock::ToolUse { id, name, input } => Some(ToolUseRef { id, name, input }),
            _ => None,
        }
    }

    /// The result of a `tool_result` block.
    pub fn as_tool_result(&self) -> Option<ToolResultRef<'_>> {
        match self {
            ContentBlock::ToolResult { tool_use_id, content, is_error } => {
                Some(ToolResultRef { tool_use_id, content, is_error: *is_error })
            }
            _ => None,
        }
    }
}

/// The text of the text blocks, joined.
pub(crate) fn join(blocks: &[ContentBlock], separator: &str) -> String {
    let mut joined = String::new();
    for (index, text) in blocks.iter().filter_map(ContentBlock::as_text).enumerate() {
        if index > 0 {
            joined.push_str(separator);
        }
        joined.push_str(text);
    }
    joined
}
