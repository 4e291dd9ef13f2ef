//! Writes the answer to a tool call as one line.
//!
//! Writes the same bytes as [`outgoing::success`](crate::wire::outgoing::success) with a
//! [`RpcResponse`](crate::wire::rpc::RpcResponse) and [`into_line`](crate::wire::line::into_line), but escapes text on
//! its way into the line: each text is read once and copied once.

use serde::Serialize;
use serde_json::Value;

use super::scan;
use crate::wire::content::{CallToolResult, Content};
use crate::wire::line::escape_separators;

const HEAD: &[u8] = br#"{"type":"control_response","response":{"subtype":"success","request_id":"#;
const RPC: &[u8] = br#","response":{"mcp_response":{"jsonrpc":"2.0""#;
const CONTENT: &[u8] = br#","result":{"content":["#;
const TAIL: &[u8] = b"}}}}}\n";

/// The line, with its line end, in the `buffer` for the length that is asked for. `rpc_id` is JSON.
///
/// # Errors
///
/// A value in the result does not serialise.
pub(crate) fn result_line(
    buffer: impl FnOnce(usize) -> Vec<u8>,
    request_id: &str,
    rpc_id: Option<&str>,
    result: &CallToolResult,
) -> serde_json::Result<Vec<u8>> {
    let mut line = buffer(room(request_id, rpc_id, result));
    line.extend_from_slice(HEAD);
    push_text(&mut line, request_id);
    line.extend_from_slice(RPC);
    if let Some(id) = rpc_id {
        line.extend_from_slice(b",\"id\":");
        let start = line.len();
        line.extend_from_slice(id.as_bytes());
        escape_separators(&mut line, start);
    }
    line.extend_from_slice(CONTENT);
    for (n, block) in result.content.iter().enumerate() {
        if n > 0 {
            line.push(b',');
        }
        push_block(&mut line, block)?;
    }
    line.push(b']');
    if let Some(data) = &result.structured_content {
        line.extend_from_slice(br#","structuredContent":"#);
        push_value(&mut line, data)?;
    }
    if result.is_error {
        line.extend_from_slice(br#","isError":true"#);
    }
    if let Some(meta) = &result.meta {
        line.extend_from_slice(br#","_meta":"#);
        push_fields(&mut line, meta)?;
    }
    line.extend_from_slice(TAIL);
    Ok(line)
}

/// Capacity for the line: a little more than its length if little has to be escaped. Structured content is not counted.
fn room(request_id: &str, rpc_id: Option<&str>, result: &CallToolResult) -> usize {
    let fixed = HEAD.len() + RPC.len() + CONTENT.len() + TAIL.len() + 32;
    let ids = request_id.len() + rpc_id.map_or(0, str::len);
    let blocks = result.content.iter().map(|block| match block {
        // In source code about one byte in twenty is a line end or a quote, and so escaped.
        Content::Text { text, .. } => 26 + text.len() + text.len() / 16,
        Content::Image { data, mime_type, .. } | Content::Audio { data, mime_type, .. } => {
            44 + data.len() + mime_type.len()
        }
        Content::Resource { .. } | Content::ResourceLink { .. } => 128,
    });
    fixed + ids + blocks.sum::<usize>()
}

fn push_block(line: &mut Vec<u8>, block: &Content) -> serde_json::Result<()> {
    match block {
        Content::Text { text, extra } if extra.is_empty() => {
            line.extend_from_slice(br#"{"type":"text","text":"#);
            push_text(line, text);
        }
        Content::Image { data, mime_type, extra } if extra.is_empty() => {
            push_media(line, br#"{"type":"image","data":"#, data, mime_type);
        }
        Content::Audio { data, mime_type, extra } if extra.is_empty() => {
            push_media(line, br#"{"type":"audio","data":"#, data, mime_type);
        }
        other => return push(line, other),
    }
    line.push(b'}');
    Ok(())
}

fn push_media(line: &mut Vec<u8>, head: &[u8], data: &str, mime_type: &str) {
    line.extend_from_slice(head);
    push_text(line, data);
    line.extend_from_slice(br#","mimeType":"#);
    push_text(line, mime_type);
}

fn push_value(line: &mut Vec<u8>, value: &Value) -> serde_json::Result<()> {
    match value {
        Value::Null => line.extend_from_slice(b"null"),
        Value::Bool(true) => line.extend_from_slice(b"true"),
        Value::Bool(false) => line.extend_from_slice(b"false"),
        Value::Number(number) => return push(line, number),
        Value::String(text) => push_text(line, text),
        Value::Array(values) => {
            line.push(b'[');
            for (n, value) in values.iter().enumerate() {
                if n > 0 {
                    line.push(b',');
                }
                push_value(line, value)?;
            }
            line.push(b']');
        }
        Value::Object(fields) => push_fields(line, fields)?,
    }
    Ok(())
}

fn push_fields(line: &mut Vec<u8>, fields: &serde_json::Map<String, Value>) -> serde_json::Result<()> {
    line.push(b'{');
    for (n, (key, value)) in fields.iter().enumerate() {
        if n > 0 {
            line.push(b',');
        }
        push_text(line, key);
        line.push(b':');
        push_value(line, value)?;
    }
    line.push(b'}');
    Ok(())
}

/// Any other value, as serde writes it.
fn push(line: &mut Vec<u8>, value: &impl Serialize) -> serde_json::Result<()> {
    let start = line.len();
    serde_json::to_writer(&mut *line, value)?;
    escape_separators(line, start);
    Ok(())
}

/// A string, as `serde_json` writes it, but with U+2028 and U+2029 escaped.
fn push_text(line: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    line.push(b'"');
    let (mut copied, mut at) = (0, scan::line(bytes, 0));
    while let Some(byte) = bytes.get(at) {
        let letter = match byte {
            b'"' | b'\\' => *byte,
            b'\n' => b'n',
            b'\t' => b't',
            b'\r' => b'r',
            0x08 => b'b',
            0x0C => b'f',
            0xE2 if !scan::is_separator(&bytes[at..]) => {
                // Another character that begins with 0xE2: a dash, a typographic quote, an arrow.
                at = scan::near(bytes, at + 3);
                continue;
            }
            _ => b'u',
        };
        match bytes[copied..at] {
            // A call of `memcpy` costs more than one or two bytes.
            [] => line.extend_from_slice(&[b'\\', letter]),
            [a] => line.extend_from_slice(&[a, b'\\', letter]),
            [a, b] => line.extend_from_slice(&[a, b, b'\\', letter]),
            ref run => {
                line.extend_from_slice(run);
                line.extend_from_slice(&[b'\\', letter]);
            }
        }
        copied = at + 1;
        if letter == b'u' {
            copied += push_unit(line, &bytes[at..]);
        }
        // Escapes often come close together.
        at = scan::near(bytes, copied);
    }
    line.extend_from_slice(&bytes[copied..]);
    line.push(b'"');
}

/// Writes the digits of `\u` for the first character: a separator, or a control character. Returns how many bytes the
/// character has behind the first one.
#[cold]
fn push_unit(line: &mut Vec<u8>, bytes: &[u8]) -> usize {
    let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
    match bytes {
        [0xE2, _, last, ..] => {
            line.extend_from_slice(if *last == 0xA8 { b"2028" } else { b"2029" });
            2
        }
        [control, ..] => {
            line.extend_from_slice(&[b'0', b'0', digit(control >> 4), digit(control & 15)]);
            0
        }
        [] => 0,
    }
}

#[cfg(any(test, feature = "__internals"))]
pub(crate) mod layers {
    //! Writes the line by the layers, for tests to compare.

    use serde_json::value::RawValue;

    use super::CallToolResult;
    use crate::wire::line::into_line;
    use crate::wire::outgoing::{self, McpResponse};
    use crate::wire::rpc::RpcResponse;

    pub(crate) fn result_line(
        request_id: &str,
        rpc_id: Option<&str>,
        result: &CallToolResult,
    ) -> serde_json::Result<Vec<u8>> {
        let id = rpc_id.map(serde_json::from_str::<&RawValue>).transpose()?;
        let response = McpResponse { mcp_response: RpcResponse::result(id, result) };
        outgoing::success(request_id, response).map(into_line)
    }
}

#[cfg(test)]
mod tests;
