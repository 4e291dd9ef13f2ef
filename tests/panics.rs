//! Panicking tools, servers, callbacks and the router: every call is answered and the session goes on.

mod common;

use common::*;
use greenroom::{NoArgs, Session, ToolServer};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn a_panicking_tool_is_answered() {
    let server = ToolServer::new("calc", "1.0.0").tool("boom", "Panics", async |_: NoArgs| -> String { panic!("kaboom") });
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let answer = call(&mut end, "calc", "boom", json!({})).await;
    assert_eq!(error_text(&answer), "tool 'boom' panicked: kaboom");
    stop(session, end).await;
}
