//! The JSON-RPC messages inside `mcp_message`.
//!
//! `method` tells requests from responses, never the id: both sides count their ids from 0, so a response of one side
//! may have the id of an open request of the other. Ids are echoed as raw JSON, so that any number survives.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::brief::Short;
use super::lenient::{each_field, read_object};

/// MCP protocol versions of this library, newest first.
pub(crate) const PROTOCOL_VERSIONS: [&str; 5] =
    ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05", "2024-10-07"];

pub(crate) const INVALID_REQUEST: i64 = -32600;
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
pub(crate) const INVALID_PARAMS: i64 = -32602;
pub(crate) const INTERNAL_ERROR: i64 = -32603;
/// MCP: no such resource.
pub(crate) const RESOURCE_NOT_FOUND: i64 = -32002;
/// MCP: the request was cancelled.
pub(crate) const REQUEST_CANCELLED: i64 = -32800;

/// A JSON-RPC message.
#[derive(Debug)]
pub(crate) enum Rpc {
    Request {
        id: Box<RawValue>,
        method: String,
        params: Option<Box<RawValue>>,
    },
    Notification {
        method: String,
        params: Option<Box<RawValue>>,
    },
    /// An answer. Servers send no requests, so it answers none.
    Response,
    /// Not a JSON-RPC message.
    Malformed,
}

#[derive(Deserialize)]
struct RpcFields<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl Rpc {
    /// Never fails: anything else is [`Rpc::Malformed`].
    pub(crate) fn parse(message: &RawValue) -> Self {
        let Ok(fields) = read_object::<RpcFields<'_>>(message.get()) else {
            return Rpc::Malformed;
        };
        // JSON null is no id. Other ids must be numbers or strings: an object or an array could hold a line end, which
        // would tear the line that echoes the id.
        let id = match fields.id.map(RawValue::get) {
            None | Some("null") => None,
            Some(id) if is_id(id) => fields.id,
            Some(_) => return Rpc::Malformed,
        };
        let id = id.map(ToOwned::to_owned);
        let params = fields.params.map(ToOwned::to_owned);
        match (fields.method, id) {
            (Some(method), Some(id)) => Rpc::Request { id, method, params },
            (Some(method), None) => Rpc::Notification { method, params },
            (None, _) if fields.result.is_some() || fields.error.is_some() => Rpc::Response,
            _ => Rpc::Malformed,
        }
    }
}

/// Whether this JSON is a string or a number, as ids and progress tokens are.
pub(super) fn is_id(json: &str) -> bool {
    json.starts_with(|c: char| c == '"' || c == '-' || c.is_ascii_digit())
}

/// A JSON-RPC error. Handlers of resources return one to choose the error code. `Debug` prints the text and the data.
///
/// ```
/// use greenroom::mcp::RpcError;
///
/// let error = RpcError::resource_not_found("file:///gone.txt");
/// assert_eq!(error.code, -32002);
/// assert_eq!(error.to_string(), "Resource 'file:///gone.txt' not found (-32002)");
/// ```
#[derive(Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message} ({code})")]
#[non_exhaustive]
pub struct RpcError {
    /// Error code of JSON-RPC or MCP: -32602 for bad parameters, -32603 for an internal error.
    pub code: i64,
    /// Text of the error.
    pub message: String,
    /// Additional information, for example the URI of a missing resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl fmt::Debug for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        self.data.as_ref().map_or(Ok(()), |data| write!(f, "\nData: {data}"))
    }
}

impl RpcError {
    /// An error with `code`.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// Bad parameters (-32602).
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }

    /// An internal error (-32603).
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(INTERNAL_ERROR, message)
    }

    /// No such resource (-32002). The text and the [`data`](RpcError::data) name the URI. A URI of more than 200
    /// characters is cut in the text, and left out of the data.
    pub fn resource_not_found(uri: &str) -> Self {
        let shown = Short(uri);
        let data = shown.is_whole().then(|| serde_json::json!({ "uri": uri }));
        Self { data, ..Self::new(RESOURCE_NOT_FOUND, format!("Resource '{shown}' not found")) }
    }

    pub(crate) fn unknown_method(method: &str) -> Self {
        Self::new(METHOD_NOT_FOUND, format!("Method '{}' not supported", Short(method)))
    }

    pub(crate) fn unknown_server(server: &str) -> Self {
        Self::new(METHOD_NOT_FOUND, format!("Server '{}' not found", Short(server)))
    }

    pub(crate) fn unknown_tool(tool: &str) -> Self {
        Self::new(METHOD_NOT_FOUND, format!("Tool '{}' not found", Short(tool)))
    }

    pub(crate) fn cancelled() -> Self {
        Self::new(REQUEST_CANCELLED, "Request cancelled")
    }
}

/// A JSON-RPC response, to be written.
#[derive(Debug, Serialize)]
pub(crate) struct RpcResponse<'a, R: Serialize> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<R>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a RpcError>,
}

