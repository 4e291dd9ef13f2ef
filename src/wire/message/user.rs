//! What the model is told.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::content::{Blocks, ContentBlock, ToolResultRef, join};
use super::origin::Origin;
use super::read::{self, Head};
use super::view::{message, view};

message! {
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
    UserMessage {
        read {
            message: MessageFields,
        }
        made |fields, _head| {
            /// The blocks. Content that came as a plain string is one text block.
            content: Vec<ContentBlock> = fields.message.content.0,
        }
        /// Whether this repeats a prompt that the CLI was sent, or one of its own that it had already recorded.
        is_replay: bool = "isReplay",
        /// Whether the CLI made the message itself, such as the summary after a compaction.
        is_synthetic: bool = "isSynthetic",
        /// Who it comes from. `None` if the CLI did not say.
        origin: Option<Origin>,
        /// The subagent that is told; `None` on the main thread.
        agent_id: Option<String>,
        /// What kind of subagent it is.
        subagent_type: Option<String>,
        /// What the subagent was asked to do, in a few words.
        task_description: Option<String>,
        /// How the tool calls came to run, or not.
        tool_result_meta: Vec<ToolResultMeta>,
        /// Files that belong to a prompt that is repeated.
        file_attachments: Vec<Value>,
        /// When the CLI made the message (RFC 3339).
        timestamp: Option<String>,
    }
}

view! {
    /// How a tool call came to run, or not, in a [`UserMessage`].
    part ToolResultMeta: r#"{"id": "toolu_1", "non_execution_kind": "user-rejected"}"#
        => r#"view.non_execution_kind.as_deref() == Some("user-rejected")"#
    {
        /// The call.
        id: String,
        /// Who decided about its permission.
        permission_decision: Option<ToolPermissionDecision>,
        /// Why it did not run, as a word: `interrupted`, `user-rejected`, and others.
        non_execution_kind: Option<String>,
    }

    /// Who decided about the permission of a call, in a [`ToolResultMeta`].
    part ToolPermissionDecision: r#"{"decision": "accept", "source": "config", "reason_type": "rule"}"#
        => r#"view.decision == "accept""#
    {
        /// `accept`, `reject`, and others.
        decision: String,
        /// Who: `config`, `user`, `hook`, and others.
        source: Option<String>,
        /// What kind of reason it is, such as `rule`.
        reason_type: Option<String>,
    }
}

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
struct MessageFields {
    content: Blocks,
}
