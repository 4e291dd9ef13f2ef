//! Functions for the fuzz targets in `fuzz/`. Compiled only under `--cfg fuzzing`, and not part of the API.

use crate::tool::{CallToolResult, Content};
use crate::wire::envelope::Unreadable;
use crate::wire::fast::answer;
use crate::wire::fast::call::layers;
use crate::wire::{envelope, line};

/// Serialised JSON as a line.
pub fn into_line(json: Vec<u8>) -> Vec<u8> {
    line::into_line(json)
}

/// The line that answers a call, from the fast path and from the layers.
pub fn answers(request_id: &str, text: &str) -> [Vec<u8>; 2] {
    let result = CallToolResult::new([Content::text(text)]);
    [answer::result_line, answer::layers::result_line]
        .map(|write| write(request_id, Some("7"), &result).unwrap_or_default())
}

/// The kind of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// A request of the CLI, with its id.
    Request(String),
    /// An answer of the CLI, with the id of the request.
    Response(String),
    /// A withdrawal, with the id of the request.
    Cancel(String),
    /// A sign of life.
    KeepAlive,
    /// Part of the conversation.
    Message,
    /// White space only.
    Blank,
    /// Other text.
    Noise,
    /// Starts like a frame, but is not a frame.
    Malformed,
}

/// Returns the kind of a line.
pub fn frame(line: &[u8]) -> FrameKind {
    match envelope::Frame::parse(line) {
        Ok(envelope::Frame::Request { request_id, .. }) => FrameKind::Request(request_id),
        Ok(envelope::Frame::Response(reply)) => FrameKind::Response(reply.request_id),
        Ok(envelope::Frame::Cancel { request_id }) => FrameKind::Cancel(request_id),
        Ok(envelope::Frame::KeepAlive) => FrameKind::KeepAlive,
        Ok(envelope::Frame::Message) => FrameKind::Message,
        Err(Unreadable::Blank) => FrameKind::Blank,
        Err(Unreadable::Noise) => FrameKind::Noise,
        Err(Unreadable::Malformed(_)) => FrameKind::Malformed,
    }
}

/// The parts of a call: request id, server, JSON-RPC id, tool, arguments, tool use id, progress token.
pub type CallParts = (String, String, String, String, Option<String>, Option<String>, Option<String>);

/// A tool call, read by the fast path; `None` if the fast path does not take the line.
pub fn call(line: &[u8]) -> Option<CallParts> {
    layers::fast(line)
}

/// A tool call, read by the layers; `None` if the line is no call.
pub fn call_by_layers(line: &[u8]) -> Option<CallParts> {
    layers::slow(line)
}
