//! What a line is, and the control frames that we write.
//!
//! Keys may stand in any order, so a line is parsed whole before it is told apart. Payloads stay raw until
//! someone needs them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::message::read::mend;
use super::rpc::Rpc;

/// A line of the CLI, told apart.
#[derive(Debug)]
pub(crate) enum Frame {
    /// The CLI asks us something.
    Request { request_id: String, body: Request },
    /// The CLI answers something that we asked.
    Response(Reply),
    /// The CLI withdraws something that it asked.
    Cancel { request_id: String },
    /// A sign of life.
    KeepAlive,
    /// Part of the conversation, or something newer than this library: handed on as it is.
    Message,
}

/// Why a line is no frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// A blank line.
    Blank,
    /// Some other text: builds of the CLI print such lines, and they mean nothing.
    Noise,
    /// It starts like a frame and is none; the text says why.
    Malformed(String),
}

/// What the CLI asks.
#[derive(Debug)]
pub(crate) enum Request {
    /// A message for an in-process MCP server.
    Mcp { server: String, rpc: Rpc },
    /// May this tool run?
    CanUseTool(Box<RawValue>),
    /// A hook of ours.
    Hook { callback_id: String, tool_use_id: Option<String>, input: Box<RawValue> },
    /// An MCP server asks the person something.
    Elicitation(Box<RawValue>),
    /// The CLI asks the person something.
    Dialog { kind: Option<String>, raw: Box<RawValue> },
    /// Meant for another machine: must be left unanswered.
    Silent { subtype: String },
    /// A subtype that this library does not know.
    Unknown { subtype: String },
    /// A subtype that it knows, without what belongs to it.
    Incomplete { subtype: String, missing: &'static str },
}

/// The CLI's answer to a request of ours.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) request_id: String,
    pub(crate) outcome: Result<Box<RawValue>, ReplyError>,
    /// What the CLI asked before and still waits for, with the ids. The answer to `initialize` lists it.
    pub(crate) pending: Vec<(String, Request)>,
}

/// An error that the CLI answers with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplyError {
    pub(crate) message: String,
    pub(crate) code: Option<String>,
}

/// What tells a line apart, in one pass that skips the rest. All of it raw: a message may have a field of the same
/// name and of any shape.
#[derive(Default)]
struct Outer<'a> {
    kind: Option<&'a RawValue>,
    request_id: Option<&'a RawValue>,
    request: Option<&'a RawValue>,
    response: Option<&'a RawValue>,
}

#[derive(serde::Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Key {
    Type,
    RequestId,
    Request,
    Response,
    #[serde(other)]
    Other,
}

impl<'de: 'a, 'a> Deserialize<'de> for Outer<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OuterVisitor)
    }
}

struct OuterVisitor;

impl<'de> Visitor<'de> for OuterVisitor {
    type Value = Outer<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object with a string `type`")
    }

    // Written by hand because a derived struct refuses a key that stands twice; here the last one counts, as in
    // JavaScript.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Outer<'de>, A::Error> {
        let mut outer = Outer::default();
        while let Some(key) = map.next_key()? {
            match key {
                Key::Type => outer.kind = Some(map.next_value()?),
                Key::RequestId => outer.request_id = Some(map.next_value()?),
                Key::Request => outer.request = Some(map.next_value()?),
                Key::Response => outer.response = Some(map.next_value()?),
                Key::Other => drop(map.next_value::<de::IgnoredAny>()?),
            }
        }
        Ok(outer)
    }
}

/// The fields of a control frame, raw, so that a field of another shape than expected spoils nothing but itself.
type Fields<'a> = BTreeMap<String, &'a RawValue>;

fn text(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
}

/// JavaScript writes a text that was cut inside a surrogate pair as an escape that is no Unicode. It may stand anywhere
/// in what a tool, a hook or a permission is asked about, and is U+FFFD from here on.
fn mended(raw: &RawValue) -> Cow<'_, RawValue> {
    match mend(raw.get()) {
        Cow::Borrowed(_) => Cow::Borrowed(raw),
        Cow::Owned(text) => RawValue::from_string(text).map_or(Cow::Borrowed(raw), Cow::Owned),
    }
}

