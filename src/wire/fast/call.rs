//! Reads a tool call in one pass: nearly all control requests are tool calls, and only they come by the thousand.
//!
//! [`Frame::parse`](crate::wire::envelope::Frame::parse), [`Rpc::parse`](crate::wire::rpc::Rpc::parse) and
//! [`CallParams`](crate::wire::rpc::CallParams) define how a line is read, layer by layer. This module reads the same
//! values without a copy, and leaves every line that it does not take for a call to the layers: a duplicate key, an escape
//! of a surrogate (which may have to be mended), a field of an unexpected type outside of `_meta`.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::request_ids::RequestIds;
use super::scan;
use crate::wire::lenient::{Word, object, read_object};
use crate::wire::rpc::is_id;

/// A `tools/call` to an in-process MCP server, as it stands in its line.
#[derive(Debug)]
pub(crate) struct CallLine<'a> {
    pub(crate) request_id: Cow<'a, str>,
    pub(crate) server: Cow<'a, str>,
    /// A number or a string, as JSON.
    pub(crate) rpc_id: &'a str,
    pub(crate) tool: Cow<'a, str>,
    pub(crate) arguments: Option<&'a RawValue>,
    pub(crate) tool_use_id: Option<Cow<'a, str>>,
    /// As JSON.
    pub(crate) progress_token: Option<&'a str>,
}

/// First bytes of a control request.
const HEAD: &[u8] = br#"{"type":"control_request""#;

impl<'a> CallLine<'a> {
    /// `None` leaves the line to the layers: it may be a call in another spelling.
    pub(crate) fn parse(line: &'a [u8]) -> Option<Self> {
        if !line.starts_with(HEAD) || scan::surrogates(line) {
            return None;
        }
        let line: LineFields<'_> = read_object(std::str::from_utf8(line).ok()?).ok()?;
        let LineFields { kind, request_id, request } = line;
        let CallFields { subtype, server_name, message } = request;
        let MessageFields { method, id, params, .. } = message;
        let is_call = kind.0 == "control_request" && subtype.0 == "mcp_message" && method.0 == "tools/call";
        if !is_call || !is_id(id.get()) {
            return None;
        }
        let MetaFields { tool_use_id, progress_token } = match params.meta {
            Some(meta) if meta.get().starts_with('{') => read_object(meta.get()).ok()?,
            _ => MetaFields::default(),
        };
        let text = |raw: &'a RawValue| serde_json::from_str(raw.get()).map(|Word(text)| text).ok();
        Some(Self {
            request_id: request_id.0,
            server: server_name.0,
            rpc_id: id.get(),
            tool: params.name.0,
            arguments: params.arguments,
            tool_use_id: tool_use_id.and_then(text),
            progress_token: progress_token.map(RawValue::get).filter(|token| is_id(token)),
        })
    }

    pub(crate) fn ids(&self) -> RequestIds {
        RequestIds::new([
            Some(&self.request_id),
            Some(self.rpc_id),
            Some(&self.tool),
            self.tool_use_id.as_deref(),
            self.progress_token,
        ])
    }
}

#[derive(serde::Deserialize)]
struct LineFields<'a> {
    #[serde(borrow, rename = "type")]
    kind: Word<'a>,
    #[serde(borrow)]
    request_id: Word<'a>,
    #[serde(borrow, deserialize_with = "object")]
    request: CallFields<'a>,
}

#[derive(serde::Deserialize)]
struct CallFields<'a> {
    #[serde(borrow)]
    subtype: Word<'a>,
    #[serde(borrow)]
    server_name: Word<'a>,
    #[serde(borrow, deserialize_with = "object")]
    message: MessageFields<'a>,
}

#[derive(serde::Deserialize)]
struct MessageFields<'a> {
    #[serde(borrow)]
    method: Word<'a>,
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow, deserialize_with = "object")]
    params: ParamsFields<'a>,
    // Read, so that a duplicate is noticed.
    #[serde(rename = "result")]
    _result: Option<IgnoredAny>,
    #[serde(rename = "error")]
    _error: Option<IgnoredAny>,
}

#[derive(serde::Deserialize)]
struct ParamsFields<'a> {
    #[serde(borrow)]
    name: Word<'a>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

/// The fields of `_meta` that matter here.
#[derive(Default, serde::Deserialize)]
struct MetaFields<'a> {
    #[serde(borrow, rename = "claudecode/toolUseId")]
    tool_use_id: Option<&'a RawValue>,
    #[serde(borrow, rename = "progressToken")]
    progress_token: Option<&'a RawValue>,
}

#[cfg(any(test, feature = "__internals"))]
pub(crate) mod layers;
#[cfg(test)]
mod tests;
