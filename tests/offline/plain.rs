//! Texts of the CLI reach errors and events without escape sequences, which could rewrite what a terminal shows.

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

    end.launch().stderr.line(RED);
    end.exit(Exit::Code(3));
    let exited = |event: &Event| match event {
        Event::CliExited { cause, .. } => Some(cause.clone()),
        _ => None,
    };
    let cause = event(&mut events, exited).await;
    assert_eq!(cause.stderr(), Some(PLAIN));
}