/// Requests that are meant for another machine and must be left unanswered.
const SILENT: [&str; 4] =
    ["remote_tool_call", "remote_plumbing_call", "remote_tools_probe", "remote_tools_reannounce"];

impl Frame {
    /// Tells a line apart.
    pub(crate) fn parse(line: &[u8]) -> Result<Self, Unreadable> {
        let Some(first) = line.iter().find(|byte| !byte.is_ascii_whitespace()) else {
            return Err(Unreadable::Blank);
        };
        if *first != b'{' {
            return Err(Unreadable::Noise);
        }
        Self::read(line).or_else(|problem| {
            // It may be JSON all the same, with half of a surrogate pair in a key or in the `type`.
            match serde_json::from_slice::<&RawValue>(line).map(mended) {
                Ok(Cow::Owned(mended)) => Self::read(mended.get().as_bytes()),
                Ok(Cow::Borrowed(_)) | Err(_) => Err(problem),
            }
        })
    }

    fn read(line: &[u8]) -> Result<Self, Unreadable> {
        let malformed = |error: serde_json::Error| Unreadable::Malformed(error.to_string());
        let outer: Outer<'_> = serde_json::from_slice(line).map_err(malformed)?;
        let kind = outer.kind.ok_or_else(|| malformed(de::Error::missing_field("type")))?;
        let kind: String = serde_json::from_str(kind.get()).map_err(malformed)?;
        let missing = |field: &str| Unreadable::Malformed(format!("a {kind} without `{field}`"));
        let request_id = || text(outer.request_id).ok_or_else(|| missing("request_id"));
        match kind.as_str() {
            // Whoever gave it an id waits for an answer, however little the rest makes sense.
            "control_request" => {
                Ok(Frame::Request { request_id: request_id()?, body: Request::parse(outer.request) })
            }
            "control_response" => {
                let response = outer.response.ok_or_else(|| missing("response"))?;
                Reply::parse(response).map(Frame::Response).ok_or_else(|| missing("response.request_id"))
            }
            "control_cancel_request" => Ok(Frame::Cancel { request_id: request_id()? }),
            "keep_alive" => Ok(Frame::KeepAlive),
            _ => Ok(Frame::Message),
        }
    }
}

impl Request {
    fn parse(raw: Option<&RawValue>) -> Self {
        let incomplete =
            |subtype: &str, missing| Request::Incomplete { subtype: subtype.to_owned(), missing };
        let Some(raw) = raw.map(mended) else { return incomplete("control", "request") };
        let Ok(fields) = serde_json::from_str::<Fields<'_>>(raw.get()) else {
            return incomplete("control", "an object as `request`");
        };
        let field = |name: &str| fields.get(name).copied();
        let Some(subtype) = text(field("subtype")) else { return incomplete("control", "subtype") };
        match subtype.as_str() {
            // `sdk_mcp_request` is an older spelling.
            "mcp_message" | "sdk_mcp_request" => {
                match (text(field("server_name")).or_else(|| text(field("serverName"))), field("message")) {
                    (Some(server), Some(message)) => Request::Mcp { server, rpc: Rpc::parse(message) },
                    (None, _) => Request::Incomplete { subtype, missing: "server_name" },
                    (_, None) => Request::Incomplete { subtype, missing: "message" },
                }
            }
            "can_use_tool" => Request::CanUseTool(raw.into_owned()),
            "hook_callback" => match (text(field("callback_id")), field("input")) {
                (Some(callback_id), Some(input)) => {
                    let tool_use_id = text(field("tool_use_id"));
                    Request::Hook { callback_id, tool_use_id, input: input.to_owned() }
                }
                (None, _) => Request::Incomplete { subtype, missing: "callback_id" },
                (_, None) => Request::Incomplete { subtype, missing: "input" },
            },
            "elicitation" => Request::Elicitation(raw.into_owned()),
            "request_user_dialog" => {
                Request::Dialog { kind: text(field("dialog_kind")), raw: raw.into_owned() }
            }
            other if SILENT.contains(&other) => Request::Silent { subtype },
            _ => Request::Unknown { subtype },
        }
    }
}

