//! Messages to the model.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::content::parse::Blocks;
use super::content::{ContentBlock, ToolResultRef, join};
use super::origin::Origin;
use crate::wire::lenient::object;
use crate::wire::message::read;
use crate::wire::message::typed::Typed;
use crate::wire::message::view::message;

message! {
    /// A message to the model (`type` `user`): above all results of its tool calls, also prompts that the CLI made
    /// itself, and, with `--replay-user-messages`, the prompts that the CLI received.
    ///
    /// Without an object `message` that has a `content`, the message is [`Message::Other`](crate::Message::Other).
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
    UserMessage {
        read {
            /// The blocks. Content that came as a plain string is one text block.
            #[serde(rename = "message", deserialize_with = "content_of_message")]
            content: Vec<ContentBlock>,
        }
        /// The message repeats a prompt that the CLI received, or a message that the CLI had already recorded.
        is_replay: bool = "isReplay",
        /// The CLI made the message itself, such as the summary after a compaction.
        is_synthetic: bool = "isSynthetic",
        /// The sender; `None` if the CLI does not say.
        origin: Option<Origin>,
        /// The subagent that receives the message; `None` on the main thread.
        agent_id: Option<String>,
        subagent_type: Option<String>,
        /// The subagent's task, in a few words.
        task_description: Option<String>,
        /// Files of a repeated prompt.
        file_attachments: Vec<Value>,
        /// RFC 3339.
        timestamp: Option<String>,
    }
}

impl UserMessage {
    /// The text blocks, joined by newlines. Empty if there are none.
    pub fn text(&self) -> String {
        join(&self.content, "\n")
    }

    /// The results of tool calls.
    pub fn tool_results(&self) -> impl Iterator<Item = ToolResultRef<'_>> {
        self.content.iter().filter_map(ContentBlock::as_tool_result)
    }
}

impl Typed<UserMessage> {
    /// The tool's own return value, before it was turned into text for the model. The shape depends on the tool; for an
    /// MCP tool it is the list of content blocks, or a string if the call failed.
    ///
    /// Parsed on each call: it may be large, and repeats the content.
    pub fn tool_use_result(&self) -> Option<Value> {
        read::field(self.raw(), "tool_use_result").filter(|result| !result.is_null())
    }
}

fn content_of_message<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<ContentBlock>, D::Error> {
    #[derive(Deserialize)]
    struct UserContent {
        content: Blocks,
    }
    object(from).map(|UserContent { content: Blocks(content) }| content)
}
