//! What the conversation consists of: the messages that the CLI writes, typed, with the raw JSON beside them.
//!
//! The most used names are at the root of the crate, too. Each message keeps its exact JSON
//! ([`Message::raw`]), and serialising it writes that again; the typed views never lose anything, because they are
//! views.
//!
//! | to | there is |
//! |---|---|
//! | read what is said | [`Message::text`], [`Message::content`], [`ContentBlock`] |
//! | follow tool calls from call to result | [`ToolCalls`] |
//! | show an answer while it is written | [`Turn::deltas`](crate::Turn::deltas), [`Assembler`] |
//! | know what it costs | [`ResultMessage`], [`UsageTracker`] |
//! | show a transcript without what was taken back | [`remove_superseded`] |
//! | watch the session | [`SystemMessage::detail`] |
//! | see which frames are known | [`Message::TYPES`], [`SystemMessage::SUBTYPES`], [`ContentBlock::KINDS`] |

// - `content`: the blocks inside assistant and user messages
// - `assistant`, `user`, `result`, `system`, `stream`, `aside`, `other`: the types of messages
// - `usage`, `context`, `origin`, `reason`: what several of them have
// - `calls`, `assemble`, `transcript`, `tracker`: what is made of many messages
// - `read`, `view`: how fields are read, leniently

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, LazyLock};

use memchr::memmem::Finder;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;
use serde_json::value::RawValue;

mod aside;
mod assemble;
mod assistant;
mod calls;
mod content;
mod context;
mod origin;
mod other;
pub(crate) mod read;
mod reason;
mod result;
mod stream;
mod system;
#[cfg(test)]
mod tests;
mod time;
mod tracker;
mod transcript;
mod usage;
mod user;
mod view;

pub use aside::*;
pub use assemble::{Assembler, Delta, DeltaKind, PartialBlock, PartialMessage};
pub use assistant::{ApiMessage, AssistantMessage, ToolUseMeta};
pub use calls::{ToolCall, ToolCallResult, ToolCalls};
pub use content::{
    ContentBlock, MediaSource, ToolResultContent, ToolResultRef, ToolUseRef, WebSearchContent,
    WebSearchResult,
};
pub use context::*;
pub use origin::{Origin, PeerOrigin, TaskOrigin};
pub use other::OtherMessage;
pub use reason::*;
pub use result::{DeferredToolUse, InvalidConfigFile, PermissionDenial, ResultMessage, SubagentStats};
pub use stream::{ApiEvent, BlockDelta, StreamEvent};
pub use system::*;
pub use tracker::{TurnUsage, UsageTracker};
pub use transcript::remove_superseded;
pub use usage::{CacheCreation, ModelUsage, OutputTokensDetails, ServerToolUsage, Usage};
pub use user::{ToolPermissionDecision, ToolResultMeta, UserMessage};

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
    /// A tool is still at work.
    ToolProgress(Arc<Typed<ToolProgress>>),
    /// What some tool calls did, in a few words.
    ToolUseSummary(Arc<Typed<ToolUseSummary>>),
    /// How a login goes.
    AuthStatus(Arc<Typed<AuthStatus>>),
    /// How much of a quota is left has changed.
    RateLimitEvent(Arc<Typed<RateLimitEvent>>),
    /// What the user may want to say next.
    PromptSuggestion(Arc<Typed<PromptSuggestion>>),
    /// The conversation begins anew.
    ConversationReset(Arc<Typed<ConversationReset>>),
    /// What the session works towards.
    ActiveGoal(Arc<Typed<ActiveGoal>>),
    /// What becomes of a prompt.
    CommandLifecycle(Arc<Typed<CommandLifecycle>>),
    /// When the CLI will replace the conversation by a summary.
    AutocompactState(Arc<Typed<AutocompactState>>),
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
            Message::ToolProgress($message) => $value,
            Message::ToolUseSummary($message) => $value,
            Message::AuthStatus($message) => $value,
            Message::RateLimitEvent($message) => $value,
            Message::PromptSuggestion($message) => $value,
            Message::ConversationReset($message) => $value,
            Message::ActiveGoal($message) => $value,
            Message::CommandLifecycle($message) => $value,
            Message::AutocompactState($message) => $value,
            Message::Other($message) => $value,
        }
    };
}

/// What a line holds that may be a control frame, though it begins like a message: the last of two keys counts.
static CONTROL: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"control_"));
static KEEP_ALIVE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"keep_alive\""));

