//! What a line is, and the control frames that we write.
//!
//! Keys may stand in any order, so a line is parsed whole before it is told apart. Payloads stay raw until
//! someone needs them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::rpc::Rpc;

/// A line of the CLI, told apart. Borrows from the line.
#[derive(Debug)]
pub(crate) enum Frame<'a> {
    /// The CLI asks us something.
    Request { request_id: Cow<'a, str>, body: Request },
    /// The CLI answers something that we asked.
    Response(Reply),
    /// The CLI withdraws something that it asked.
    Cancel { request_id: Cow<'a, str> },
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
    Hook { callback_id: String, input: Box<RawValue> },
    /// An MCP server asks the person something.
    Elicitation(Box<RawValue>),
    /// The CLI asks the person something.
    Dialog(Box<RawValue>),
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
}

/// An error that the CLI answers with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplyError {
    pub(crate) message: String,
    pub(crate) code: Option<String>,
}

#[derive(Deserialize)]
struct Outer<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    request_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    request: Option<&'a RawValue>,
    #[serde(borrow, default)]
    response: Option<&'a RawValue>,
}

/// Raw, so that a field of another shape than expected spoils nothing but itself.
#[derive(Deserialize)]
struct RequestFields<'a> {
    #[serde(borrow, default)]
    subtype: Option<&'a RawValue>,
    #[serde(borrow, default)]
    server_name: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "serverName")]
    old_server_name: Option<&'a RawValue>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    callback_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
}

fn text(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
}

#[derive(Deserialize)]
struct ResponseFields<'a> {
    #[serde(borrow)]
    subtype: Cow<'a, str>,
    #[serde(borrow)]
    request_id: Cow<'a, str>,
    #[serde(borrow, default)]
    response: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    error_code: Option<Cow<'a, str>>,
}

/// Requests that are meant for another machine and must be left unanswered.
const SILENT: [&str; 4] =
    ["remote_tool_call", "remote_plumbing_call", "remote_tools_probe", "remote_tools_reannounce"];

impl<'a> Frame<'a> {
    /// Tells a line apart.
    pub(crate) fn parse(line: &'a [u8]) -> Result<Self, Unreadable> {
        let Some(first) = line.iter().find(|byte| !byte.is_ascii_whitespace()) else {
            return Err(Unreadable::Blank);
        };
        if *first != b'{' {
            return Err(Unreadable::Noise);
        }
        let malformed = |error: serde_json::Error| Unreadable::Malformed(error.to_string());
        let outer: Outer<'a> = serde_json::from_slice(line).map_err(malformed)?;
        let missing = |field: &str| Unreadable::Malformed(format!("a {} without `{field}`", outer.kind));
        match &*outer.kind {
            "control_request" => {
                let request_id = outer.request_id.ok_or_else(|| missing("request_id"))?;
                // Whoever gave it an id waits for an answer, however little the rest makes sense.
                Ok(Frame::Request { request_id, body: Request::parse(outer.request) })
            }
            "control_response" => {
                let response = outer.response.ok_or_else(|| missing("response"))?;
                Ok(Frame::Response(Reply::parse(response).map_err(malformed)?))
            }
            "control_cancel_request" => {
                Ok(Frame::Cancel { request_id: outer.request_id.ok_or_else(|| missing("request_id"))? })
            }
            "keep_alive" => Ok(Frame::KeepAlive),
            _ => Ok(Frame::Message),
        }
    }
}

impl Request {
    fn parse(raw: Option<&RawValue>) -> Self {
        let incomplete =
            |subtype: &str, missing| Request::Incomplete { subtype: subtype.to_owned(), missing };
        let Some(raw) = raw else { return incomplete("control", "request") };
        let Ok(fields) = serde_json::from_str::<RequestFields<'_>>(raw.get()) else {
            return incomplete("control", "an object as `request`");
        };
        let Some(subtype) = text(fields.subtype) else { return incomplete("control", "subtype") };
        match subtype.as_str() {
            // `sdk_mcp_request` is an older spelling.
            "mcp_message" | "sdk_mcp_request" => {
                match (text(fields.server_name).or_else(|| text(fields.old_server_name)), fields.message) {
                    (Some(server), Some(message)) => Request::Mcp { server, rpc: Rpc::parse(message) },
                    (None, _) => Request::Incomplete { subtype, missing: "server_name" },
                    (_, None) => Request::Incomplete { subtype, missing: "message" },
                }
            }
            "can_use_tool" => Request::CanUseTool(raw.to_owned()),
            "hook_callback" => match (text(fields.callback_id), fields.input) {
                (Some(callback_id), Some(input)) => Request::Hook { callback_id, input: input.to_owned() },
                (None, _) => Request::Incomplete { subtype, missing: "callback_id" },
                (_, None) => Request::Incomplete { subtype, missing: "input" },
            },
            "elicitation" => Request::Elicitation(raw.to_owned()),
            "request_user_dialog" => Request::Dialog(raw.to_owned()),
            other if SILENT.contains(&other) => Request::Silent { subtype },
            _ => Request::Unknown { subtype },
        }
    }
}

impl Reply {
    fn parse(raw: &RawValue) -> serde_json::Result<Self> {
        let fields: ResponseFields<'_> = serde_json::from_str(raw.get())?;
        let outcome = if fields.subtype == "error" {
            let message = fields.error.map_or_else(|| "no reason given".to_owned(), Cow::into_owned);
            Err(ReplyError { message, code: fields.error_code.map(Cow::into_owned) })
        } else {
            Ok(fields.response.map_or_else(empty_object, ToOwned::to_owned))
        };
        Ok(Self { request_id: fields.request_id.into_owned(), outcome })
    }
}

fn empty_object() -> Box<RawValue> {
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
        assert!(matches!(request(json!({"subtype": "request_user_dialog"})), Request::Dialog(_)));
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
