//! Everything that the CLI and a tool server say to each other is there.

use greenroom::mcp::{ResourceDef, ResourceTemplateDef};
use greenroom::tool::{CallToolResult, Content, LogLevel, ServerHandle, ToolAnnotations};
use greenroom::{Json, NoArgs, Session, ToolContext, ToolDef, ToolServer};
use greenroom_testkit::CliEnd;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::common::{SOON, call, rpc_answer, settled, start_by_hand, stop, within};
use crate::table::mapped;

#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
struct Sum {
    sum: i64,
}

fn sum() -> ToolDef {
    ToolDef::new("sum", "Add", async |_: NoArgs, cx: ToolContext| {
        cx.progress(1.0, None, None).await;
        cx.log(LogLevel::Error, "a word").await;
        Json(Sum { sum: cx.tool_use_id().map_or(0, |_| 8) })
    })
    .annotations(ToolAnnotations {
        title: Some("Sum".into()),
        destructive_hint: Some(false),
        idempotent_hint: Some(true),
        open_world_hint: Some(false),
        ..ToolAnnotations::default()
    })
    .read_only_hint(true)
    .always_load(true)
    .meta("anthropic/searchHint", "numbers")
    .meta("anthropic/maxResultSizeChars", 10)
}

fn page(uri: &str) -> ResourceDef {
    ResourceDef::text(uri, "page", "a page")
}

/// A server with everything.
fn server() -> ToolServer {
    let last = async |_: NoArgs| CallToolResult::new([Content::text("8")]).end_turn();
    let template = ResourceTemplateDef::new("page://{name}", "pages", async |_, _| Ok::<_, String>("a page"));
    ToolServer::new("desk", "1")
        .add_tool(sum())
        .tool("last", "The last word", last)
        .resource(page("page:a"))
        .resource_template(template)
        .dynamic_resources()
}

fn params(method: &str) -> Value {
    match method {
        "tools/call" => json!({ "name": "sum", "arguments": {} }),
        "resources/read" => json!({ "uri": "page:a" }),
        "logging/setLevel" => json!({ "level": "debug" }),
        _ => json!({}),
    }
}

/// Has the server send this to the CLI.
async fn notify(session: &Session, end: &mut CliEnd, method: &str) {
    let desk: ServerHandle = session.server("desk").unwrap();
    match method {
        "notifications/progress" | "notifications/message" => drop(end.call_tool("desk", "sum", json!({}))),
        "notifications/tools/list_changed" => {
            desk.add_tool(ToolDef::<()>::new("more", "More", async |_: NoArgs| "more")).unwrap()
        }
        "notifications/resources/list_changed" => desk.add_resource(page("page:b")).unwrap(),
        other => panic!("who sends {other}?"),
    }
    let what = format!("the notification {method}");
    let fits = |frame: &Value| frame["request"]["message"]["method"] == method;
    within(SOON, end.expect_where(&what, fits)).await;
}

#[tokio::test(start_paused = true)]
async fn everything_that_a_server_and_the_cli_say_is_there() {
    let (hang, mut cancelled) = hang();
    let (session, mut end, _listener) =
        start_by_hand(Session::builder().mcp_server(server().add_tool(hang))).await;
    let listed = json!({ "jsonrpc": "2.0", "id": 80, "method": "tools/list" });
    let id = end.mcp("desk", listed);
    let listed = rpc_answer(&mut end, &id).await["result"]["tools"].clone();
    let sum = listed.as_array().unwrap().iter().find(|tool| tool["name"] == "sum").unwrap();
    let called = call(&mut end, "desk", "sum", json!({})).await;
    let last = call(&mut end, "desk", "last", json!({})).await;
    for row in mapped("mcp") {
        let wire = row.wire.clone().unwrap();
        match wire.as_str() {
            "notifications/cancelled" => {
                end.call_tool("desk", "hang", json!({}));
                within(SOON, cancelled.recv()).await.unwrap();
                let rpc_id = end.last_rpc_id();
                end.cancel_call("desk", rpc_id);
                within(SOON, cancelled.recv()).await.unwrap();
            }
            method if method.starts_with("notifications/") => notify(&session, &mut end, method).await,
            "_meta.claudecode/toolUseId" => assert_eq!(called["result"]["structuredContent"]["sum"], 8),
            "_meta.claude/endTurn" => assert_eq!(last["result"]["_meta"]["claude/endTurn"], true),
            "structuredContent" => assert_eq!(called["result"]["structuredContent"]["sum"], 8),
            "outputSchema" => assert_eq!(sum["outputSchema"]["required"], json!(["sum"])),
            field if field.contains('.') => {
                let (part, name) = field.split_once('.').unwrap();
                assert!(!sum[part][name].is_null(), "{}: {sum}", row.name());
            }
            method => {
                let asked = json!({ "jsonrpc": "2.0", "id": 70, "method": method, "params": params(method) });
                let id = end.mcp("desk", asked);
                let answer = rpc_answer(&mut end, &id).await;
                assert!(answer["error"].is_null(), "{}: {answer}", row.name());
            }
        }
    }
    settled(&mut end).await;
    stop(session, end).await;
}

/// A tool that says when it is called, and when it is cancelled.
fn hang() -> (ToolDef, mpsc::UnboundedReceiver<()>) {
    let (said, hear) = mpsc::unbounded_channel();
    let hang = ToolDef::new("hang", "Wait for ever", move |_: NoArgs, cx: ToolContext| {
        let said = said.clone();
        async move {
            said.send(()).unwrap();
            cx.cancelled().await;
            said.send(()).unwrap();
        }
    });
    (hang, hear)
}
