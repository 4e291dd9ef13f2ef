//! The results of tool calls, in the shape of MCP.

use greenroom::mcp::ResourceContents;
use greenroom::tool::{CallToolResult, Content};
use serde_json::json;

#[test]
fn blocks_have_the_shape_of_mcp_and_round_trip() {
    let blocks = [
        (Content::text("hi"), json!({"type": "text", "text": "hi"})),
        (
            Content::image("aGk=", "image/png"),
            json!({"type": "image", "data": "aGk=", "mimeType": "image/png"}),
        ),
        (
            Content::audio("aGk=", "audio/wav"),
            json!({"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}),
        ),
        (
            Content::resource(ResourceContents::text("file:///a", "x").mime_type("text/plain")),
            json!({"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "x"}}),
        ),
        (
            Content::resource(ResourceContents::blob("file:///b", "aGk=")),
            json!({"type": "resource", "resource": {"uri": "file:///b", "blob": "aGk="}}),
        ),
        (
            Content::resource_link("file:///c", "c").with("mimeType", "text/plain"),
            json!({"type": "resource_link", "uri": "file:///c", "name": "c", "mimeType": "text/plain"}),
        ),
    ];
    for (block, shape) in blocks {
        assert_eq!(serde_json::to_value(&block).unwrap(), shape);
        assert_eq!(serde_json::from_value::<Content>(shape).unwrap(), block);
    }
}

#[test]
fn is_error_is_written_for_errors_only() {
    let fine = CallToolResult::new([Content::text("x")]).structured(json!({"a": 1})).with_meta("k", 1);
    assert_eq!(
        serde_json::to_value(&fine).unwrap(),
        json!({"content": [{"type": "text", "text": "x"}], "structuredContent": {"a": 1}, "_meta": {"k": 1}})
    );
    assert_eq!(serde_json::to_value(CallToolResult::error("no")).unwrap()["isError"], true);
}
