//! URI templates, matched against the URIs that are read.

use greenroom::mcp::{ReadResource, ResourceTemplateDef};
use greenroom::{ErrorKind, Json, Session, ToolContext, ToolServer};
use greenroom_testkit::Delivered;
use serde_json::{Value, json};

fn server(template: &str) -> ToolServer {
    let read = async |read: ReadResource, _: ToolContext| Json(read.variables);
    ToolServer::new("templates", "1").resource_template(ResourceTemplateDef::new(template, "template", read))
}

/// The variables with which the handler of the template is called; `None` if the URI does not match.
async fn matched(template: &str, uri: &str) -> Option<Value> {
    let read = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": uri}});
    let answer = server(template).handle(read).await.unwrap();
    let contents = answer["result"]["contents"][0]["text"].as_str();
    contents.map(|variables| serde_json::from_str(variables).unwrap())
}

async fn is(template: &str, uri: &str, values: Value) {
    assert_eq!(matched(template, uri).await, Some(values), "{template} {uri}");
}

#[tokio::test]
async fn values_are_found_and_decoded() {
    is("note://{id}", "note://7", json!({"id": "7"})).await;
    is("note://{id}/text", "note://a%20b%2Fc/text", json!({"id": "a b/c"})).await;
    is("db://{table}/{row}?v={v}", "db://users/9?v=2", json!({"row": "9", "table": "users", "v": "2"})).await;
    is("file:///{+path}", "file:///a/b/c.txt", json!({"path": "a/b/c.txt"})).await;
    is("file:///{+dir}/{name}", "file:///a/b/c", json!({"dir": "a/b", "name": "c"})).await;
    is("x{a}-{b}", "xö-1-2", json!({"a": "ö", "b": "1-2"})).await;
    is("{+a}-{b}", "x-y/z-w", json!({"a": "x-y/z", "b": "w"})).await;
    is("{a}ö{b}", "öööö", json!({"a": "ö", "b": "öö"})).await;
}

#[tokio::test]
async fn other_uris_do_not_match() {
    for (template, uri) in [
        ("note://{id}", "note://"),
        ("note://{id}", "note://a/b"),
        ("note://{id}", "other://7"),
        ("note://{id}/text", "note://7/texts"),
        ("note://{id}/text", "note://7"),
        ("file:///{+path}", "file:///"),
    ] {
        assert_eq!(matched(template, uri).await, None, "{template} {uri}");
    }
}

#[test]
fn unsupported_templates_are_refused() {
    for template in
        ["a{", "a}", "{}", "{a}{b}", "{?q}", "{a*}", "{a,b}", "{a:3}", "note://7", "", "{a}/{a}", "{#a}"]
    {
        let refused = Delivered::of(Session::builder().mcp_server(server(template)));
        assert!(refused.is_err_and(|error| error.kind() == ErrorKind::InvalidOption), "{template}");
    }
}

#[tokio::test]
async fn matching_takes_linear_time() {
    let template: String = (0..20).map(|n| format!("{{+v{n}}}a")).collect();
    assert_eq!(matched(&format!("{template}b"), &"a".repeat(20_000)).await, None);
}
