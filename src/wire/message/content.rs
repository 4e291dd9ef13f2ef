//! The blocks that assistant and user messages are made of.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;
use serde_json::value::RawValue;

/// One piece of a message: text, thinking, a tool call, a tool's result, or something newer.
///
/// The names are those of the Messages API. A block of another type (images, documents, `redacted_thinking`,
/// server tools), or one whose fields are not as expected, is [`Unknown`](ContentBlock::Unknown). Fields that
/// have no place here, such as citations, are in the [`raw`](crate::Message::raw) JSON of the message.
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
    },
    /// The model's reasoning (`thinking`).
    #[non_exhaustive]
    Thinking {
        /// The reasoning, or a summary of it; may be empty.
        thinking: String,
        /// What proves to the API that the text was not changed; empty if there was none.
        signature: String,
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
    /// A list of blocks: what MCP tools give. Empty if the result had no content. Images and the like are
    /// [`ContentBlock::Unknown`].
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
    /// The block's `type`; empty if it has none.
    pub fn kind(&self) -> &str {
        match self {
            ContentBlock::Text { .. } => "text",
            ContentBlock::Thinking { .. } => "thinking",
            ContentBlock::ToolUse { .. } => "tool_use",
            ContentBlock::ToolResult { .. } => "tool_result",
            ContentBlock::Unknown(value) => value.get("type").and_then(Value::as_str).unwrap_or_default(),
        }
    }

    /// The text of a text block.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            ContentBlock::Text { text } => Some(text),
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
            "text" => Some(ContentBlock::Text { text: fields.text? }),
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
                content: match fields.content {
                    None => ToolResultContent::Blocks(Vec::new()),
                    Some(raw) if raw.get().starts_with('"') => {
                        ToolResultContent::Text(serde_json::from_str(raw.get()).ok()?)
                    }
                    Some(raw) => ToolResultContent::Blocks(blocks(raw, Place::ToolResult).ok()?),
                },
                is_error: fields.is_error.unwrap_or_default(),
            }),
            _ => None,
        }
    }
}

/// Where a block stands. A tool result holds no tool result: one that seems to is not looked into, so that no
/// input makes the parser recurse without end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Message,
    ToolResult,
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
            serde_json::from_str(raw.get()).map(|text| vec![ContentBlock::Text { text }])
        } else {
            blocks(raw, Place::Message)
        };
        blocks.map(Blocks).map_err(de::Error::custom)
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
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn parse(content: &Value) -> Vec<ContentBlock> {
        serde_json::from_str::<Blocks>(&content.to_string()).unwrap().0
    }

    #[test]
    fn each_known_block_is_typed_whatever_the_order_of_its_keys() {
        assert_eq!(parse(&json!("say \"hi\"\n")), [ContentBlock::Text { text: "say \"hi\"\n".into() }]);
        let content = r#"[
            {"text": "a\tb", "citations": [], "type": "text"},
            {"thinking": "hm", "type": "thinking", "signature": "s"},
            {"input": {"a": [1, {"type": "x"}]}, "name": "Bash", "id": "t1", "type": "tool_use", "new": {}},
            {"tool_use_id": "toolu_1", "type": "tool_result", "content": [{"type": "text", "text": "8"}]},
            {"type": "tool_result", "content": "no", "is_error": true, "tool_use_id": "toolu_2"},
            {"type": "tool_result", "tool_use_id": "toolu_3"}
        ]"#;
        let Blocks(blocks) = serde_json::from_str(content).unwrap();
        let wanted = [
            ContentBlock::Text { text: "a\tb".into() },
            ContentBlock::Thinking { thinking: "hm".into(), signature: "s".into() },
            ContentBlock::ToolUse {
                id: "t1".into(),
                name: "Bash".into(),
                input: json!({"a": [1, {"type": "x"}]}),
            },
            ContentBlock::ToolResult {
                tool_use_id: "toolu_1".into(),
                content: ToolResultContent::Blocks(vec![ContentBlock::Text { text: "8".into() }]),
                is_error: false,
            },
            ContentBlock::ToolResult {
                tool_use_id: "toolu_2".into(),
                content: ToolResultContent::Text("no".into()),
                is_error: true,
            },
            ContentBlock::ToolResult {
                tool_use_id: "toolu_3".into(),
                content: ToolResultContent::Blocks(vec![]),
                is_error: false,
            },
        ];
        assert_eq!(blocks, wanted);
    }

    #[test]
    fn what_is_unknown_or_does_not_fit_is_kept_whole() {
        let content = json!([
            {"type": "image", "source": {"type": "base64", "data": "AA=="}},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "hologram", "text": {"deep": [1]}},
            {"type": "text", "text": 7},
            {"type": "text"},
            {"type": "tool_use", "id": "toolu_1", "name": "Bash"},
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": 4},
            {"no": "type"},
            {"type": 3},
            "bare",
            null
        ]);
        let blocks = parse(&content);
        let kept: Vec<Value> = blocks
            .iter()
            .map(|block| match block {
                ContentBlock::Unknown(value) => value.clone(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(Value::Array(kept), content);
        assert_eq!(blocks[2].kind(), "hologram");
        assert_eq!(blocks[7].kind(), "");
    }

    #[test]
    fn results_within_results_do_not_recurse() {
        let mut content = json!("x");
        for _ in 0..60 {
            content = json!([{"type": "tool_result", "tool_use_id": "t", "content": content}]);
        }
        let blocks = parse(&content);
        let inner = blocks[0].as_tool_result().unwrap().content;
        let ToolResultContent::Blocks(inner) = inner else { panic!("{inner:?}") };
        assert!(matches!(inner[..], [ContentBlock::Unknown(_)]));

        let mut deep = String::from("\"x\"");
        for _ in 0..5000 {
            deep = format!(r#"[{{"type":"tool_result","tool_use_id":"t","content":{deep}}}]"#);
        }
        assert!(serde_json::from_str::<Box<RawValue>>(&deep).is_ok());
        assert!(serde_json::from_str::<Blocks>(&deep).is_err());
    }

    #[test]
    fn the_text_of_a_result_leaves_out_what_is_no_text() {
        let blocks = parse(&json!([{"type": "tool_result", "tool_use_id": "t", "content": [
            {"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": "two"}
        ]}]));
        assert_eq!(blocks[0].as_tool_result().unwrap().content.text(), "one\ntwo");
    }
}
