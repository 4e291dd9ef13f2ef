//! Requests that do not have the shape of MCP: fields of another type, lists where an object belongs, names of 1 MB.

use greenroom::mcp::{CompletionRequest, PromptDef, ReadResource, ResourceDef, ResourceTemplateDef};
use greenroom::{Session, ToolContext, ToolServer};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

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
        .prompt(
            PromptDef::new("greet", "A greeting", async |echo: Echo, _: ToolContext| echo.text)
                .complete("text", async |_: CompletionRequest, _: ToolContext| ["hello"]),
        )
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
        ("tools/list", json!({ "cursor": long })),
        ("resources/read", json!({ "uri": long })),
        ("resources/read", json!({ "uri": format!("shed://box/{long}") })),
        ("prompts/get", json!({ "name": long })),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": long }, "argument": { "name": "a", "value": "" } }),
        ),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/resource", "uri": long }, "argument": { "name": "a", "value": "" } }),
        ),
        ("completion/complete", json!({ "ref": { "type": long }, "argument": { "name": "a", "value": "" } })),
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
