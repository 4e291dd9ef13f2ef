//! As much of a line as the checks need, read independently of the library's own reader.

use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
pub(super) struct Frame<'a> {
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
pub(super) struct Asked<'a> {
    #[serde(default)]
    pub(super) subtype: Option<String>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct Answered<'a> {
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
struct Rpc<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<&'a RawValue>,
}

fn read<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

impl<'a> Frame<'a> {
    /// `None` for what is no JSON object, or has a field of a shape that no frame has.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    pub(super) fn asked(&self) -> Option<Asked<'a>> {
        read(self.request)
    }

    pub(super) fn answered(&self) -> Option<Answered<'a>> {
        read(self.response)
    }

    /// A sign that the CLI works at a prompt.
    pub(super) fn begins_turn(&self) -> bool {
        match self.kind.as_deref() {
            Some("system") => self.subtype.as_deref() == Some("init"),
            Some("assistant" | "user" | "stream_event" | "result") => true,
            _ => false,
        }
    }
}

impl Asked<'_> {
    /// The id of a JSON-RPC request, as it is spelled; `None` for a notification, a response, or no JSON-RPC.
    pub(super) fn rpc_id(&self) -> Option<String> {
        let rpc: Rpc<'_> = read(self.message)?;
        rpc.method?;
        rpc.id.map(|id| id.get().to_owned())
    }
}

impl Answered<'_> {
    /// The id of the JSON-RPC answer inside, as it is spelled; `None` if there is no such answer.
    pub(super) fn rpc_id(&self) -> Option<Option<String>> {
        let mcp: Mcp<'_> = read(self.response)?;
        let rpc: Rpc<'_> = read(Some(mcp.mcp_response?))?;
        Some(rpc.id.map(|id| id.get().to_owned()))
    }
}
