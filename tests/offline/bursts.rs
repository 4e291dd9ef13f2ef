//! Messages that come in bursts: a call behind one does not wait for it, and what is said keeps its order.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{SOON, counters, rpc_answer, settled, start_by_hand, stop, text, within};
use greenroom::testkit::CliEnd;
use greenroom::{Message, NoArgs, Session, ToolServer};
use serde_json::json;

/// A line as the CLI writes it, its `type` first.
fn piece(number: usize) -> String {
    format!(
        r#"{{"type":"stream_event","event":{{"type":"content_block_delta","index":{number},"delta":{{"type":"text_delta","text":"word {number}"}}}},"session_id":"s","parent_tool_use_id":null,"uuid":"u{number}"}}"#
    )
}

fn line(end: &mut CliEnd, line: &str) {
    end.send_bytes(format!("{line}\n"));
}

fn index(message: &Message) -> usize {
    match message {
        Message::StreamEvent(piece) => usize::try_from(piece.index.unwrap()).unwrap(),
        message => usize::try_from(message.field("number").unwrap().as_u64().unwrap()).unwrap(),
    }
}

#[tokio::test]
async fn a_call_behind_a_burst_is_in_its_handler_before_the_burst_is_delivered() {
    const BURST: usize = 100;
    let (delivered, at_the_call) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(usize::MAX)));
    let (seen, noted) = (delivered.clone(), at_the_call.clone());
    let server = ToolServer::new("one", "1").tool("quick", "Answers", move |_: NoArgs| {
        noted.store(seen.load(Ordering::SeqCst), Ordering::SeqCst);
        async { "here" }
    });
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let mut turn = session.prompt("talk").await.unwrap();
    let prompt = within(SOON, end.expect("user")).await;
    let counted = delivered.clone();
    let reads = async move {
        while let Some(message) = turn.next().await {
            if matches!(message, Message::StreamEvent(_)) {
                assert_eq!(index(&message), counted.fetch_add(1, Ordering::SeqCst), "out of order");
            }
        }
        turn
    };
    let writes = async {
        // Written in one go, so read in one.
        for number in 0..BURST {
            line(&mut end, &piece(number));
        }
        let call = end.call_tool("one", "quick", json!({}));
        assert_eq!(text(&rpc_answer(&mut end, &call).await), "here");
        end.finish_turn(&prompt, "said");
        end
    };
    let (turn, end) = within(SOON, async { tokio::join!(reads, writes) }).await;
    assert_eq!(delivered.load(Ordering::SeqCst), BURST);
    let before = at_the_call.load(Ordering::SeqCst);
    assert!(before < BURST, "the call waited for all of the burst");
    drop(turn);
    stop(session, end).await;
}

#[tokio::test]
async fn order_is_kept_over_batches_and_a_broken_line_among_them_costs_itself() {
    let (session, mut end, _listener) = start_by_hand(Session::builder()).await;
    let mut turn = session.prompt("talk").await.unwrap();
    let prompt = within(SOON, end.expect("user")).await;
    for number in 0..1000 {
        match number % 10 {
            // Begins like a message, but is no JSON.
            3 => line(&mut end, r#"{"type":"stream_event","event":{"type":"#),
            5 => end.message(json!({ "type": "chatter", "number": number })),
            7 => {
                line(&mut end, &format!(r#"{{"type":"system","subtype":"of_next_year","number":{number}}}"#))
            }
            _ => line(&mut end, &piece(number)),
        }
    }
    end.finish_turn(&prompt, "said");
    let expected: Vec<usize> = (0..1000).filter(|number| number % 10 != 3).collect();
    let mut read = Vec::new();
    while let Some(message) = within(SOON, turn.next()).await {
        if message.kind() != "result" && message.subtype() != Some("init") && message.kind() != "assistant" {
            read.push(index(&message));
        }
    }
    assert_eq!(read, expected);
    assert!(turn.outcome().await.unwrap().is_completed());
    let counters = counters(&session).await;
    assert_eq!((counters.malformed_lines, counters.noise_lines), (100, 0));
    stop(session, end).await;
}

#[tokio::test]
async fn what_was_said_before_an_answer_is_known_when_the_answer_is() {
    let (session, mut end, _listener) = start_by_hand(Session::builder()).await;
    let mut turn = session.prompt("talk").await.unwrap();
    within(SOON, end.expect("user")).await;
    for number in 0..500 {
        line(&mut end, &piece(number));
    }
    end.begin_turn();
    settled(&mut end).await;
    assert!(session.session_id().is_some());
    assert!(counters(&session).await.messages > 500);
    assert_eq!(within(SOON, turn.next()).await.map(|message| index(&message)), Some(0));
    stop(session, end).await;
}
