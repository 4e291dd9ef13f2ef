//! Texts of the CLI reach errors, events and snapshots short, and without escape sequences, which could rewrite what a
//! terminal shows.

use crate::common::*;
use greenroom::transport::Exit;
use greenroom::{Event, NoArgs, Outcome, Session, ToolContext, ToolServer};
use serde_json::json;

const RED: &str = "\u{1b}[31mred\u{1b}[0m\u{7} \u{1b}]0;title\u{7}\u{9b}and more";
const PLAIN: &str = "red and more";

fn is_plain(text: &str) {
    assert!(text.contains(PLAIN), "{text:?}");
    assert!(!text.chars().any(|char| char.is_control() && char != '\n'), "{text:?}");
}

// Guards: a text of the CLI has escape sequences
#[tokio::test(start_paused = true)]
async fn no_escape_sequence_of_the_cli_reaches_an_error_or_an_event() {
    let hang = ToolServer::new("one", "1")
        .tool("hang", "Hangs", |_: NoArgs, cx: ToolContext| async move { cx.cancelled().await });
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(hang)).await;
    let mut events = session.events();

    let refused = async {
        let request = end.expect_request("set_model").await;
        end.send(json!({ "type": "control_response", "response": {
            "subtype": "error", "request_id": request["request_id"], "error": RED, "error_code": RED } }));
    };
    let (error, ()) = within(SOON, async { tokio::join!(session.set_model(None), refused) }).await;
    let error = error.unwrap_err();
    is_plain(&error.to_string());
    is_plain(error.code().unwrap());

    let mut turn = within(SOON, session.prompt("fail")).await.unwrap();
    let prompt = within(SOON, end.expect("user")).await;
    end.fail_turn(&prompt, "api_error", RED);
    match within(SOON, turn.outcome()).await.unwrap() {
        Outcome::Failed { error, .. } => is_plain(&error.to_string()),
        other => panic!("{other:?}"),
    }

    end.call_tool("one", "hang", json!({}));
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": { "requestId": end.last_rpc_id(), "reason": RED } });
    end.mcp("one", cancel);
    let reason = |event: &Event| match event {
        Event::CallCancelled { reason, .. } => reason.clone(),
        _ => None,
    };
    is_plain(&event(&mut events, reason).await);

    end.send_bytes(format!("{{\"type\":\"control_request\",\"request_id\":\"a\",\"request\":\"{RED}\"}}\n"));
    let skipped = |event: &Event| match event {
        Event::LineSkipped { reason, .. } => Some(reason.clone()),
        _ => None,
    };
    let reason = event(&mut events, skipped).await;
    assert!(!reason.chars().any(char::is_control), "{reason:?}");

    (end.launch().command.stderr)(RED);
    end.exit(Exit::Code(3));
    let exited = |event: &Event| match event {
        Event::CliExited { cause, .. } => Some(cause.clone()),
        _ => None,
    };
    let cause = event(&mut events, exited).await;
    assert_eq!(cause.stderr(), Some(PLAIN));
}

/// A text of 1 MB of which the beginning and the end say something.
fn long() -> String {
    format!("begins {} ends", "x".repeat(1 << 20))
}

fn is_short(text: &str) {
    assert!(text.len() <= 4096, "{} bytes", text.len());
    assert!(
        text.contains("begins x") && text.contains(" ... (cut) ... ") && text.ends_with("x ends"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_long_text_of_the_cli_loses_its_middle_and_its_stderr_does_not() {
    let hang = ToolServer::new("one", "1")
        .tool("hang", "Hangs", |_: NoArgs, cx: ToolContext| async move { cx.cancelled().await });
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(hang)).await;
    let mut events = session.events();

    let refused = async {
        let request = end.expect_request("set_model").await;
        end.send(json!({ "type": "control_response", "response": {
            "subtype": "error", "request_id": request["request_id"], "error": long() } }));
    };
    let (error, ()) = within(SOON, async { tokio::join!(session.set_model(None), refused) }).await;
    is_short(&error.unwrap_err().to_string());

    let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {
        "name": "hang", "arguments": {}, "_meta": { "claudecode/toolUseId": long() } } });
    end.send(json!({ "type": "control_request", "request_id": long(), "request": {
        "subtype": "mcp_message", "server_name": "one", "message": call } }));
    settled(&mut end).await;
    let snapshot = within(SOON, session.snapshot()).await.unwrap();
    is_short(&snapshot.router.as_ref().unwrap().owed[0].request_id);
    let call = snapshot.calls().next().unwrap();
    is_short(&call.request_id);
    is_short(call.tool_use_id.as_deref().unwrap());

    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": { "requestId": 7, "reason": long() } });
    end.mcp("one", cancel);
    let cancelled = |event: &Event| match event {
        Event::CallCancelled { request_id, reason, .. } => Some((request_id.clone(), reason.clone()?)),
        _ => None,
    };
    let (request_id, reason) = event(&mut events, cancelled).await;
    is_short(&request_id);
    is_short(&reason);

    let line = "x".repeat(15_000);
    (end.launch().command.stderr)(&line);
    end.exit(Exit::Code(3));
    let exited = |event: &Event| match event {
        Event::CliExited { cause, .. } => Some(cause.clone()),
        _ => None,
    };
    assert_eq!(event(&mut events, exited).await.stderr(), Some(&*line));
}
