//! Tells lines of messages apart without parsing them whole.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Message;

impl Message {
    /// Whether a line is certainly a message, so that it need not be parsed to tell it from a control frame: it starts
    /// with the `type` of a message. False may also be a message.
    pub(crate) fn is_plainly(line: &[u8]) -> bool {
        let Some(rest) = line.strip_prefix(b"{\"type\":\"") else { return false };
        let Some(end) = memchr::memchr(b'"', &rest[..rest.len().min(32)]) else { return false };
        let kind = &rest[..end];
        let is_known = Self::TYPES.iter().any(|known| known.as_bytes() == kind);
        is_known || kind == b"transcript_mirror"
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
            (r#"{"type":"assistant","message":{"content":"\"type\":\"control_request\""}}"#, true),
            (r#"{"type":"transcript_mirror","entries":[]}"#, true),
            (r#"{"type":"of_next_year"}"#, false),
            (r#"{"type":"control_request","request_id":"r"}"#, false),
            (r#"{"type":"keep_alive"}"#, false),
            (r#"{ "type":"user"}"#, false),
            (r#"{"type":"user"#, false),
            ("", false),
        ] {
            assert_eq!(Message::is_plainly(line.as_bytes()), plainly, "{line}");
        }
    }
}
