//! Requests that do not have the shape of MCP: fields of another type, lists where an object belongs, names of 1 MB.

use greenroom::mcp::{ReadResource, ResourceDef, ResourceTemplateDef};
use greenroom::{Session, ToolContext, ToolServer};
use greenroom_testkit::CliEnd;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::ask;
use crate::common::*;

#[derive(Deserialize, JsonSchema)]
struct Echo {
    text: String,
}

fn server() -> ToolServer {
    ToolServer::new("shed", "1.0.0")
        .tool("echo", "Says the text and the id of its call", async |echo: Echo, cx: ToolContext| {
            format!("{} {:?}", echo.text, cx.tool_use_id())
        })
        .resource(ResourceDef::text("shed://key", "key", "Below the mat."))
        .resource_template(ResourceTemplateDef::new(
            "shed://box/{id}",
            "box",
            async |_: ReadResource, _: ToolContext| -> String { panic!("the lid is stuck") },
        ))
}

/// Sends a call as this line and returns its answer.
async fn call_by_line(end: &mut CliEnd, params: &str) -> Value {
    let message = format!(r#"{{"method":"tools/call","params":{params},"jsonrpc":"2.0","id":7}}"#);
    let request = format!(r#"{{"subtype":"mcp_message","server_name":"shed","message":{message}}}"#);
    // White space between tokens makes the layers read the line, and not the fast path.
    for space in ["", " "] {
        end.send_bytes(format!(
            "{{\"type\":\"control_request\",\"request_id\":\"r{space}\",{space}\"request\":{request}}}\n"
        ));
    }
    let fast = rpc_answer(end, "r").await;
    assert_eq!(fast, rpc_answer(end, "r ").await, "{params}");
    fast
}

// Guards: parameters of MCP in a list, or `_meta` of another type
#[tokio::test(start_paused = true)]
async fn meta_fields_of_another_type_are_ignored() {
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server())).await;
    for (meta, says) in [
        (r#"{"claudecode/toolUseId":"toolu_1","progressToken":"p"}"#, r#"hi Some("toolu_1")"#),
        (r#"{"claudecode/toolUseId":5,"progressToken":3}"#, "hi None"),
        (r#"{"claudecode/toolUseId":["toolu_1"],"progressToken":null}"#, "hi None"),
        (r#"{"claudecode/toolUseId":"toolu_1","progressToken":{"a":1}}"#, r#"hi Some("toolu_1")"#),
        (r#"{"claudecode/toolUseId":"toolu_1","progressToken":true}"#, r#"hi Some("toolu_1")"#),
        (r#"["toolu_1",3]"#, "hi None"),
        (r#""toolu_1""#, "hi None"),
        ("5", "hi None"),
        ("null", "hi None"),
    ] {
        let params = format!(r#"{{"name":"echo","arguments":{{"text":"hi"}},"_meta":{meta}}}"#);
        assert_eq!(text(&call_by_line(&mut end, &params).await), says, "{meta}");
        let params = format!(r#"{{"uri":"shed://key","_meta":{meta}}}"#);
        let read = ask(&mut end, "shed", "resources/read", serde_json::from_str(&params).unwrap()).await;
        assert_eq!(read["result"]["contents"][0]["text"], "Below the mat.", "{meta}");
    }
    stop(session, end).await;
}

// Guards: parameters of MCP in a list, or `_meta` of another type
#[tokio::test(start_paused = true)]
async fn parameters_by_position_are_refused() {
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server())).await;
    let answer = call_by_line(&mut end, r#"["echo",{"text":"hi"}]"#).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    let says = "the parameters of 'tools/call' do not fit: invalid type: sequence, expected a JSON object";
    assert!(answer["error"]["message"].as_str().unwrap().starts_with(says), "{answer}");
    for (method, params) in [("initialize", json!(["2025-11-25"])), ("resources/read", json!(["shed://key"]))]
    {
        let answer = ask(&mut end, "shed", method, params).await;
        assert_eq!(answer["error"]["code"], -32602, "{method}: {answer}");
    }
    // A message by position is none at all.
    let message = json!([7, "tools/call", { "name": "echo", "arguments": { "text": "hi" } }, null, null]);
    let id = end.mcp("shed", message);
    assert_eq!(rpc_answer(&mut end, &id).await["error"]["code"], -32600);
    // The model wrote the arguments, so the model reads what is wrong with them.
    let answer = call_by_line(&mut end, r#"{"name":"echo","arguments":["hi"]}"#).await;
    let says = "Input validation error: invalid type: sequence, expected a JSON object";
    assert_eq!(error_text(&answer), says);
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn errors_cut_names_of_1_mb() {
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server())).await;
    let long = "x".repeat(1 << 20);
    let mut errors = Vec::new();
    for (method, params) in [
        (&*long, json!({})),
        ("tools/call", json!({ "name": long })),
        ("tools/call", json!(long)),
        ("resources/read", json!({ "uri": long })),
        ("resources/read", json!({ "uri": format!("shed://box/{long}") })),
    ] {
        let id = end.mcp("shed", json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }));
        errors.push(rpc_answer(&mut end, &id).await["error"].take());
    }
    let id = end.mcp(&long, json!({ "jsonrpc": "2.0", "id": 7, "method": "ping" }));
    errors.push(rpc_answer(&mut end, &id).await["error"].take());
    for error in errors {
        let text = error["message"].as_str().unwrap();
        assert!(error.to_string().len() < 500, "{} bytes: {text:.300}", error.to_string().len());
        assert!(text.contains(&"x".repeat(150)) && text.contains(" characters)"), "{text}");
    }
    for body in
        [json!({ "subtype": long }), json!({ "subtype": "hook_callback", "callback_id": long, "input": {} })]
    {
        let id = end.request(body);
        let answer = within(SOON, end.answer_to(&id)).await;
        let refusal = answer["error"].as_str().unwrap();
        assert!(refusal.len() < 500 && refusal.contains("(1048576 characters)"), "{refusal:.300}");
    }
    stop(session, end).await;
}
