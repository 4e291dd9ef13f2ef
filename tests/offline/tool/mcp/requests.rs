//! Requests of a server to the CLI.

use std::time::Duration;

use greenroom::mcp::RpcError;
use greenroom::testkit::{CliEnd, Fault};
use greenroom::tool::{LogLevel, RequestError};
use greenroom::{Event, NoArgs, Session, ToolContext, ToolDef, ToolServer};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{ask, methods, pushed};
use crate::common::*;

/// A server with a tool that asks for roots and tells what came of it, also to the test.
fn asking() -> (ToolServer, mpsc::UnboundedReceiver<Result<Value, RequestError>>) {
    let (told, heard) = mpsc::unbounded_channel();
    let roots = ToolDef::<()>::new("roots", "Asks for roots", move |_: NoArgs, cx: ToolContext| {
        let told = told.clone();
        async move {
            #[allow(
                clippy::disallowed_methods,
                reason = "what comes of it is heard when the handler is gone"
            )]
            let asked = tokio::spawn(async move {
                let answer = cx.request("roots/list", json!({})).await;
                told.send(answer.clone()).ok();
                answer
            });
            asked.await.unwrap().map(|answer| answer.to_string())
        }
    });
    (ToolServer::new("asker", "1.0.0").add_tool(roots), heard)
}

async fn heard(heard: &mut mpsc::UnboundedReceiver<Result<Value, RequestError>>) -> RequestError {
    within(SOON, heard.recv()).await.unwrap().unwrap_err()
}

/// The CLI answers a request of a server.
fn answers_with(end: &mut CliEnd, request: &Value, mut response: Value) -> String {
    response["jsonrpc"] = json!("2.0");
    response["id"] = request["request"]["message"]["id"].clone();
    end.mcp("asker", response)
}

