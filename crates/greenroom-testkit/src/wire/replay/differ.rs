//! Matches frames of the host with recorded frames, and compares them.

use serde_json::Value;

use crate::wire::redact::REDACTED;

/// Kind of a frame: frames that correspond are of equal kind.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RecordedKind {
    kind: String,
    subtype: Option<String>,
    /// For an answer: the request of the CLI that it answers. For a push of a tool server: its server.
    of: Option<String>,
}

impl RecordedKind {
    pub(super) fn of(frame: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let kind = text(&frame["type"]).unwrap_or_default();
        let (subtype, of) = match kind.as_str() {
            "control_request" => (text(&frame["request"]["subtype"]), text(&frame["request"]["server_name"])),
            "control_response" => (None, text(&frame["response"]["request_id"])),
            _ => (None, None),
        };
        Self { kind, subtype, of }
    }

    pub(super) fn fits(&self, frame: &Value) -> bool {
        *self == Self::of(frame)
    }
}

impl std::fmt::Display for RecordedKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&*self.kind, &self.subtype, &self.of) {
            ("control_request", Some(subtype), None) => write!(f, "the control request {subtype}"),
            ("control_request", subtype, Some(server)) => {
                write!(f, "the control request {} of server {server}", subtype.as_deref().unwrap_or_default())
            }
            ("control_response", _, Some(id)) => write!(f, "the answer to {id}"),
            ("user", ..) => f.write_str("a prompt"),
            (kind, ..) => write!(f, "a frame of type {kind}"),
        }
    }
}

/// Difference of two frames that correspond, in words. Ignores generated ids and the content of `initialize`.
pub(super) fn difference(recorded: &Value, live: &Value) -> Option<String> {
    let part = |frame: &Value| match frame["type"].as_str() {
        Some("control_response") => frame["response"].clone(),
        Some("user") => frame["message"].clone(),
        Some("control_request") if frame["request"]["subtype"] != "initialize" => frame["request"].clone(),
        _ => Value::Null,
    };
    let (was, is) = (part(recorded), part(live));
    let path = differs(&was, &is, String::new())?;
    let at = |value: &Value| value.pointer(&path).map_or_else(|| "nothing".to_owned(), Value::to_string);
    Some(format!("{}: at {} it was {}, and is {}", RecordedKind::of(recorded), path, at(&was), at(&is)))
}

/// Where the two differ first, as a JSON pointer.
fn differs(was: &Value, is: &Value, path: String) -> Option<String> {
    match (was, is) {
        (Value::String(text), _) if text.contains(REDACTED) => None,
        (Value::Object(was), Value::Object(is)) => {
            let added = is.keys().find(|key| !was.contains_key(*key));
            was.iter()
                .find_map(|(key, value)| {
                    differs(value, is.get(key).unwrap_or(&Value::Null), format!("{path}/{key}"))
                })
                .or_else(|| added.map(|key| format!("{path}/{key}")))
        }
        (Value::Array(was), Value::Array(is)) => {
            let longest = was.len().max(is.len());
            (0..longest).find_map(|at| {
                let get = |items: &[Value]| items.get(at).cloned().unwrap_or(Value::Null);
                differs(&get(was), &get(is), format!("{path}/{at}"))
            })
        }
        _ => (was != is).then_some(path),
    }
}
