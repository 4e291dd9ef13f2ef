//! The fields of a line that the checks need, read without the library's own reader.

use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
pub(super) struct WireFrame<'a> {
    #[serde(rename = "type", default)]
    pub(super) kind: Option<String>,
    #[serde(default)]
    pub(super) subtype: Option<String>,
    #[serde(default)]
    pub(super) request_id: Option<String>,
    #[serde(default)]
    pub(super) uuid: Option<String>,
    #[serde(borrow, default)]
    pub(super) request: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) response: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct RecordedRequest<'a> {
    #[serde(default)]
    pub(super) subtype: Option<String>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct ResponseBody<'a> {
    #[serde(default)]
    pub(super) request_id: Option<String>,
    #[serde(borrow, default)]
    response: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Mcp<'a> {
    #[serde(borrow, default)]
    mcp_response: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct JsonRpc<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<&'a RawValue>,
}

fn read<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

impl<'a> WireFrame<'a> {
    /// `None` if the line is no JSON object, or a field has a wrong type.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    pub(super) fn asked(&self) -> Option<RecordedRequest<'a>> {
        read(self.request)
    }

    pub(super) fn answered(&self) -> Option<ResponseBody<'a>> {
        read(self.response)
    }

    /// Whether the frame shows that a turn has started.
    pub(super) fn begins_turn(&self) -> bool {
        match self.kind.as_deref() {
            Some("system") => self.subtype.as_deref() == Some("init"),
            Some("assistant" | "user" | "stream_event" | "result") => true,
            _ => false,
        }
    }
}

impl RecordedRequest<'_> {
    /// The exact id of a JSON-RPC request; `None` for a notification, a response, or another message.
    pub(super) fn rpc_id(&self) -> Option<String> {
        let rpc: JsonRpc<'_> = read(self.message)?;
        rpc.method?;
        rpc.id.map(|id| id.get().to_owned())
    }
}

impl ResponseBody<'_> {
    /// The exact id of the JSON-RPC answer inside; `None` without one.
    pub(super) fn rpc_id(&self) -> Option<Option<String>> {
        let mcp: Mcp<'_> = read(self.response)?;
        let rpc: JsonRpc<'_> = read(Some(mcp.mcp_response?))?;
        Some(rpc.id.map(|id| id.get().to_owned()))
    }
}