impl Reply {
    /// `None` if it does not say what it answers.
    fn parse(raw: &RawValue) -> Option<Self> {
        let raw = mended(raw);
        let fields: Fields<'_> = serde_json::from_str(raw.get()).ok()?;
        let field = |name: &str| fields.get(name).copied();
        let outcome = if text(field("subtype")).is_some_and(|subtype| subtype == "error") {
            let message = match field("error") {
                // An error of another shape than a text is told as it stands.
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

    /// The requests of a list; what is none is passed over, for nobody waits for an answer to it.
    fn pending(list: &RawValue) -> impl Iterator<Item = (String, Request)> {
        let list: Vec<&RawValue> = serde_json::from_str(list.get()).unwrap_or_default();
        list.into_iter().filter_map(|frame| {
            let frame: Fields<'_> = serde_json::from_str(frame.get()).ok()?;
            let request_id = text(frame.get("request_id").copied())?;
            Some((request_id, Request::parse(frame.get("request").copied())))
        })
    }
}

/// Where the answer to `initialize` lists what is pending: beside its body, so that an error may have it, too.
const PENDING: [&str; 3] =
    ["pending_permission_requests", "pending_user_dialog_requests", "pending_elicitation_requests"];

/// The answer of a CLI that acknowledges only.
pub(crate) fn empty_object() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// A control request of ours, ready to be written.
#[derive(Serialize)]
pub(crate) struct OutRequest<'a, B: Serialize> {
    #[serde(rename = "type")]
    kind: &'static str,
    request_id: &'a str,
    request: B,
}

impl<'a, B: Serialize> OutRequest<'a, B> {
    pub(crate) fn new(request_id: &'a str, request: B) -> Self {
        Self { kind: "control_request", request_id, request }
    }
}

/// The body of a message that an in-process server pushes to the CLI.
#[derive(Serialize)]
pub(crate) struct OutMcp<'a, M: Serialize> {
    subtype: &'static str,
    server_name: &'a str,
    message: M,
}

impl<'a, M: Serialize> OutMcp<'a, M> {
    pub(crate) fn new(server_name: &'a str, message: M) -> Self {
        Self { subtype: "mcp_message", server_name, message }
    }
}

/// A successful answer of ours, ready to be written.
#[derive(Serialize)]
struct OutSuccess<'a, B: Serialize> {
    #[serde(rename = "type")]
    kind: &'static str,
    response: OutSuccessBody<'a, B>,
}

#[derive(Serialize)]
struct OutSuccessBody<'a, B: Serialize> {
    subtype: &'static str,
    request_id: &'a str,
    response: B,
}

/// A successful answer to a control request, as JSON.
pub(crate) fn success<B: Serialize>(request_id: &str, response: B) -> serde_json::Result<Vec<u8>> {
    let response = OutSuccessBody { subtype: "success", request_id, response };
    serde_json::to_vec(&OutSuccess { kind: "control_response", response })
}

/// An answer to an `mcp_message`.
#[derive(Serialize)]
pub(crate) struct McpResponse<M: Serialize> {
    pub(crate) mcp_response: M,
}

/// An error as the answer to a control request, as JSON.
pub(crate) fn error(request_id: &str, message: &str, code: Option<&str>) -> Vec<u8> {
    let mut response = serde_json::json!({ "subtype": "error", "request_id": request_id, "error": message });
    if let Some(code) = code {
        response["error_code"] = Value::from(code);
    }
    serde_json::json!({ "type": "control_response", "response": response }).to_string().into_bytes()
}

