//! What the model is told.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::content::{Blocks, ContentBlock, ToolResultRef, join};
use super::read::{self, Head, maybe, or_default};

/// What the model is told (`type` `user`): results of its tool calls above all; also prompts that the CLI
/// made itself, and, with `--replay-user-messages`, the prompts that it was sent.
///
/// Without an object `message` that has a `content` this is [`Message::Other`](crate::Message::Other).
///
/// ```
/// use greenroom::Message;
///
/// let line = r#"{"type": "user", "tool_use_result": [{"type": "text", "text": "8"}],
///     "message": {"content": [
///         {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "8"}]}
///     ]}}"#;
/// let Message::User(told) = Message::parse(line)? else { unreachable!() };
/// let result = told.tool_results().next().unwrap();
/// assert_eq!((result.tool_use_id, &*result.content.text()), ("toolu_1", "8"));
/// assert_eq!(told.tool_use_result().unwrap()[0]["text"], "8");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UserMessage {
    pub(super) head: Head,
    raw: Box<RawValue>,
    /// The blocks. Content that came as a plain string is one text block.
    pub content: Vec<ContentBlock>,
    /// Whether this repeats a prompt that the CLI was sent, or one of its own that it had already recorded.
    pub is_replay: bool,
    /// Whether the CLI made the message itself, such as the summary after a compaction.
    pub is_synthetic: bool,
    /// Who it comes from: an object whose `kind` is `human`, `task-notification`, `channel`, `peer`, and
    /// others. A kind that is not known is not a human. `None` if the CLI did not say.
    pub origin: Option<Value>,
    /// The subagent that is told; `None` on the main thread.
    pub agent_id: Option<String>,
    /// When the CLI made the message (RFC 3339).
    pub timestamp: Option<String>,
}

super::common!(UserMessage);

impl UserMessage {
    /// The text of the message: its text blocks, joined by newlines. Empty if it has none.
    pub fn text(&self) -> String {
        join(&self.content, "\n")
    }

    /// The results of tool calls.
    pub fn tool_results(&self) -> impl Iterator<Item = ToolResultRef<'_>> {
        self.content.iter().filter_map(ContentBlock::as_tool_result)
    }

    /// What the tool itself returned, before it was put into words for the model. The shape is the tool's
    /// own; for an MCP tool it is the list of content blocks, or a string if the call failed.
    ///
    /// It is parsed on each call, since it may be large and repeats the content in other words.
    pub fn tool_use_result(&self) -> Option<Value> {
        read::field(&self.raw, "tool_use_result").filter(|result| !result.is_null())
    }
}

#[derive(Deserialize)]
pub(super) struct Fields {
    message: MessageFields,
    #[serde(default, rename = "isReplay", deserialize_with = "or_default")]
    is_replay: bool,
    #[serde(default, rename = "isSynthetic", deserialize_with = "or_default")]
    is_synthetic: bool,
    #[serde(default, deserialize_with = "maybe")]
    origin: Option<Value>,
    #[serde(default, deserialize_with = "maybe")]
    agent_id: Option<String>,
    #[serde(default, deserialize_with = "maybe")]
    timestamp: Option<String>,
}

#[derive(Deserialize)]
struct MessageFields {
    content: Blocks,
}

impl Fields {
    pub(super) fn finish(self, head: Head, raw: Box<RawValue>) -> UserMessage {
        UserMessage {
            head,
            raw,
            content: self.message.content.0,
            is_replay: self.is_replay,
            is_synthetic: self.is_synthetic,
            origin: self.origin,
            agent_id: self.agent_id,
            timestamp: self.timestamp,
        }
    }
}