impl<'a, R: Serialize> RpcResponse<'a, R> {
    pub(crate) fn result(id: Option<&'a RawValue>, result: R) -> Self {
        Self { jsonrpc: "2.0", id, result: Some(result), error: None }
    }

    pub(crate) fn error(id: Option<&'a RawValue>, error: &'a RpcError) -> Self {
        Self { jsonrpc: "2.0", id, result: None, error: Some(error) }
    }
}

/// A JSON-RPC notification, to be written.
#[derive(Debug, Serialize)]
pub(crate) struct RpcNotification<'a, P: Serialize> {
    jsonrpc: &'static str,
    method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<P>,
}

impl<'a, P: Serialize> RpcNotification<'a, P> {
    pub(crate) fn new(method: &'a str, params: Option<P>) -> Self {
        Self { jsonrpc: "2.0", method, params }
    }
}

/// The parameters of `tools/call`.
#[derive(Debug, Deserialize)]
pub(crate) struct CallParams {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) arguments: Option<Box<RawValue>>,
    #[serde(default, rename = "_meta")]
    pub(crate) meta: Option<CallMeta>,
}

/// The fields of a call's `_meta` that matter here.
#[derive(Debug, Default)]
pub(crate) struct CallMeta {
    pub(crate) tool_use_id: Option<String>,
    /// A string or a number, echoed as raw JSON.
    pub(crate) progress_token: Option<Box<RawValue>>,
}

impl<'de> Deserialize<'de> for CallMeta {
    /// Ignores fields of another type, and a `_meta` that is no object: a call must not fail because the CLI changes
    /// what it says beside the call.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let raw = <&'de RawValue>::deserialize(from)?;
        let mut meta = Self::default();
        let read =
            each_field(&mut serde_json::Deserializer::from_str(raw.get()), &mut |key, value| match key {
                "claudecode/toolUseId" => meta.tool_use_id = value.parse(),
                "progressToken" => {
                    meta.progress_token = value.parse::<Box<RawValue>>().filter(|token| is_id(token.get()));
                }
                _ => {}
            });
        Ok(read.map_or_else(|_| Self::default(), |()| meta))
    }
}

/// The parameters of `notifications/cancelled`.
#[derive(Debug, Deserialize)]
pub(crate) struct CancelledParams {
    #[serde(rename = "requestId")]
    pub(crate) request_id: Box<RawValue>,
    #[serde(default)]
    pub(crate) reason: Option<String>,
}

/// The parameters of MCP `initialize` that matter here.
#[derive(Debug, Deserialize)]
pub(crate) struct InitializeParams {
    #[serde(rename = "protocolVersion")]
    pub(crate) protocol_version: String,
}

/// The version to answer with: the requested one if this library has it, else the newest.
pub(crate) fn negotiate(asked: &str) -> &'static str {
    PROTOCOL_VERSIONS.into_iter().find(|version| *version == asked).unwrap_or(PROTOCOL_VERSIONS[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Rpc {
        Rpc::parse(&RawValue::from_string(json.to_owned()).unwrap())
    }

    #[test]
    fn the_method_tells_requests_from_responses() {
        assert!(matches!(parse(r#"{"id":0,"method":"ping"}"#), Rpc::Request { .. }));
        assert!(matches!(parse(r#"{"id":null,"method":"x"}"#), Rpc::Notification { .. }));
        assert!(matches!(parse(r#"{"method":"notifications/initialized"}"#), Rpc::Notification { .. }));
        assert!(matches!(parse(r#"{"id":1,"result":{}}"#), Rpc::Response));
        assert!(matches!(parse(r#"{"id":1,"error":{"code":-1,"message":"no"}}"#), Rpc::Response));
        assert!(matches!(parse(r#"{"id":0,"error":"odd"}"#), Rpc::Response));
        assert!(matches!(parse(r#"{"id":1}"#), Rpc::Malformed));
        assert!(matches!(parse(r#"[1]"#), Rpc::Malformed));
        assert!(matches!(parse("{\"id\":[1,\r2],\"method\":\"ping\"}"), Rpc::Malformed));
        assert!(matches!(parse(r#"{"id":true,"method":"ping"}"#), Rpc::Malformed));
        assert!(matches!(parse(r#"{"method":7,"id":1}"#), Rpc::Malformed));
    }

    #[test]
    fn ids_keep_their_raw_json() {
        for id in ["18446744073709551615", "\"a\\u0041\"", "-1", "1.5"] {
            let Rpc::Request { id: parsed, .. } = parse(&format!(r#"{{"method":"ping","id":{id}}}"#)) else {
                panic!()
            };
            assert_eq!(parsed.get(), id);
        }
    }

    #[test]
    fn versions_are_negotiated() {
        assert_eq!(negotiate("2024-11-05"), "2024-11-05");
        assert_eq!(negotiate("2031-01-01"), "2025-11-25");
    }
}
