//! The answer to a change of the MCP servers.

use greenroom::report::McpSetServersResult;
use serde_json::{Map, json};

fn read(answer: &str) -> McpSetServersResult {
    serde_json::from_str(answer).unwrap()
}

#[test]
fn fields_of_an_unexpected_shape_are_kept_and_no_error() {
    for answer in [r#"{"added": null, "removed": null, "errors": null}"#, r#"{"errors": []}"#, "{}"] {
        let nothing = read(answer);
        assert!(
            nothing.added.is_empty() && nothing.removed.is_empty() && nothing.errors.is_empty(),
            "{answer}"
        );
    }
    let odd = read(r#"{"added": "a", "removed": ["b"], "errors": {"c": {"code": 1}}, "new": 2}"#);
    assert_eq!((odd.added.len(), &*odd.removed[0], &odd.errors["c"]), (0, "b", &json!({"code": 1})));
    assert_eq!(odd.extra, Map::from_iter([("added".into(), json!("a")), ("new".into(), json!(2))]));
}
