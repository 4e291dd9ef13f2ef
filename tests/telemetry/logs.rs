//! What failed handlers write to the log.

use crate::common::*;
use crate::spans::Capture;
use greenroom::mcp::{ReadResource, ResourceDef};
use greenroom::tool::{self, ToolError};
use greenroom::{NoArgs, Session, ToolContext, ToolServer};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn the_cause_of_a_tool_error_is_logged_in_the_span_of_its_call() {
    let (capture, _guard) = Capture::start();
    let server = ToolServer::new("orders", "1.0.0")
        .tool("find", "Finds an order", async |_: NoArgs| -> tool::Result<String> {
            Err(ToolError::new("The order service is down.").log("10.0.0.7 refuses the connection"))
        })
        .resource(ResourceDef::new("orders://all", "all", async |_: ReadResource, _: ToolContext| {
            Err::<String, _>(ToolError::new("There are too many orders.").log("42 million rows"))
        }));
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    call(&mut end, "orders", "find", json!({})).await;
    let read =
        json!({ "jsonrpc": "2.0", "id": 9, "method": "resources/read", "params": { "uri": "orders://all" } });
    let read = end.mcp("orders", read);
    let answer = within(SOON, end.answer_to(&read)).await;
    assert_eq!(answer["mcp_response"]["error"]["message"], "There are too many orders.");
    assert!(!answer.to_string().contains("42 million"), "{answer}");

    for (span, message, text, cause) in [
        ("tool_call", "a tool failed", "The order service is down.", "10.0.0.7 refuses the connection"),
        ("mcp_request", "a handler failed", "There are too many orders.", "42 million rows"),
    ] {
        let (of, fields) = capture.event(message);
        assert_eq!(of.as_deref(), Some(span));
        assert!(fields.contains(text) && fields.contains(cause), "{fields}");
    }
    stop(session, end).await;
}
