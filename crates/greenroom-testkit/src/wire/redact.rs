//! Takes out of a transcript what must not be kept.

use std::borrow::Cow;

use serde_json::Value;

use super::transcript::{Entry, Line, Transcript, Wire};

/// Replacement of removed texts.
pub(crate) const REDACTED: &str = "[redacted]";

/// Rules for removing secrets from a transcript: pass them to
/// [`Recorder::redacting`](crate::Recorder::redacting), or apply them to a transcript.
///
/// ```
/// use greenroom_testkit::{Redact, Transcript};
///
/// let recorded: Transcript =
///     r#"{"epoch":1,"at_us":0,"host":"{\"type\":\"user\",\"uuid\":\"u1\",\"message\":{\"role\":\"user\",\"content\":\"my PIN is 1234\"}}"}"#
///         .parse()?;
/// let redacted = Redact::payloads().transcript(&recorded).to_json_lines();
/// assert!(redacted.contains("u1") && !redacted.contains("1234"));
/// let redacted = Redact::values(["1234"]).transcript(&recorded).to_json_lines();
/// assert!(redacted.contains("my PIN is [redacted]"));
/// # serde_json::Result::Ok(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Redact {
    payloads: bool,
    values: Vec<String>,
}

/// Keys that stay readable when payloads are removed: the protocol's own. Every other text is payload.
const KEPT: [&str; 37] = [
    "type",
    "subtype",
    "request_id",
    "id",
    "jsonrpc",
    "method",
    "uuid",
    "session_id",
    "tool_use_id",
    "callback_id",
    "server_name",
    "serverName",
    "name",
    "role",
    "is_error",
    "isError",
    "code",
    "error_code",
    "behavior",
    "decision",
    "user_message_uuids",
    "command_uuid",
    "parent_tool_use_id",
    "parentUuid",
    "protocolVersion",
    "requestId",
    "state",
    "terminal_reason",
    "num_turns",
    "stop_reason",
    "claude_code_version",
    "capabilities",
    "hook_event_name",
    "tool_name",
    "progressToken",
    "claudecode/toolUseId",
    "sdkMcpServers",
];

/// Below these everything is payload, whatever it is called.
const PAYLOADS: [&str; 6] =
    ["arguments", "input", "structuredContent", "tool_input", "updatedInput", "tool_response"];

impl Redact {
    /// Takes out what is said: prompts, answers, arguments and results of tools, texts of errors. The structure, ids
    /// and names stay, so that the transcript can still be judged and played back. Values of the CLI's command line
    /// go too, except those that say which conversation is resumed. A line that is no JSON goes whole.
    pub fn payloads() -> Self {
        Self { payloads: true, values: Vec::new() }
    }

    /// Takes out these texts, wherever they stand: in lines, in their JSON spelling as well, and on the command line.
    pub fn values<V: Into<String>>(values: impl IntoIterator<Item = V>) -> Self {
        Self::default().and_values(values)
    }

    /// These texts as well.
    #[must_use]
    pub fn and_values<V: Into<String>>(mut self, values: impl IntoIterator<Item = V>) -> Self {
        for value in values.into_iter().map(Into::into).filter(|value: &String| !value.is_empty()) {
            let quoted = Value::from(value.as_str()).to_string();
            let escaped = quoted[1..quoted.len() - 1].to_owned();
            if escaped != value {
                self.values.push(escaped);
            }
            self.values.push(value);
        }
        self
    }

    /// The transcript with secrets removed.
    pub fn transcript(&self, transcript: &Transcript) -> Transcript {
        Transcript::new(transcript.entries().iter().cloned().map(|entry| self.entry(entry)))
    }

    pub(crate) fn entry(&self, mut entry: Entry) -> Entry {
        entry.wire = match entry.wire {
            Wire::Opened { args } => {
                Wire::Opened { args: args.iter().map(|arg| self.argument(arg)).collect() }
            }
            Wire::Host(line) => Wire::Host(self.line(line)),
            Wire::Cli(line) => Wire::Cli(self.line(line)),
            other => other,
        };
        entry
    }

    fn argument(&self, arg: &str) -> String {
        let payload = self.payloads && !arg.starts_with("--resume=") && !arg.starts_with("--session-id=");
        let arg = match arg.split_once('=') {
            Some((flag, _)) if payload => format!("{flag}={REDACTED}"),
            None if payload && !arg.starts_with('-') => REDACTED.to_owned(),
            _ => arg.to_owned(),
        };
        self.text(&arg).into_owned()
    }

    fn line(&self, line: Line) -> Line {
        let whole = line.is_whole();
        let mut bytes = line.bytes().to_vec();
        if self.payloads {
            bytes = match line.json() {
                Some(mut value) if whole => {
                    payloads(&mut value, false);
                    value.to_string().into_bytes()
                }
                _ => REDACTED.into(),
            };
        }
        if !self.values.is_empty() {
            // Bytes that are no UTF-8 cannot hold what is looked for; the others around them can.
            bytes = self.text(&String::from_utf8_lossy(&bytes)).into_owned().into_bytes();
        }
        if whole { Line::new(bytes) } else { Line::cut(bytes) }
    }

    fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for value in &self.values {
            if text.contains(value.as_str()) {
                text = Cow::Owned(text.replace(value.as_str(), REDACTED));
            }
        }
        text
    }
}

fn payloads(value: &mut Value, payload: bool) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let kept = !payload && KEPT.contains(&key.as_str());
                let below = payload || PAYLOADS.contains(&key.as_str());
                match value {
                    Value::Object(_) => payloads(value, below),
                    // A list of names stays when its key does.
                    Value::Array(_) if !kept => payloads(value, below),
                    Value::String(_) if !kept => *value = Value::from(REDACTED),
                    Value::Number(_) if below => *value = Value::from(REDACTED),
                    _ => {}
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| payloads(item, payload)),
        Value::String(_) => *value = Value::from(REDACTED),
        Value::Number(_) if payload => *value = Value::from(REDACTED),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
