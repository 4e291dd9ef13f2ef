//! Tells the lines of the CLI apart, and reads its control frames.
//!
//! Keys may stand in any order, so a line is parsed whole before its type is known. Payloads stay raw JSON until they
//! are used.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de;
use serde_json::value::RawValue;

use super::lenient::{JsonSource, each_field};
use super::message::read::mend;
use super::rpc::Rpc;

/// A line of the CLI.
#[derive(Debug)]
pub(crate) enum Frame {
    Request {
        request_id: String,
        body: ControlRequest,
    },
    /// An answer to a request of ours.
    Response(ControlReply),
    /// The CLI withdraws a request.
    Cancel {
        request_id: String,
    },
    KeepAlive,
    /// A message of the conversation, or a type that is newer than this library.
    Message,
}

/// A line that is no frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    Blank,
    /// Other text, as some builds of the CLI print it for people.
    Noise,
    /// Starts like a frame; the text says why it is none.
    Malformed(String),
}

/// A request of the CLI, by who serves it.
#[derive(Debug)]
pub(crate) enum ControlRequest {
    /// A message to an in-process MCP server.
    Mcp {
        server: String,
        rpc: Rpc,
    },
    Callback(CallbackRequest),
    Unserved(UnservedRequest),
}

/// A request that callbacks of the application answer.
#[derive(Debug)]
pub(crate) enum CallbackRequest {
    /// May this tool run? (`can_use_tool`)
    Permission(Box<RawValue>),
    Hook {
        callback_id: String,
        tool_use_id: Option<String>,
        input: Box<RawValue>,
    },
    /// An MCP server asks the user.
    Elicitation(Box<RawValue>),
    /// The CLI asks the user.
    Dialog {
        kind: Option<String>,
        raw: Box<RawValue>,
    },
}

/// A request that this library does not serve.
#[derive(Debug)]
pub(crate) enum UnservedRequest {
    /// Meant for another machine: must be left without an answer.
    Silent { subtype: String },
    /// A subtype that this library does not know.
    Unknown { subtype: String },
    /// A known subtype without a field that it needs.
    Incomplete { subtype: String, missing: &'static str },
}

/// The CLI's answer to a request of ours.
#[derive(Debug)]
pub(crate) struct ControlReply {
    pub(crate) request_id: String,
    pub(crate) outcome: Result<Box<RawValue>, ReplyError>,
    /// Earlier requests of the CLI that still wait for an answer, with their ids: in the answer to `initialize`.
    pub(crate) pending: Vec<(String, ControlRequest)>,
}

/// An error that the CLI answers with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplyError {
    pub(crate) message: String,
    pub(crate) code: Option<String>,
}

/// The fields that tell a line's type. Raw, because a message may have fields of these names in any shape.
#[derive(Default)]
struct Outer<'a> {
    kind: Option<&'a RawValue>,
    request_id: Option<&'a RawValue>,
    request: Option<&'a RawValue>,
    response: Option<&'a RawValue>,
}

impl<'a> Outer<'a> {
    // A derived struct would refuse a duplicate key; here the last one wins, as in JavaScript.
    fn read(line: &'a [u8]) -> serde_json::Result<Self> {
        let (mut outer, mut json) = (Self::default(), serde_json::Deserializer::from_slice(line));
        each_field(&mut json, &mut |key, value| {
            let JsonSource::Raw(raw) = value else { return };
            match key {
                "type" => outer.kind = Some(raw),
                "request_id" => outer.request_id = Some(raw),
                "request" => outer.request = Some(raw),
                "response" => outer.response = Some(raw),
                _ => {}
            }
        })?;
        json.end().map(|()| outer)
    }
}

/// The fields of a control frame, raw, so that a field of an unexpected shape spoils no other field.
type ControlFields<'a> = BTreeMap<String, &'a RawValue>;

fn text(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
}

/// Replaces lone surrogates by U+FFFD. JavaScript writes a text that was cut inside a surrogate pair as an escape that
/// is not valid Unicode; such a text may be anywhere in a request.
fn mended(raw: &RawValue) -> Cow<'_, RawValue> {
    match mend(raw.get()) {
        Cow::Borrowed(_) => Cow::Borrowed(raw),
        Cow::Owned(text) => RawValue::from_string(text).map_or(Cow::Borrowed(raw), Cow::Owned),
    }
}

/// Subtypes of requests that are meant for another machine.
const SILENT: [&str; 4] =
    ["remote_tool_call", "remote_plumbing_call", "remote_tools_probe", "remote_tools_reannounce"];

impl Frame {
    pub(crate) fn parse(line: &[u8]) -> Result<Self, Unreadable> {
        let Some(first) = line.iter().find(|byte| !byte.is_ascii_whitespace()) else {
            return Err(Unreadable::Blank);
        };
        if *first != b'{' {
            return Err(Unreadable::Noise);
        }
        Self::read(line).or_else(|problem| {
            if std::str::from_utf8(line).is_err() {
                // Allowed in all fields but the `type`, which would be another one.
                let text = String::from_utf8_lossy(line);
                let kind = Outer::read(text.as_bytes()).ok().and_then(|outer| outer.kind);
                return match kind.is_some_and(|kind| !kind.get().contains(char::REPLACEMENT_CHARACTER)) {
                    true => Self::read(text.as_bytes()),
                    false => Err(problem),
                };
            }
            // A lone surrogate in a key or in the `type` is no error for JavaScript: mend the line and try again.
            match serde_json::from_slice::<&RawValue>(line).map(mended) {
                Ok(Cow::Owned(mended)) => Self::read(mended.get().as_bytes()),
                Ok(Cow::Borrowed(_)) | Err(_) => Err(problem),
            }
        })
    }

