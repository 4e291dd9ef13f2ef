//! [`Message`]: one message of any type.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;
use serde_json::value::RawValue;

use super::read::{MessageHead, mend};
use super::{
    ActiveGoal, AssistantMessage, AuthStatus, CommandLifecycle, ContentBlock, ConversationReset,
    OtherMessage, PromptSuggestion, RateLimitEvent, ResultMessage, StreamEvent, SystemDetail, SystemMessage,
    ToolProgress, ToolResultRef, ToolUseRef, ToolUseSummary, Typed, UserMessage, abridge, read,
};

/// Declares the types of messages: the word on the wire, and the type of the body. `by` is the function that reads a
/// body in a way of its own.
macro_rules! messages {
    (
        $(#[$doc:meta])*
        pub enum Message {
            $( $(#[$about:meta])* $kind:literal => $variant:ident($body:ty $(, by $reads:expr)?), )*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        pub enum Message {
            $( $(#[$about])* $variant(Arc<Typed<$body>>), )*
            /// A message of an unknown type, or of a known type but an unexpected shape.
            Other(Arc<Typed<OtherMessage>>),
        }

        /// The known types of messages.
        pub(super) const TYPES: &[&str] = &[$($kind),*];

        impl Message {
            /// What every message has.
            fn envelope(&self) -> (&MessageHead, &RawValue) {
                match self {
                    $( Message::$variant(message) => (&message.head, message.raw()), )*
                    Message::Other(message) => (&message.head, message.raw()),
                }
            }

            fn from_raw(raw: Box<RawValue>) -> Result<Message, serde_json::Error> {
                let whole = mend(raw.get());
                let (text, fits) = match abridge::abridge(&whole) {
                    Ok(text) => (text, true),
                    Err(text) => (Cow::Owned(text), false),
                };
                let abridged = matches!(text, Cow::Owned(_));
                let kept = !abridged && matches!(whole, Cow::Borrowed(_));
                // Most messages are partial: their event is read in the same pass.
                let piece = text.starts_with(r#"{"type":"stream_event","#);
                let piece = if piece { MessageHead::read(&text, kept, TYPES).ok() } else { None };
                let (mut head, piece) = match piece {
                    Some((head, piece)) => (head, Some(piece)),
                    None => (MessageHead::read_alone(&text, kept, TYPES)?, None),
                };
                head.abridged = abridged;
                let problem = match &*head.kind {
                    // A partial message keeps its event as JSON, which would be incomplete.
                    kind if !fits || (abridged && kind == "stream_event") => {
                        Some(de::Error::custom("it holds too many values for a typed view"))
                    }
                    $( $kind => match messages!(@read (&head, piece, &*text, kept) $($reads)?) {
                        Ok(body) => return Ok(Message::$variant(Arc::new(Typed::new(body, head, raw)))),
                        Err(problem) => Some(problem),
                    }, )*
                    _ => None,
                };
                Ok(Message::Other(Arc::new(Typed::new(OtherMessage::new(problem), head, raw))))
            }
        }
    };
    (@read ($head:expr, $piece:expr, $text:expr, $kept:expr)) => { serde_json::from_str($text) };
    (@read ($head:expr, $piece:expr, $text:expr, $kept:expr) $reads:expr) => {
        $reads($head, $piece, $text, $kept)
    };
}

messages! {
    /// A message of the conversation, as the CLI wrote it.
    ///
    /// [`raw`](Message::raw) is the exact JSON that arrived, and serialising a message writes that JSON again. A message of
    /// an unknown `type` is [`Other`](Message::Other). A field of an unexpected shape counts as missing; only if the typed
    /// view makes no sense without the field (each type says which) the whole message is `Other`.
    ///
    /// Clones are cheap and share their content. `Debug` writes the type, the ids and the length; `Display` the JSON.
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
    pub enum Message {
        /// A message about the session (`type` `system`), told apart by its subtype.
        "system" => System(SystemMessage, by |head: &MessageHead, _, text, _| {
            SystemMessage::read(head.subtype.as_deref(), text)
        }),
        /// Text and tool calls of the model.
        "assistant" => Assistant(AssistantMessage),
        /// A message to the model: tool results, and prompts that the CLI repeats or makes itself.
        "user" => User(UserMessage),
        /// The end of a turn.
        "result" => Result(ResultMessage),
        /// A partial message, while the model is writing.
        "stream_event" => StreamEvent(StreamEvent, by |_, piece: Option<_>, text, kept: bool| match piece {
            Some(piece) => StreamEvent::read(&piece, kept.then_some(text)),
            None => StreamEvent::read(&MessageHead::read(text, kept, TYPES)?.1, kept.then_some(text)),
        }),
        /// A tool is still running.
        "tool_progress" => ToolProgress(ToolProgress),
        /// A summary of several tool calls.
        "tool_use_summary" => ToolUseSummary(ToolUseSummary),
        /// Progress of a login.
        "auth_status" => AuthStatus(AuthStatus),
        /// The state of a quota has changed.
        "rate_limit_event" => RateLimitEvent(RateLimitEvent),
        /// A prompt that the user may want to send next.
        "prompt_suggestion" => PromptSuggestion(PromptSuggestion),
        /// The conversation was cleared and starts over.
        "conversation_reset" => ConversationReset(ConversationReset),
        /// The goal of the session has changed.
        "active_goal" => ActiveGoal(ActiveGoal),
        /// The state of a prompt in the CLI's queue.
        "command_lifecycle" => CommandLifecycle(CommandLifecycle),
    }
}

impl Message {
    /// The known types. A message of another type is [`Message::Other`].
    pub const TYPES: &'static [&'static str] = TYPES;

    /// Reads one line of the CLI's output. A control frame is no message, but has a `type` too and becomes
    /// [`Message::Other`].
    ///
    /// # Errors
    /// The line is no JSON object with a string `type`.
    pub fn parse(line: &str) -> Result<Message, serde_json::Error> {
        Self::from_raw(serde_json::from_str::<&RawValue>(line)?.to_owned())
    }

    /// Length of the JSON in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.raw().get().len()
    }

    /// The exact JSON of the message as it was received.
    pub fn raw(&self) -> &RawValue {
        self.envelope().1
    }

    /// Whether the typed view is incomplete, to limit its memory: a list or an object with more than 8,192 values, and
    /// more than one value per 128 bytes of the message, is read as `null`. [`raw`](Message::raw) is complete, and
    /// [`field`](Message::field) reads from it.
    pub fn is_abridged(&self) -> bool {
        self.envelope().0.abridged
    }

    /// The raw JSON, parsed.
    ///
    /// `null` if the JSON is nested deeper than 127 levels or has a number out of range; otherwise an object. Half of a
    /// surrogate pair is read as U+FFFD.
    pub fn value(&self) -> Value {
        serde_json::from_str(&mend(self.raw().get())).unwrap_or(Value::Null)
    }

    /// Parses one field of the raw JSON, for fields without a typed view. `None` if there is no such field.
    pub fn field(&self, name: &str) -> Option<Value> {
        read::field(self.raw(), name)
    }

    /// The `type`: one of [`TYPES`](Message::TYPES), or an unknown type.
    pub fn kind(&self) -> &str {
        &self.envelope().0.kind
    }

    /// The `subtype`, in messages of the types `system` and `result`.
    pub fn subtype(&self) -> Option<&str> {
        self.envelope().0.subtype.as_deref()
    }

    /// The conversation's id. It changes when a session is forked or reset.
    pub fn session_id(&self) -> Option<&str> {
        let (head, raw) = self.envelope();
        head.session_id(raw)
    }

    /// The id of this message.
    pub fn uuid(&self) -> Option<&str> {
        let (head, raw) = self.envelope();
        head.uuid(raw)
    }

    /// The tool call that started the subagent which sent this message; `None` on the main thread.
    pub fn parent_tool_use_id(&self) -> Option<&str> {
        let (head, raw) = self.envelope();
        head.parent_tool_use_id(raw)
    }

    /// Whether the main thread sent the message, not a subagent.
    pub fn is_main_thread(&self) -> bool {
        self.parent_tool_use_id().is_none()
    }

    /// When the CLI made the message (RFC 3339). Only on assistant and user messages, and on `conversation_reset`.
    pub fn timestamp(&self) -> Option<&str> {
        match self {
            Message::Assistant(message) => message.timestamp.as_deref(),
            Message::User(message) => message.timestamp.as_deref(),
            Message::ConversationReset(message) => message.timestamp.as_deref(),
            _ => None,
        }
    }

    /// The body of a system message.
    pub fn system(&self) -> Option<&SystemDetail> {
        match self {
            Message::System(message) => Some(message.detail()),
            _ => None,
        }
    }

    /// The result, if the message is one.
    pub fn result(&self) -> Option<&Typed<ResultMessage>> {
        match self {
            Message::Result(message) => Some(message),
            _ => None,
        }
    }

    /// The ids of the prompts that this message belongs to, without repeats: `user_message_uuids` and
    /// `user_message_uuid` together. Empty if the CLI names none. The CLI names at most 64 prompts, so a prompt that
    /// was merged with many others may be missing.
    pub fn user_message_uuids(&self) -> &[String] {
        &self.envelope().0.user_message_uuids
    }

    /// The content blocks of an assistant or user message; empty for all others.
    pub fn content(&self) -> &[ContentBlock] {
        match self {
            Message::Assistant(message) => &message.message.content,
            Message::User(message) => &message.content,
            _ => &[],
        }
    }

    /// The text blocks of an assistant message, joined. `None` without a text block, and for every other message.
    ///
    /// Subagents send assistant messages too: see [`parent_tool_use_id`](Message::parent_tool_use_id).
    pub fn text(&self) -> Option<String> {
        match self {
            Message::Assistant(message) if self.content().iter().any(|block| block.as_text().is_some()) => {
                Some(message.text())
            }
            _ => None,
        }
    }

    /// The tool calls of an assistant message.
    pub fn tool_uses(&self) -> impl Iterator<Item = ToolUseRef<'_>> {
        self.content().iter().filter_map(ContentBlock::as_tool_use)
    }

    /// The results of tool calls in a user message.
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

/// Reads the JSON of a message (with `serde_json`; another format may refuse it).
impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Message::from_raw(Box::<RawValue>::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// Writes the JSON as it was received.
impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.raw().get())
    }
}
