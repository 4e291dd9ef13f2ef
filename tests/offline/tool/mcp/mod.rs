//! Features of in-process MCP servers beyond calls, on a CLI that the tests play: changes at run time, requests to
//! the CLI, resources, pages.

mod content;
mod dynamic;
mod misfits;
mod offers;
mod promises;
mod requests;
mod schemas;

use crate::common::*;
use greenroom_testkit::CliEnd;
use serde_json::{Value, json};

/// Asks a server something and waits for the JSON-RPC answer.
async fn ask(end: &mut CliEnd, server: &str, method: &str, params: Value) -> Value {
    let id = format!("{method} of the test");
    let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    let request_id = end.mcp(server, message);
    let answer = rpc_answer(end, &request_id).await;
    assert_eq!(answer["id"], id);
    answer
}

/// The next message of this method that a server pushes: the frame, acknowledged.
async fn pushed(end: &mut CliEnd, method: &str) -> Value {
    let fits =
        |frame: &Value| frame["type"] == "control_request" && frame["request"]["message"]["method"] == method;
    let frame = within(SOON, end.expect_where(method, fits)).await;
    assert_eq!(frame["request"]["subtype"], "mcp_message");
    end.answer(&frame, json!({}));
    frame
}

/// The names in a list.
async fn listed(end: &mut CliEnd, server: &str, method: &str, field: &str) -> Vec<String> {
    let result = ask(end, server, method, json!({})).await["result"].take();
    result[field].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
}

async fn tools(end: &mut CliEnd, server: &str) -> Vec<String> {
    listed(end, server, "tools/list", "tools").await
}

/// The methods that were pushed in these frames.
fn methods(frames: &[Value]) -> Vec<&str> {
    frames.iter().filter_map(|frame| frame["request"]["message"]["method"].as_str()).collect()
}
