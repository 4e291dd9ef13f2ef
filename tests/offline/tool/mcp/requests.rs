//! Notifications of a server to the CLI, and answers that it has not asked for.

use greenroom::tool::LogLevel;
use greenroom::{Event, NoArgs, Session, ToolContext, ToolDef, ToolServer};
use greenroom_testkit::Fault;
use serde_json::json;

use super::{ask, methods, pushed};
use crate::common::*;

#[tokio::test(start_paused = true)]
async fn an_answer_to_a_server_is_acknowledged_and_counted() {
    let server = ToolServer::new("asker", "1.0.0").tool("noop", "Does nothing", async |_: NoArgs| "");
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    for id in [json!(2), json!("greenroom_99"), json!(null)] {
        let sent = end.mcp("asker", json!({ "jsonrpc": "2.0", "id": id, "result": {} }));
        assert!(rpc_answer(&mut end, &sent).await.get("result").is_some(), "the answer is acknowledged");
    }
    assert_eq!(counters(&session).await.unmatched_responses, 3);
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn the_log_level_holds_for_calls_and_for_the_server_itself() {
    let log = ToolDef::<()>::new("log", "Logs", async |_: NoArgs, cx: ToolContext| {
        cx.log(LogLevel::Info, "quiet").await;
        cx.log(LogLevel::Error, json!({ "loud": true })).await;
        cx.notify("notifications/of/mine", json!({ "a": 1 })).await;
    });
    let server = ToolServer::new("asker", "1.0.0").add_tool(log);
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let set = ask(&mut end, "asker", "logging/setLevel", json!({ "level": "warning" })).await;
    assert_eq!(set["result"], json!({}));
    let bad = ask(&mut end, "asker", "logging/setLevel", json!({ "level": "loud" })).await;
    assert_eq!(bad["error"]["code"], -32602);
    call(&mut end, "asker", "log", json!({})).await;
    let frames = settled(&mut end).await;
    assert_eq!(methods(&frames), ["notifications/message", "notifications/of/mine"]);
    let params = json!({ "level": "error", "logger": "log", "data": { "loud": true } });
    assert_eq!(frames[0]["request"]["message"]["params"], params);

    let handle = session.server("asker").unwrap();
    handle.log(LogLevel::Debug, "own", "quiet").await;
    handle.log(LogLevel::Alert, "own", "loud").await;
    let told = pushed(&mut end, "notifications/message").await;
    assert_eq!(told["request"]["message"]["params"]["logger"], "own");
    assert_eq!(told["request"]["server_name"], "asker");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn the_log_level_of_a_cli_is_not_that_of_the_next() {
    let server = ToolServer::new("asker", "1.0.0").tool("noop", "Does nothing", async |_: NoArgs| "");
    let (session, mut end, mut listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let mut events = session.events();
    ask(&mut end, "asker", "logging/setLevel", json!({ "level": "alert" })).await;
    session.inject(Fault::KillPort);
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.handshake()).await;
    event(&mut events, |event| matches!(event, Event::CliRestarted { .. }).then_some(())).await;
    settled(&mut end).await;
    session.server("asker").unwrap().log(LogLevel::Debug, "own", "heard").await;
    let frames = settled(&mut end).await;
    assert_eq!(methods(&frames), ["notifications/message"]);
    stop(session, end).await;
}
