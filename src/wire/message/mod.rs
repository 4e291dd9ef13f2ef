//! What the conversation consists of: the messages that the CLI writes, typed, with the raw JSON beside them.
//!
//! - [`content`]: the blocks inside assistant and user messages
//! - [`assistant`], [`user`], [`result`], [`system`], [`stream`], [`other`]: one type of message each
//! - [`usage`]: tokens and cost
//! - [`read`]: how fields are read, leniently

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;
use serde_json::value::RawValue;

mod assistant;
mod content;
mod other;
pub(crate) mod read;
mod result;
mod stream;
mod system;
#[cfg(test)]
mod tests;
mod usage;
mod user;

pub use assistant::{ApiMessage, AssistantMessage};
pub use content::{ContentBlock, ToolResultContent, ToolResultRef, ToolUseRef};
pub use other::OtherMessage;
pub use result::{PermissionDenial, ResultMessage};
pub use stream::StreamEvent;
pub use system::{
    InitMcpServer, InitMessage, InitPlugin, SessionState, SystemMessage, TaskEvent, TaskStatus,
};
pub use usage::{ModelUsage, Usage};
pub use user::UserMessage;

use read::{Head, mend};

/// A message of the conversation, as the CLI wrote it.
///
/// Nothing is lost: [`raw`](Message::raw) is the exact JSON that arrived, whatever the typed view makes of
/// it, and serialising a message writes that JSON again. What is newer than this library survives: a `type`
/// that is not known is [`Other`](Message::Other), a `subtype` or an enum value is a string or has an `Other`
/// variant, a content block is [`ContentBlock::Unknown`]. A field that does not have the expected shape
/// counts as absent; only if it is one without which the typed view makes no sense (each type says which) is
/// the message `Other`.
///
/// Cloning is cheap: the clones share what they hold.
///
/// ```
/// use greenroom::Message;
///
/// let line = r#"{"type": "assistant", "session_id": "s1", "parent_tool_use_id": null, "new_field": 1,
///     "message": {"model": "m", "content": [{"type": "text", "text": "Hello."}]}}"#;
/// let message = Message::parse(line)?;
///
/// if let Message::Assistant(said) = &message {
///     assert_eq!(said.text(), "Hello.");
///     assert_eq!(said.message.model.as_deref(), Some("m"));
/// }
/// assert_eq!(message.field("new_field"), Some(1.into()));
/// assert_eq!(message.raw().get(), line);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Message {
    /// Something about the session (`type` `system`), told apart by its subtype.
    System(Arc<SystemMessage>),
    /// What the model says and which tools it calls.
    Assistant(Arc<AssistantMessage>),
    /// What the model is told: tool results, and prompts that the CLI echoes or makes itself.
    User(Arc<UserMessage>),
    /// The end of a turn.
    Result(Arc<ResultMessage>),
    /// A piece of a message that the model is still writing.
    StreamEvent(Arc<StreamEvent>),
    /// Any other type, and a message of a known type that does not have its shape.
    Other(Arc<OtherMessage>),
}

macro_rules! each {
    ($self:expr, $message:ident => $value:expr) => {
        match $self {
            Message::System($message) => $value,
            Message::Assistant($message) => $value,
            Message::User($message) => $value,
            Message::Result($message) => $value,
            Message::StreamEvent($message) => $value,
            Message::Other($message) => $value,
        }
    };
}

impl Message {
    /// Reads one line of the CLI's output. White space around the object does not matter.
    ///
    /// A control frame is no message, but it has a `type` too and becomes [`Message::Other`].
    ///
    /// # Errors
    /// If the line is not one JSON object with a string `type`.
    pub fn parse(line: &str) -> Result<Message, serde_json::Error> {
        Self::from_raw(serde_json::from_str::<&RawValue>(line)?.to_owned())
    }

    fn from_raw(raw: Box<RawValue>) -> Result<Message, serde_json::Error> {
        let text = mend(raw.get());
        let head: Head = serde_json::from_str(&text)?;
        let problem = match head.kind.as_str() {
            "assistant" => match serde_json::from_str::<assistant::Fields>(&text) {
                Ok(fields) => return Ok(Message::Assistant(Arc::new(fields.finish(head, raw)))),
                Err(problem) => Some(problem),
            },
            "user" => match serde_json::from_str::<user::Fields>(&text) {
                Ok(fields) => return Ok(Message::User(Arc::new(fields.finish(head, raw)))),
                Err(problem) => Some(problem),
            },
            "stream_event" => match serde_json::from_str::<stream::Fields>(&text) {
                Ok(fields) => return Ok(Message::StreamEvent(Arc::new(fields.finish(head, raw)))),
                Err(problem) => Some(problem),
            },
            "result" => match result::read(head.subtype.as_deref(), &text) {
                Ok(fields) => return Ok(Message::Result(Arc::new(fields.finish(head, raw)))),
                Err(problem) => Some(problem),
            },
            "system" => match system::read(head.subtype.as_deref(), &text) {
                Ok(fields) => return Ok(Message::System(Arc::new(fields.finish(head, raw)))),
                Err(problem) => Some(problem),
            },
            _ => None,
        };
        Ok(Message::Other(Arc::new(OtherMessage::new(head, raw, problem))))
    }