impl Message {
    /// The types that this library knows. A message of another type is [`Message::Other`].
    pub const TYPES: &'static [&'static str] = &[
        "system",
        "assistant",
        "user",
        "result",
        "stream_event",
        "tool_progress",
        "tool_use_summary",
        "auth_status",
        "rate_limit_event",
        "prompt_suggestion",
        "conversation_reset",
        "active_goal",
        "command_lifecycle",
        "autocompact_state",
    ];

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
        let raw = match stream::quick(raw) {
            Ok(piece) => return Ok(Message::StreamEvent(Arc::new(piece))),
            Err(raw) => raw,
        };
        let text = mend(raw.get());
        let kept = matches!(text, Cow::Borrowed(_));
        let head = Head::read(&text, kept, &mut ())?;
        macro_rules! typed {
            ($variant:ident) => {
                match serde_json::from_str(&text) {
                    Ok(body) => return Ok(Message::$variant(Arc::new(Typed::new(head, raw, body)))),
                    Err(problem) => Some(problem),
                }
            };
        }
        let problem = match &*head.kind {
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
            "result" if head.subtype.is_none() => Some(de::Error::missing_field("subtype")),
            "result" => match serde_json::from_str::<result::Fields>(&text) {
                Ok(fields) => return Ok(Message::Result(Arc::new(fields.finish(head, raw)))),
                Err(problem) => Some(problem),
            },
            "system" => match system::read(head.subtype.as_deref(), &text) {
                Ok(fields) => return Ok(Message::System(Arc::new(fields.finish(head, raw)))),
                Err(problem) => Some(problem),
            },
            "tool_progress" => typed!(ToolProgress),
            "tool_use_summary" => typed!(ToolUseSummary),
            "auth_status" => typed!(AuthStatus),
            "rate_limit_event" => typed!(RateLimitEvent),
            "prompt_suggestion" => typed!(PromptSuggestion),
            "conversation_reset" => typed!(ConversationReset),
            "active_goal" => typed!(ActiveGoal),
            "command_lifecycle" => typed!(CommandLifecycle),
            "autocompact_state" => typed!(AutocompactState),
            _ => None,
        };
        Ok(Message::Other(Arc::new(OtherMessage::new(head, raw, problem))))
    }

    /// Whether a line is a message by its looks, so that nobody has to read it whole to tell it from a control frame: it
    /// begins with the `type` of a message, and nothing in it looks like another one of a control frame, which would count
    /// instead. A line that does not look so may be one all the same.
    pub(crate) fn is_plainly(line: &[u8]) -> bool {
        let Some(rest) = line.strip_prefix(b"{\"type\":\"") else { return false };
        let Some(end) = memchr::memchr(b'"', &rest[..rest.len().min(32)]) else { return false };
        let (kind, rest) = rest.split_at(end);
        let is_known = Self::TYPES.iter().any(|known| known.as_bytes() == kind);
        (is_known || kind == b"transcript_mirror")
            && CONTROL.find(rest).is_none()
            && KEEP_ALIVE.find(rest).is_none()
    }

    /// Whether a line is a sign that the CLI works at a prompt.
    pub(crate) fn begins_turn(line: &[u8]) -> bool {
        #[derive(Deserialize)]
        struct Kind<'a> {
            #[serde(rename = "type", borrow)]
            kind: &'a RawValue,
            #[serde(borrow)]
            subtype: Option<&'a RawValue>,
        }
        // One that cannot be read is told as a line that is lost.
        let Ok(Kind { kind, subtype }) = serde_json::from_slice(line) else { return false };
        match kind.get() {
            "\"system\"" => subtype.is_some_and(|subtype| subtype.get() == "\"init\""),
            kind => ["\"assistant\"", "\"user\"", "\"stream_event\"", "\"result\""].contains(&kind),
        }
    }

    /// How long its JSON is, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.raw().get().len()
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
    /// For what has no typed view.
    pub fn field(&self, name: &str) -> Option<Value> {
        read::field(self.raw(), name)
    }

    /// The `type`: one of [`TYPES`](Message::TYPES), or another.
    pub fn kind(&self) -> &str {
        each!(self, message => &message.head.kind)
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

    /// Whether the message is of the main thread, and not of a subagent.
    pub fn is_main_thread(&self) -> bool {
        self.parent_tool_use_id().is_none()
    }

    /// Whether a subagent produced the message.
    pub fn is_from_subagent(&self) -> bool {
        !self.is_main_thread()
    }

    /// When the CLI made the message (RFC 3339): of assistant and user messages, and of a conversation that begins
    /// anew. All others have none.
    pub fn timestamp(&self) -> Option<&str> {
        match self {
            Message::Assistant(message) => message.timestamp.as_deref(),
            Message::User(message) => message.timestamp.as_deref(),
            Message::ConversationReset(message) => message.timestamp.as_deref(),
            _ => None,
        }
    }

    /// The typed body of a system message.
    pub fn system(&self) -> Option<&SystemDetail> {
        match self {
            Message::System(message) => Some(message.detail()),
            _ => None,
        }
    }

    /// The result, if the message is one.
    pub fn result(&self) -> Option<&ResultMessage> {
        match self {
            Message::Result(message) => Some(message),
            _ => None,
        }
    }

    /// The uuids of earlier messages that this one takes back: they should no longer be shown. Those that an assistant
    /// message supersedes, and those that were retracted because the model refused and another one goes on.
    pub fn supersedes(&self) -> &[String] {
        match self {
            Message::Assistant(message) => &message.supersedes,
            Message::System(message) => match message.detail() {
                SystemDetail::ModelRefusalFallback(fallback) => &fallback.retracted_message_uuids,
                _ => &[],
            },
            _ => &[],
        }
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
    ($message:ty $(, $body:ident)?) => {
        impl$(<$body>)? $message {
            /// The exact JSON of the message as it was received.
            pub fn raw(&self) -> &serde_json::value::RawValue {
                &self.raw
            }

            /// The conversation's id. It changes when a session is forked or reset.
            pub fn session_id(&self) -> Option<&str> {
                self.head.session_id(&self.raw)
            }

            /// The message's own id.
            pub fn uuid(&self) -> Option<&str> {
                self.head.uuid(&self.raw)
            }

            /// The tool call under which a subagent produced this message; `None` on the main thread.
            pub fn parent_tool_use_id(&self) -> Option<&str> {
                self.head.parent_tool_use_id(&self.raw)
            }

            /// The ids of the prompts that this message belongs to, without repeats. Empty if the CLI named
            /// none.
            pub fn user_message_uuids(&self) -> &[String] {
                &self.head.user_message_uuids
            }
        }

        /// Writes the JSON exactly as it was received (with `serde_json`; another format may refuse it).
        impl$(<$body>)? serde::Serialize for $message {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.raw.serialize(serializer)
            }
        }
    };
}
use common;
