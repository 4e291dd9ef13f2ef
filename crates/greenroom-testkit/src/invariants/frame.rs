//! The fields of a line that the checks need, read without the library's own reader.

use serde::Deserialize;
use serde_json::value::RawValue;

/// A frame, or an object inside one.
#[derive(Deserialize)]
pub(super) struct WireObject<'a> {
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) subtype: Option<String>,
    pub(super) request_id: Option<String>,
    pub(super) uuid: Option<String>,
    #[serde(borrow)]
    request: Option<&'a RawValue>,
    response: Option<&'a RawValue>,
    message: Option<&'a RawValue>,
    mcp_response: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    method: Option<&'a RawValue>,
}

impl<'a> WireObject<'a> {
    /// `None` if the line is no JSON object, or a field has a wrong type.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    fn read(raw: Option<&'a RawValue>) -> Option<Self> {
        Self::parse(raw?.get().as_bytes())
    }

    pub(super) fn asked(&self) -> Option<Self> {
        Self::read(self.request)
    }

    pub(super) fn answered(&self) -> Option<Self> {
        Self::read(self.response)
    }

    /// Whether the frame shows that a turn has started.
    pub(super) fn begins_turn(&self) -> bool {
        match self.kind.as_deref() {
            Some("system") => self.subtype.as_deref() == Some("init"),
            Some("assistant" | "user" | "stream_event" | "result") => true,
            _ => false,
        }
    }

    /// The exact id of the JSON-RPC request in a request; `None` for a notification, a response, or another message.
    pub(super) fn asked_id(&self) -> Option<String> {
        let rpc = Self::read(self.message)?;
        rpc.method?;
        rpc.id.map(|id| id.get().to_owned())
    }

    /// The exact id of the JSON-RPC answer in a response; `None` without one.
    pub(super) fn answered_id(&self) -> Option<Option<String>> {
        let rpc = Self::read(Self::read(self.response)?.mcp_response)?;
        Some(rpc.id.map(|id| id.get().to_owned()))
    }
}