    /// The exact JSON of the message as it was received.
    pub fn raw(&self) -> &RawValue {
        each!(self, message => message.raw())
    }

    /// The raw JSON, parsed.
    ///
    /// An object in every case but one: `null` if the JSON has no [`Value`], because it is nested deeper than
    /// 127 levels or has a number beyond the range of `f64`. Half of a surrogate pair is read as U+FFFD.
    pub fn value(&self) -> Value {
        serde_json::from_str(&mend(self.raw().get())).unwrap_or(Value::Null)
    }

    /// One field of the message, parsed; the rest of the raw JSON is skipped. `None` if there is no such
    /// field.
    ///
    /// For what has no typed view, such as `state` of a `command_lifecycle`.
    pub fn field(&self, name: &str) -> Option<Value> {
        read::field(self.raw(), name)
    }

    /// The `type`: `assistant`, `user`, `system`, `result`, `stream_event`, or another.
    pub fn kind(&self) -> &str {
        match self {
            Message::System(_) => "system",
            Message::Assistant(_) => "assistant",
            Message::User(_) => "user",
            Message::Result(_) => "result",
            Message::StreamEvent(_) => "stream_event",
            Message::Other(message) => message.kind(),
        }
    }

    /// The `subtype`, which messages of the types `system` and `result` have.
    pub fn subtype(&self) -> Option<&str> {
        each!(self, message => message.head.subtype.as_deref())
    }

    /// The conversation's id. It changes when a session is forked or reset.
    pub fn session_id(&self) -> Option<&str> {
        each!(self, message => message.session_id())
    }

    /// The message's own id.
    pub fn uuid(&self) -> Option<&str> {
        each!(self, message => message.uuid())
    }

    /// The tool call under which a subagent produced this message; `None` on the main thread.
    pub fn parent_tool_use_id(&self) -> Option<&str> {
        each!(self, message => message.parent_tool_use_id())
    }

    /// The ids of the prompts that this message belongs to, without repeats: `user_message_uuids` and
    /// `user_message_uuid` together. Empty if the CLI named none. At most 64 are named, so a prompt that was
    /// merged with many others may be missing.
    pub fn user_message_uuids(&self) -> &[String] {
        each!(self, message => message.user_message_uuids())
    }

    /// The content blocks of an assistant or user message; empty for all others.
    pub fn content(&self) -> &[ContentBlock] {
        match self {
            Message::Assistant(message) => &message.message.content,
            Message::User(message) => &message.content,
            _ => &[],
        }
    }

    /// What the model says in an assistant message: its text blocks, joined. `None` for every other message,
    /// and if there is no text block.
    ///
    /// A subagent's messages are assistant messages as well; see
    /// [`parent_tool_use_id`](Message::parent_tool_use_id).
    pub fn text(&self) -> Option<String> {
        match self {
            Message::Assistant(message) if self.content().iter().any(|block| block.as_text().is_some()) => {
                Some(message.text())
            }
            _ => None,
        }
    }

    /// The tool calls in the message.
    pub fn tool_uses(&self) -> impl Iterator<Item = ToolUseRef<'_>> {
        self.content().iter().filter_map(ContentBlock::as_tool_use)
    }

    /// The results of tool calls in the message.
    pub fn tool_results(&self) -> impl Iterator<Item = ToolResultRef<'_>> {
        self.content().iter().filter_map(ContentBlock::as_tool_result)
    }
}

/// Writes the JSON exactly as it was received (with `serde_json`; another format may refuse it).
impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.raw().serialize(serializer)
    }
}

/// Reads what [`Serialize`] wrote (with `serde_json`; another format may refuse it).
impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Message::from_raw(Box::<RawValue>::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// The JSON as it was received.
impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.raw().get())
    }
}

/// What every type of message has: all of them keep a `head` and the `raw` JSON.
macro_rules! common {
    ($message:ty) => {
        impl $message {
            /// The exact JSON of the message as it was received.
            pub fn raw(&self) -> &serde_json::value::RawValue {
                &self.raw
            }

            /// The conversation's id. It changes when a session is forked or reset.
            pub fn session_id(&self) -> Option<&str> {
                self.head.session_id.as_deref()
            }

            /// The message's own id.
            pub fn uuid(&self) -> Option<&str> {
                self.head.uuid.as_deref()
            }

            /// The tool call under which a subagent produced this message; `None` on the main thread.
            pub fn parent_tool_use_id(&self) -> Option<&str> {
                self.head.parent_tool_use_id.as_deref()
            }

            /// The ids of the prompts that this message belongs to, without repeats. Empty if the CLI named
            /// none.
            pub fn user_message_uuids(&self) -> &[String] {
                &self.head.user_message_uuids
            }
        }

        /// Writes the JSON exactly as it was received (with `serde_json`; another format may refuse it).
        impl serde::Serialize for $message {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.raw.serialize(serializer)
            }
        }
    };
}
use common;
