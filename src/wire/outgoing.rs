//! The control frames that we write, as JSON texts.

use serde::Serialize;
use serde_json::Value;

/// Prefix of the ids of pushed notifications, whose acknowledgement by the CLI is ignored.
pub(crate) const PUSH_PREFIX: &str = "push_";

/// A control request.
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

/// The body of a control request that carries a JSON-RPC message of an in-process server.
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

/// A successful answer to a control request.
pub(crate) fn success<B: Serialize>(request_id: &str, response: B) -> serde_json::Result<Vec<u8>> {
    let response = OutSuccessBody { subtype: "success", request_id, response };
    serde_json::to_vec(&OutSuccess { kind: "control_response", response })
}

/// The body of the answer to an `mcp_message`.
#[derive(Serialize)]
pub(crate) struct McpResponse<M: Serialize> {
    pub(crate) mcp_response: M,
}

/// An error as the answer to a control request.
pub(crate) fn error(request_id: &str, message: &str, code: Option<&str>) -> Vec<u8> {
    let mut response = serde_json::json!({ "subtype": "error", "request_id": request_id, "error": message });
    if let Some(code) = code {
        response["error_code"] = Value::from(code);
    }
    serde_json::json!({ "type": "control_response", "response": response }).to_string().into_bytes()
}

/// The withdrawal of a control request.
pub(crate) fn cancel(request_id: &str) -> Vec<u8> {
    serde_json::json!({ "type": "control_cancel_request", "request_id": request_id }).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn control_frames_have_the_shape_of_the_protocol() {
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
