//! Every request of the CLI has a handler, which is called, and whose answer arrives.

use std::sync::{Arc, Mutex};

use greenroom::callback::{DialogAnswer, ElicitationAnswer};
use greenroom::hook::HookOutput;
use greenroom::{Hook, PermissionDecision, Session, ToolServer};
use serde_json::{Value, json};

use crate::common::{SOON, start_by_hand, stop, within};
use crate::table::mapped;

/// A request with this subtype, and a part of its answer.
fn sample(subtype: &str) -> (Value, &'static str, Value) {
    match subtype {
        "can_use_tool" => (
            json!({ "tool_name": "Bash", "input": { "command": "ls" }, "tool_use_id": "toolu_1" }),
            "/updatedInput/command",
            json!("ls"),
        ),
        "hook_callback" => (
            json!({ "callback_id": "hook_0", "input": { "hook_event_name": "Stop", "stop_hook_active": false } }),
            "/systemMessage",
            json!("heard"),
        ),
        "mcp_message" => (
            json!({ "server_name": "desk", "message": { "jsonrpc": "2.0", "id": 2, "method": "ping" } }),
            "/mcp_response/id",
            json!(2),
        ),
        "elicitation" => (
            json!({ "mcp_server_name": "outside", "message": "Your name?", "mode": "form",
                "requested_schema": { "type": "object" } }),
            "/content/name",
            json!("Ada"),
        ),
        "request_user_dialog" => {
            (json!({ "dialog_kind": "refusal_fallback_prompt", "payload": {} }), "/result", json!("retry"))
        }
        other => panic!("no sample of `{other}`"),
    }
}

#[tokio::test(start_paused = true)]
async fn every_request_of_the_cli_is_answered_by_its_handler() {
    let called = Arc::new(Mutex::new(Vec::new()));
    let call = |what: &'static str| {
        let called = called.clone();
        move || called.lock().unwrap().push(what)
    };
    let (permission, hook) = (call("SessionBuilder::can_use_tool"), call("SessionBuilder::hook"));
    let (elicitation, dialog) = (call("SessionBuilder::on_elicitation"), call("SessionBuilder::on_dialog"));
    let builder = Session::builder()
        .can_use_tool(move |_, _| {
            permission();
            async { PermissionDecision::allow() }
        })
        .hook(Hook::new("Stop", move |_, _| {
            hook();
            async { HookOutput::raw(json!({ "systemMessage": "heard" })) }
        }))
        .on_elicitation(move |_, _| {
            elicitation();
            async { ElicitationAnswer::Accept(json!({ "name": "Ada" })) }
        })
        .on_dialog(["refusal_fallback_prompt"], move |_, _| {
            dialog();
            async { DialogAnswer::Completed(json!("retry")) }
        })
        .mcp_server(ToolServer::new("desk", "1"));
    let (session, mut end, _listener) = start_by_hand(builder).await;
    for row in mapped("asked") {
        let subtype = row.wire.clone().unwrap();
        let (mut request, place, expected) = sample(&subtype);
        request["subtype"] = json!(subtype);
        let id = end.request(request);
        let answer = within(SOON, end.answer_to(&id)).await;
        assert_eq!(answer.pointer(place), Some(&expected), "{}: {answer}", row.name());
        // A server needs no handler of the application.
        if subtype != "mcp_message" {
            assert_eq!(called.lock().unwrap().pop().as_ref(), row.ours.first().map(String::as_str).as_ref());
        }
    }
    stop(session, end).await;
}