// Guards: the CLI does not answer a request of a server, refuses it, or ends
#[tokio::test(start_paused = true)]
async fn an_answer_and_a_refusal_come_back_to_the_one_who_asked() {
    let (server, mut outcome) = asking();
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let (first, second) =
        (end.call_tool("asker", "roots", json!({})), end.call_tool("asker", "roots", json!({})));
    let (one, two) = (pushed(&mut end, "roots/list").await, pushed(&mut end, "roots/list").await);
    assert_ne!(one["request"]["message"]["id"], two["request"]["message"]["id"]);
    assert_eq!(one["request"]["message"]["params"], json!({}));

    let ack =
        answers_with(&mut end, &two, json!({ "error": { "code": -32601, "message": "Method not found" } }));
    assert!(rpc_answer(&mut end, &ack).await.get("result").is_some(), "the answer is acknowledged");
    assert_eq!(heard(&mut outcome).await, RequestError::Refused(RpcError::new(-32601, "Method not found")));
    let answer = rpc_answer(&mut end, &second).await;
    assert_eq!(error_text(&answer), "the CLI refused the request: Method not found (-32601)");
    answers_with(&mut end, &one, json!({ "result": { "roots": [] } }));
    assert_eq!(text(&rpc_answer(&mut end, &first).await), r#"{"roots":[]}"#);

    // An answer to nothing that waits, and one whose id is that of a call of the CLI, are nobody's.
    answers_with(&mut end, &one, json!({ "result": {} }));
    for id in [json!(2), json!("greenroom_99"), json!(null)] {
        end.mcp("asker", json!({ "jsonrpc": "2.0", "id": id, "result": {} }));
    }
    settled(&mut end).await;
    assert_eq!(counters(&session).await.unmatched_responses, 3);
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_with_the_id_of_one_of_ours_is_a_request_all_the_same() {
    let (server, mut outcome) = asking();
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    end.call_tool("asker", "roots", json!({}));
    let asked = pushed(&mut end, "roots/list").await;
    let id = &asked["request"]["message"]["id"];
    let ping = end.mcp("asker", json!({ "jsonrpc": "2.0", "id": id, "method": "ping" }));
    assert_eq!(rpc_answer(&mut end, &ping).await, json!({ "jsonrpc": "2.0", "id": id, "result": {} }));
    answers_with(&mut end, &asked, json!({ "result": 7 }));
    assert_eq!(within(SOON, outcome.recv()).await.unwrap(), Ok(json!(7)));
    stop(session, end).await;
}

// Guards: the CLI does not answer a request of a server, refuses it, or ends
#[tokio::test(start_paused = true)]
async fn a_request_ends_with_its_limit_and_the_cli_is_told() {
    let (server, mut outcome) = asking();
    let builder = Session::builder()
        .mcp_server(server)
        .configure(|options| options.timeouts.mcp_request = Duration::from_secs(3));
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let call = end.call_tool("asker", "roots", json!({}));
    let asked = pushed(&mut end, "roots/list").await;
    assert_eq!(heard(&mut outcome).await, RequestError::TimedOut(Duration::from_secs(3)));
    assert_eq!(
        error_text(&rpc_answer(&mut end, &call).await),
        "the CLI did not answer the request within 3s"
    );
    let told = pushed(&mut end, "notifications/cancelled").await;
    assert_eq!(told["request"]["message"]["params"]["requestId"], asked["request"]["message"]["id"]);
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_ends_with_the_call_that_asked() {
    let (server, mut outcome) = asking();
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let call = end.call_tool("asker", "roots", json!({}));
    pushed(&mut end, "roots/list").await;
    end.cancel_call("asker", end.last_rpc_id());
    assert_eq!(heard(&mut outcome).await, RequestError::Cancelled);
    assert_eq!(rpc_answer(&mut end, &call).await["error"]["code"], -32800);
    pushed(&mut end, "notifications/cancelled").await;
    stop(session, end).await;
}

// Guards: the CLI does not answer a request of a server, refuses it, or ends
#[tokio::test(start_paused = true)]
async fn a_request_ends_with_its_server_and_with_its_cli() {
    let (server, mut outcome) = asking();
    let (session, mut end, mut listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let mut events = session.events();
    end.call_tool("asker", "roots", json!({}));
    pushed(&mut end, "roots/list").await;
    session.inject(Fault::KillServer("asker".into()));
    assert_eq!(heard(&mut outcome).await, RequestError::ServerEnded);
    event(&mut events, |event| matches!(event, Event::ServerRestarted { .. }).then_some(())).await;

    end.call_tool("asker", "roots", json!({}));
    pushed(&mut end, "roots/list").await;
    session.inject(Fault::KillPort);
    let ended = heard(&mut outcome).await;
    assert!(matches!(ended, RequestError::Ended | RequestError::Cancelled), "{ended}");
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.handshake()).await;
    assert_eq!(methods(&settled(&mut end).await), Vec::<&str>::new(), "the next CLI hears nothing of it");
    let snapshot = session.snapshot().await.unwrap();
    assert_eq!(snapshot.servers[0].requests, 0, "nothing is left behind");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_says_why_and_one_over_the_bound_is_not_sent() {
    let (server, mut outcome) = asking();
    let builder =
        Session::builder().mcp_server(server).configure(|options| options.limits.mcp_requests_per_server = 1);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    end.call_tool("asker", "roots", json!({}));
    let fits = |frame: &Value| frame["request"]["message"]["method"] == "roots/list";
    let asked = within(SOON, end.expect_where("roots/list", fits)).await;
    assert_eq!(session.snapshot().await.unwrap().servers[0].requests, 1);
    let over = end.call_tool("asker", "roots", json!({}));
    assert_eq!(heard(&mut outcome).await, RequestError::AtCapacity(1));
    assert!(error_text(&rpc_answer(&mut end, &over).await).contains("at capacity"));
    end.refuse(&asked, "no such server");
    assert_eq!(heard(&mut outcome).await, RequestError::NotTaken("no such server".into()));
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
async fn an_answer_comes_through_when_the_call_that_asked_fills_its_server() {
    let (server, mut outcome) = asking();
    let builder =
        Session::builder().mcp_server(server).configure(|options| options.limits.calls_per_server = 1);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let call = end.call_tool("asker", "roots", json!({}));
    let asked = pushed(&mut end, "roots/list").await;
    answers_with(&mut end, &asked, json!({ "result": { "roots": [] } }));
    assert_eq!(within(SOON, outcome.recv()).await.unwrap(), Ok(json!({ "roots": [] })));
    assert_eq!(text(&rpc_answer(&mut end, &call).await), r#"{"roots":[]}"#);
    assert_eq!(counters(&session).await.at_capacity, 0);
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
