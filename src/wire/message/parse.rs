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
        // `$body` is read, and `$make` makes the message of it.
        macro_rules! typed {
            ($variant:ident: $body:ty, $make:expr) => {
                match serde_json::from_str::<$body>(&text) {
                    Ok(body) => return Ok(Message::$variant(Arc::new($make(body, head, raw)))),
                    Err(problem) => Some(problem),
                }
            };
            ($variant:ident) => {
                typed!($variant: _, Typed::new)
            };
        }
        let problem = match &*head.kind {
            "assistant" => typed!(Assistant: AssistantFields, AssistantFields::finish),
            "user" => typed!(User: UserFields, UserFields::finish),
            "stream_event" => typed!(StreamEvent: StreamFields, StreamFields::finish),
            "result" if head.subtype.is_none() => Some(de::Error::missing_field("subtype")),
            "result" => typed!(Result: ResultFields, ResultFields::finish),
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
            _ => None,
        };
        Ok(Message::Other(Arc::new(OtherMessage::new(head, raw, problem))))
    }

    /// Whether a line is certainly a message, so that it need not be parsed to tell it from a control frame: it starts
    /// with the `type` of a message, and has no text that could be a second, winning `type` of a control frame. False
    /// may also be a message.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn possible_control_frames_are_not_plainly_messages() {
        for (line, plainly) in [
            (r#"{"type":"stream_event","event":{}}"#, true),
            (r#"{"type":"assistant","message":{"content":"a control_request"}}"#, true),
            // A message, but only a full parse can tell.
            (r#"{"type":"assistant","message":{"content":"\"type\":\"control_request\""}}"#, false),
            (r#"{"type":"transcript_mirror","entries":[]}"#, true),
            (r#"{"type":"of_next_year"}"#, false),
            (r#"{"type":"control_request","request_id":"r"}"#, false),
            (r#"{"type":"keep_alive"}"#, false),
            (r#"{"type":"user","a":1,"type":"control_request","request_id":"r","request":{}}"#, false),
            (r#"{"type":"user","type":"keep_alive"}"#, false),
            (r#"{ "type":"user"}"#, false),
            (r#"{"type":"user"#, false),
            ("", false),
        ] {
            assert_eq!(Message::is_plainly(line.as_bytes()), plainly, "{line}");
        }
    }

    #[test]
    fn a_partial_message_of_the_cli_is_read_in_one_pass() {
        let line = r#"{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"t"}}}"#;
        let raw: &RawValue = serde_json::from_str(line).unwrap();
        assert!(quick(raw.to_owned()).is_ok());
    }
}
