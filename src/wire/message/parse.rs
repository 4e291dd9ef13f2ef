//! Parses a line of the CLI as a message.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use memchr::memmem::Finder;
use serde::{Deserialize, de};
use serde_json::value::RawValue;

use super::read::{MessageHead, mend};
use super::types::aside::Typed;
use super::types::assistant::AssistantFields;
use super::types::other::OtherMessage;
use super::types::result::ResultFields;
use super::types::stream::parse::{StreamFields, quick};
use super::types::system::{self, SystemMessage};
use super::types::user::UserFields;
use super::{Message, abridge};

/// Texts in a line that may be a control frame although it starts like a message: the last duplicate key wins.
static CONTROL: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"control_"));
static KEEP_ALIVE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"keep_alive\""));

impl Message {
    pub(super) fn from_raw(raw: Box<RawValue>) -> Result<Message, serde_json::Error> {
        let read = if abridge::is_short(raw.get()) { quick(raw) } else { Err(raw) };
        let raw = match read {
            Ok(piece) => return Ok(Message::StreamEvent(Arc::new(piece))),
            Err(raw) => raw,
        };
        let whole = mend(raw.get());
        let (text, fits) = match abridge::abridge(&whole) {
            Ok(text) => (text, true),
            Err(text) => (Cow::Owned(text), false),
        };
        let abridged = matches!(text, Cow::Owned(_));
        let kept = !abridged && matches!(whole, Cow::Borrowed(_));
        let mut head = MessageHead::read(&text, kept, &mut ())?;
        head.abridged = abridged;
        // A partial message keeps its event as JSON, which would be incomplete.
        if !fits || (abridged && head.kind == "stream_event") {
            let problem = de::Error::custom("it holds too many values for a typed view");
            return Ok(Message::Other(Arc::new(OtherMessage::new(head, raw, Some(problem)))));
        }
        macro_rules! typed {
            ($variant:ident) => {
                match serde_json::from_str(&text) {
                    Ok(body) => return Ok(Message::$variant(Arc::new(Typed::new(head, raw, body)))),
                    Err(problem) => Some(problem),
                }
            };
        }
        let problem = match &*head.kind {
            "assistant" => match serde_json::from_str::<AssistantFields>(&text) {
                Ok(fields) => return Ok(Message::Assistant(Arc::new(fields.finish(head, raw)))),
                Err(problem) => Some(problem),
            },
            "user" => match serde_json::from_str::<UserFields>(&text) {
                Ok(fields) => return Ok(Message::User(Arc::new(fields.finish(head, raw)))),
                Err(problem) => Some(problem),
            },
            "stream_event" => match serde_json::from_str::<StreamFields>(&text) {
                Ok(fields) => return Ok(Message::StreamEvent(Arc::new(fields.finish(head, raw)))),
                Err(problem) => Some(problem),
            },
            "result" if head.subtype.is_none() => Some(de::Error::missing_field("subtype")),
            "result" => match serde_json::from_str::<ResultFields>(&text) {
                Ok(fields) => return Ok(Message::Result(Arc::new(fields.finish(head, raw)))),
                Err(problem) => Some(problem),
            },
            "system" => match system::read_detail(head.subtype.as_deref(), &text) {
                Ok(detail) => return Ok(Message::System(Arc::new(SystemMessage::new(head, raw, detail)))),
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

    /// Whether a line is certainly a message, so that it need not be parsed to tell it from a control frame: it starts with
    /// the `type` of a message, and has no text that could be a second, winning `type` of a control frame. False may also
    /// be a message.
    pub(crate) fn is_plainly(line: &[u8]) -> bool {
        let Some(rest) = line.strip_prefix(b"{\"type\":\"") else { return false };
        let Some(end) = memchr::memchr(b'"', &rest[..rest.len().min(32)]) else { return false };
        let (kind, rest) = rest.split_at(end);
        let is_known = Self::TYPES.iter().any(|known| known.as_bytes() == kind);
        (is_known || kind == b"transcript_mirror")
            && CONTROL.find(rest).is_none()
            && KEEP_ALIVE.find(rest).is_none()
    }

    /// Whether a line shows that the CLI has started a turn.
    pub(crate) fn begins_turn(line: &[u8]) -> bool {
        #[derive(Deserialize)]
        struct Kind<'a> {
            #[serde(rename = "type", borrow)]
            kind: &'a RawValue,
            #[serde(borrow)]
            subtype: Option<&'a RawValue>,
        }
        // The reader reports a line that cannot be parsed.
        let Ok(Kind { kind, subtype }) = serde_json::from_slice(line) else { return false };
        match kind.get() {
            "\"system\"" => subtype.is_some_and(|subtype| subtype.get() == "\"init\""),
            kind => ["\"assistant\"", "\"user\"", "\"stream_event\"", "\"result\""].contains(&kind),
        }
    }
}