    fn read(line: &[u8]) -> Result<Self, Unreadable> {
        let malformed = |error: serde_json::Error| Unreadable::Malformed(error.to_string());
        let outer = Outer::read(line).map_err(malformed)?;
        let kind = outer.kind.ok_or_else(|| malformed(de::Error::missing_field("type")))?;
        let kind: String = serde_json::from_str(kind.get()).map_err(malformed)?;
        let missing = |field: &str| Unreadable::Malformed(format!("a {kind} without `{field}`"));
        let request_id = || text(outer.request_id).ok_or_else(|| missing("request_id"));
        match kind.as_str() {
            // A request with an id wants an answer, however little the rest makes sense.
            "control_request" => {
                Ok(Frame::Request { request_id: request_id()?, body: ControlRequest::parse(outer.request) })
            }
            "control_response" => {
                let response = outer.response.ok_or_else(|| missing("response"))?;
                ControlReply::parse(response)
                    .map(Frame::Response)
                    .ok_or_else(|| missing("response.request_id"))
            }
            "control_cancel_request" => Ok(Frame::Cancel { request_id: request_id()? }),
            "keep_alive" => Ok(Frame::KeepAlive),
            _ => Ok(Frame::Message),
        }
    }
}

impl ControlRequest {
    fn parse(raw: Option<&RawValue>) -> Self {
        let incomplete = |subtype: &str, missing| {
            Self::Unserved(UnservedRequest::Incomplete { subtype: subtype.to_owned(), missing })
        };
        let Some(raw) = raw.map(mended) else { return incomplete("control", "request") };
        let Ok(fields) = serde_json::from_str::<ControlFields<'_>>(raw.get()) else {
            return incomplete("control", "an object as `request`");
        };
        let field = |name: &str| fields.get(name).copied();
        let Some(subtype) = text(field("subtype")) else { return incomplete("control", "subtype") };
        Self::Callback(match subtype.as_str() {
            // `sdk_mcp_request` and `serverName` are older spellings.
            "mcp_message" | "sdk_mcp_request" => {
                return match (
                    text(field("server_name")).or_else(|| text(field("serverName"))),
                    field("message"),
                ) {
                    (Some(server), Some(message)) => Self::Mcp { server, rpc: Rpc::parse(message) },
                    (None, _) => incomplete(&subtype, "server_name"),
                    (_, None) => incomplete(&subtype, "message"),
                };
            }
            "hook_callback" => {
                let Some(callback_id) = text(field("callback_id")) else {
                    return incomplete(&subtype, "callback_id");
                };
                let Some(input) = field("input") else { return incomplete(&subtype, "input") };
                let tool_use_id = text(field("tool_use_id"));
                CallbackRequest::Hook { callback_id, tool_use_id, input: input.to_owned() }
            }
            "can_use_tool" => CallbackRequest::Permission(raw.into_owned()),
            "elicitation" => CallbackRequest::Elicitation(raw.into_owned()),
            "request_user_dialog" => {
                CallbackRequest::Dialog { kind: text(field("dialog_kind")), raw: raw.into_owned() }
            }
            other if SILENT.contains(&other) => return Self::Unserved(UnservedRequest::Silent { subtype }),
            _ => return Self::Unserved(UnservedRequest::Unknown { subtype }),
        })
    }
}

impl ControlReply {
    /// `None` without the id of the request that is answered.
    fn parse(raw: &RawValue) -> Option<Self> {
        let raw = mended(raw);
        let fields: ControlFields<'_> = serde_json::from_str(raw.get()).ok()?;
        let field = |name: &str| fields.get(name).copied();
        let outcome = if text(field("subtype")).is_some_and(|subtype| subtype == "error") {
            let message = match field("error") {
                // An error that is no text is kept as JSON.
                Some(error) => text(Some(error)).unwrap_or_else(|| error.get().to_owned()),
                None => "no reason given".to_owned(),
            };
            Err(ReplyError { message, code: text(field("error_code")) })
        } else {
            Ok(field("response").map_or_else(empty_object, ToOwned::to_owned))
        };
        let pending = PENDING.into_iter().filter_map(field).flat_map(Self::pending).collect();
        Some(Self { request_id: text(field("request_id"))?, outcome, pending })
    }

    /// The requests of a list. Skips entries that are not requests: nobody waits for an answer to them.
    fn pending(list: &RawValue) -> impl Iterator<Item = (String, ControlRequest)> {
        let list: Vec<&RawValue> = serde_json::from_str(list.get()).unwrap_or_default();
        list.into_iter().filter_map(|frame| {
            let frame: ControlFields<'_> = serde_json::from_str(frame.get()).ok()?;
            let request_id = text(frame.get("request_id").copied())?;
            Some((request_id, ControlRequest::parse(frame.get("request").copied())))
        })
    }
}

/// Fields of the answer to `initialize` that list pending requests: beside its body, so an error may have them too.
const PENDING: [&str; 3] =
    ["pending_permission_requests", "pending_user_dialog_requests", "pending_elicitation_requests"];

/// The body of an answer that has none.
pub(crate) fn empty_object() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

#[cfg(test)]
mod tests;
