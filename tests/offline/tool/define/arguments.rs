//! Arguments of tools, as their handlers get them.

use greenroom::{Session, ToolServer};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::common::*;

#[derive(Deserialize, JsonSchema)]
struct Save {
    path: String,
    #[serde(default)]
    lines: Vec<Line>,
}

#[derive(Deserialize, JsonSchema)]
struct Line {
    text: String,
}

/// Any object, as the handler finds it in the call.
#[derive(Deserialize)]
#[serde(transparent)]
struct Raw(Box<RawValue>);

impl JsonSchema for Raw {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Raw".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "object" })
    }
}

fn files() -> ToolServer {
    let save = async |args: Save| {
        let lines: Vec<_> = args.lines.into_iter().map(|line| line.text).collect();
        format!("{} {lines:?}", args.path)
    };
    ToolServer::new("files", "1")
        .tool("save", "Save", save)
        .tool("raw", "Raw", async |args: Raw| args.0.get().to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_lone_surrogate_is_read_as_the_replacement_character() {
    let builder = Session::builder().mcp_server(files());
    let (session, mut end, _listener) = start_by_hand(builder).await;
    for (tool, arguments, expected) in [
        ("save", r#"{"path":"a\ud83d"}"#, "a\u{fffd} []"),
        ("save", r#"{"path":"a\ufffd","\uD83D":1}"#, "a\u{fffd} []"),
        ("save", r#"{"path":"\ud83d\ude00 \\ud83d"}"#, "\u{1f600} \\ud83d []"),
        // Raw values are mended as well.
        ("raw", r#"{"a":"\ud83d"}"#, r#"{"a":"\ufffd"}"#),
    ] {
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
        );
        let request = format!(r#"{{"subtype":"mcp_message","server_name":"files","message":{call}}}"#);
        end.send_bytes(format!(
            "{{\"type\":\"control_request\",\"request_id\":\"r\",\"request\":{request}}}\n"
        ));
        assert_eq!(text(&rpc_answer(&mut end, "r").await), expected);
    }
    stop(session, end).await;
}

#[tokio::test]
async fn a_misfit_is_named_with_its_path() {
    let server = files();
    let refused = async |arguments: Value| {
        let result = server.call("save", arguments).await;
        assert!(result.is_error);
        result.text()
    };
    assert_eq!(
        refused(json!({"path": "a", "lines": [{"text": "b"}, {"text": 7}]})).await,
        "Input validation error: `lines[1].text`: invalid type: integer `7`, expected a string"
    );
    assert_eq!(refused(json!({})).await, "Input validation error: missing field `path`");
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "save"}});
    let answer = server.handle(call).await.unwrap();
    let text = &answer["result"]["content"][0]["text"];
    assert_eq!(text, "Input validation error: missing field `path`", "no arguments are an empty object");
}
