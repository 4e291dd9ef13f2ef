//! Elicitations as JSON.

use greenroom::callback::{ElicitationMode, ElicitationRequest};
use serde::Deserialize;
use serde_json::json;

#[test]
fn an_elicitation_is_written_as_it_came() {
    let raw = json!({
        "mcp_server_name": "files", "message": "Sign in", "mode": "url", "url": "https://example.org",
        "elicitation_id": "e1", "property_order": ["b", "a"], "title": "T", "display_name": "D",
        "description": "S", "requested_schema": {"type": "object"}, "new": 1,
    });
    let request = ElicitationRequest::deserialize(&raw).unwrap();
    assert_eq!((request.mode(), request.extra.len()), (ElicitationMode::Url, 1));
    assert_eq!(serde_json::to_value(&request).unwrap(), raw);
    assert!(ElicitationRequest::deserialize(json!({"message": "?"})).is_err());
}