/// The withdrawal of a request of ours, as JSON.
pub(crate) fn cancel(request_id: &str) -> Vec<u8> {
    serde_json::json!({ "type": "control_cancel_request", "request_id": request_id }).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(body: Value) -> Request {
        let line = json!({"request": body, "request_id": "r\"1", "type": "control_request"}).to_string();
        match Frame::parse(line.as_bytes()) {
            Ok(Frame::Request { request_id, body }) => {
                assert_eq!(request_id, "r\"1");
                body
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn requests_are_told_apart_wherever_the_type_stands() {
        let mcp =
            json!({"subtype": "mcp_message", "server_name": "calc", "message": {"method": "ping", "id": 1}});
        assert!(
            matches!(request(mcp), Request::Mcp { server, rpc: Rpc::Request { .. } } if server == "calc")
        );
        assert!(matches!(request(json!({"subtype": "can_use_tool"})), Request::CanUseTool(_)));
        assert!(matches!(request(json!({"subtype": "elicitation"})), Request::Elicitation(_)));
        assert!(matches!(request(json!({"subtype": "request_user_dialog"})), Request::Dialog { .. }));
        assert!(matches!(request(json!({"subtype": "remote_tools_probe"})), Request::Silent { .. }));
        assert!(matches!(request(json!({"subtype": "of_tomorrow"})), Request::Unknown { .. }));
        let hook = json!({"subtype": "hook_callback", "callback_id": "h0", "input": {}});
        assert!(matches!(request(hook), Request::Hook { .. }));
    }

    #[test]
    fn older_spellings_are_read() {
        let old = json!({"subtype": "sdk_mcp_request", "serverName": "calc", "message": {"method": "ping", "id": 1}});
        assert!(matches!(request(old), Request::Mcp { server, .. } if server == "calc"));
    }

    #[test]
    fn a_request_without_its_parts_says_what_is_missing() {
        for (body, field) in [
            (json!({"subtype": "mcp_message", "message": {}}), "server_name"),
            (json!({"subtype": "mcp_message", "server_name": "a"}), "message"),
            (json!({"subtype": "hook_callback", "input": {}}), "callback_id"),
            (json!({"subtype": "hook_callback", "callback_id": "h"}), "input"),
        ] {
            assert!(matches!(request(body), Request::Incomplete { missing, .. } if missing == field));
        }
    }

    #[test]
    fn lines_that_are_no_frames() {
        assert_eq!(Frame::parse(b"  \t").unwrap_err(), Unreadable::Blank);
        assert_eq!(Frame::parse(b"[SandboxDebug] hello").unwrap_err(), Unreadable::Noise);
        for line in [
            "{\"type\":",
            "{}",
            r#"{"type":"control_request"}"#,
            r#"{"type":"control_request","request":{"subtype":"x"}}"#,
            r#"{"type":"control_cancel_request"}"#,
            r#"{"type":"control_response"}"#,
        ] {
            assert!(matches!(Frame::parse(line.as_bytes()), Err(Unreadable::Malformed(_))), "{line}");
        }
        assert!(matches!(Frame::parse(b"{\"type\":\"a\xff\"}"), Err(Unreadable::Malformed(_))));
    }

    #[test]
    fn a_request_that_makes_no_sense_is_a_request_all_the_same() {
        for request in [r#"7"#, r#"{}"#, r#"{"subtype":7}"#] {
            let line = format!(r#"{{"type":"control_request","request_id":"r","request":{request}}}"#);
            let frame = Frame::parse(line.as_bytes());
            assert!(matches!(frame, Ok(Frame::Request { body: Request::Incomplete { .. }, .. })), "{line}");
        }
        let none = Frame::parse(br#"{"type":"control_request","request_id":"r"}"#);
        assert!(matches!(
            none,
            Ok(Frame::Request { body: Request::Incomplete { missing: "request", .. }, .. })
        ));
        assert!(matches!(request(json!({"subtype": "new", "callback_id": 7})), Request::Unknown { .. }));
        let twice = json!({
            "subtype": "mcp_message", "server_name": "a", "serverName": "b", "message": {"method": "ping", "id": 1},
        });
        assert!(matches!(request(twice), Request::Mcp { server, .. } if server == "a"));
    }

    #[test]
    fn replies_of_both_kinds() {
        let parse = |response: Value| {
            let line = json!({"type": "control_response", "response": response}).to_string();
            match Frame::parse(line.as_bytes()) {
                Ok(Frame::Response(reply)) => reply,
                other => panic!("{other:?}"),
            }
        };
        let fine = parse(json!({"subtype": "success", "request_id": "1", "response": {"a": 1}}));
        assert_eq!(fine.outcome.unwrap().get(), r#"{"a":1}"#);
        assert_eq!(parse(json!({"subtype": "success", "request_id": "1"})).outcome.unwrap().get(), "{}");
        let error =
            parse(json!({"subtype": "error", "request_id": "1", "error": "no", "error_code": "busy"}));
        assert_eq!(
            error.outcome.unwrap_err(),
            ReplyError { message: "no".into(), code: Some("busy".into()) }
        );
        let odd = parse(json!({"subtype": "error", "request_id": "1", "error": {"no": 1}, "error_code": 7}));
        assert_eq!(odd.outcome.unwrap_err(), ReplyError { message: r#"{"no":1}"#.into(), code: None });
    }

    #[test]
    fn a_reply_lists_what_is_pending() {
        let asked =
            |id: &str, body: Value| json!({"type": "control_request", "request_id": id, "request": body});
        let line = json!({"type": "control_response", "response": {
            "subtype": "success", "request_id": "1", "response": {},
            "pending_permission_requests": [asked("p1", json!({"subtype": "can_use_tool"})), 7, {"request": {}}],
            "pending_user_dialog_requests": [asked("d1", json!({"subtype": "request_user_dialog", "dialog_kind": "k"}))],
            "pending_elicitation_requests": "none",
        }});
        let Ok(Frame::Response(reply)) = Frame::parse(line.to_string().as_bytes()) else { panic!() };
        let pending: Vec<_> = reply.pending.iter().map(|(id, body)| (id.as_str(), body)).collect();
        assert!(
            matches!(&pending[..], [("p1", Request::CanUseTool(_)), ("d1", Request::Dialog { kind: Some(kind), .. })] if kind == "k"),
            "{pending:?}"
        );
    }

    #[test]
    fn a_message_may_have_fields_of_any_shape_under_the_names_of_control_frames() {
        for line in [
            r#"{"type":"new","request_id":7,"request":1,"response":[]}"#,
            r#"{"type":"new","request_id":null}"#,
            r#"{"type":7,"type":"new","request_id":"a","request_id":"b"}"#,
            r#"{"type":"\ud83d"}"#,
            r#"{"\ud83d":1,"type":"new"}"#,
        ] {
            assert!(matches!(Frame::parse(line.as_bytes()), Ok(Frame::Message)), "{line}");
        }
    }

    #[test]
    fn half_a_surrogate_pair_spoils_no_control_frame() {
        let line = br#"{"type":"control_request","request_id":"r","request":{"subtype":"hook_callback","callback_id":"h","input":{"a":"\ud83d\ud83d\ude00"}}}"#;
        let Ok(Frame::Request { body: Request::Hook { input, .. }, .. }) = Frame::parse(line) else {
            panic!()
        };
        assert_eq!(input.get(), r#"{"a":"\ufffd\ud83d\ude00"}"#);
        let line = br#"{"type":"control_response","response":{"subtype":"error","request_id":"r","error":"no\ud83d"}}"#;
        let Ok(Frame::Response(reply)) = Frame::parse(line) else { panic!() };
        assert_eq!(reply.outcome.unwrap_err().message, "no\u{fffd}");
        assert!(matches!(Frame::parse(b"{\"a\":\"\\\xC3\xA9\\ud83d\"}"), Err(Unreadable::Malformed(_))));
    }

    #[test]
    fn what_we_write_is_what_the_protocol_says() {
        let line: Value = serde_json::from_slice(&success("r1", json!({})).unwrap()).unwrap();
        assert_eq!(
            line,
            json!({"type": "control_response", "response": {"subtype": "success", "request_id": "r1", "response": {}}})
        );
        let line: Value = serde_json::from_slice(&error("r1", "no", Some("unsupported_request"))).unwrap();
        assert_eq!(line["response"]["error_code"], "unsupported_request");
        let line: Value = serde_json::from_slice(&cancel("r1")).unwrap();
        assert_eq!(line, json!({"type": "control_cancel_request", "request_id": "r1"}));
    }
}
