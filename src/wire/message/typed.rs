//! [`Typed`]: what every message has, around a body.

use std::fmt;
use std::ops::Deref;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::read::MessageHead;
use crate::wire::brief::Short;

/// A message with a body `T`, to which it dereferences, and the fields that every message has.
///
/// `Debug` writes the type, the ids and the length, but no content.
///
/// ```
/// use greenroom::Message;
///
/// let line = r#"{"type": "tool_progress", "uuid": "u1", "tool_name": "Bash", "elapsed_time_seconds": 2.5}"#;
/// let Message::ToolProgress(progress) = Message::parse(line)? else { unreachable!() };
/// assert_eq!((progress.uuid(), progress.tool_name.as_str()), (Some("u1"), "Bash"));
/// assert_eq!(progress.raw().get(), line);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone)]
pub struct Typed<T> {
    pub(super) head: MessageHead,
    raw: Box<RawValue>,
    body: T,
}

impl<T> Typed<T> {
    pub(super) fn new(body: T, head: MessageHead, raw: Box<RawValue>) -> Self {
        Self { head, raw, body }
    }

    /// The body.
    pub fn body(&self) -> &T {
        &self.body
    }

    /// The exact JSON of the message as it was received.
    pub fn raw(&self) -> &RawValue {
        &self.raw
    }

    /// The `type`.
    pub fn kind(&self) -> &str {
        &self.head.kind
    }

    /// The conversation's id. It changes when a session is forked or reset.
    pub fn session_id(&self) -> Option<&str> {
        self.head.session_id(&self.raw)
    }

    /// The id of this message.
    pub fn uuid(&self) -> Option<&str> {
        self.head.uuid(&self.raw)
    }

    /// The tool call that started the subagent which sent this message; `None` on the main thread.
    pub fn parent_tool_use_id(&self) -> Option<&str> {
        self.head.parent_tool_use_id(&self.raw)
    }

    /// The ids of the prompts that this message belongs to, without repeats. Empty if the CLI names none.
    pub fn user_message_uuids(&self) -> &[String] {
        &self.head.user_message_uuids
    }
}

impl<T> Deref for Typed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.body
    }
}

/// Writes the JSON exactly as it was received (with `serde_json`; another format may refuse it).
impl<T> Serialize for Typed<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.raw.serialize(serializer)
    }
}

impl<T> fmt::Debug for Typed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |text: Option<&str>| text.map(|text| Short(text).to_string());
        f.debug_struct("Typed")
            .field("type", &Short(self.kind()).to_string())
            .field("subtype", &short(self.head.subtype.as_deref()))
            .field("uuid", &short(self.uuid()))
            .field("session_id", &short(self.session_id()))
            .field("parent_tool_use_id", &short(self.parent_tool_use_id()))
            .field("bytes", &self.raw.get().len())
            .finish()
    }
}
