//! Reads a call by the layers and in one pass, as values that tests compare.

use serde_json::value::RawValue;

use super::CallLine;
use crate::wire::envelope::{ControlRequest, Frame};
use crate::wire::rpc::{CallParams, Rpc};

/// Request id, server, JSON-RPC id, tool, arguments, tool use id, progress token.
pub(crate) type Plain = (String, String, String, String, Option<String>, Option<String>, Option<String>);

/// Reads the line layer by layer.
pub(crate) fn slow(line: &[u8]) -> Option<Plain> {
    let Frame::Request { request_id, body: ControlRequest::Mcp { server, rpc } } = Frame::parse(line).ok()?
    else {
        return None;
    };
    let Rpc::Request { id, method, params } = rpc else { return None };
    if method != "tools/call" {
        return None;
    }
    let params: CallParams = serde_json::from_str(params.as_deref().map_or("{}", RawValue::get)).ok()?;
    let meta = params.meta.unwrap_or_default();
    Some((
        request_id,
        server,
        text(&id),
        params.name,
        params.arguments.as_deref().map(text),
        meta.tool_use_id,
        meta.progress_token.as_deref().map(text),
    ))
}

/// Reads the line in one pass.
pub(crate) fn fast(line: &[u8]) -> Option<Plain> {
    let call = CallLine::parse(line)?;
    Some((
        call.request_id.into_owned(),
        call.server.into_owned(),
        call.rpc_id.to_owned(),
        call.tool.into_owned(),
        call.arguments.map(text),
        call.tool_use_id.map(Into::into),
        call.progress_token.map(str::to_owned),
    ))
}

fn text(raw: &RawValue) -> String {
    raw.get().to_owned()
}
