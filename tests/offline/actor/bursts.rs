//! Messages that come in bursts: a call behind one does not wait for it, and what is said keeps its order.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{SOON, counters, rpc_answer, settled, start_by_hand, stop, text, within};
use futures_util::FutureExt;
use greenroom::{Message, NoArgs, Session, ToolServer};
use greenroom_testkit::{CliEnd, ScriptedCli};
use serde_json::json;
use tokio::task::JoinSet;

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

// Guards: control-first
#[tokio::test(start_paused = true)]
async fn an_answer_never_overtakes_the_messages_written_before_it() {
    let (session, mut end, _listener) = start_by_hand(Session::builder()).await;
    let mut turn = session.prompt("talk").await.unwrap();
    within(SOON, end.expect("user")).await;
    // A task of its own: it runs as soon as the answer is there.
    let mut asking = JoinSet::new();
    let asked = session.clone();
    asking.spawn(async move {
        asked.set_model(Some("haiku")).await.unwrap();
        asked.session_id()
    });
    let request = within(SOON, end.expect_request("set_model")).await;
    assert_eq!(session.session_id(), None);
    end.begin_turn();
    end.answer(&request, json!({}));
    let known = within(SOON, asking.join_next()).await.unwrap().unwrap();
    assert_eq!(known.as_deref(), Some(end.session_id()), "the `init` was written before the answer");
    assert_eq!(within(SOON, turn.next()).await.unwrap().subtype(), Some("init"));
    drop(turn);
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_nobody_serves_is_answered_after_the_messages_before_it() {
    const MANY: usize = 3000;
    let (session, mut end, _listener) = start_by_hand(Session::builder()).await;
    let _turn = session.prompt("talk").await.unwrap();
    within(SOON, end.expect("user")).await;
    // Short messages, so that one read has many.
    end.send_bytes("{\"type\":\"chatter\"}\n".repeat(MANY));
    end.begin_turn();
    let request = end.request(json!({ "subtype": "of_next_year" }));
    // A task of its own: it runs as soon as the answer is there.
    let mut awaiting = JoinSet::new();
    let asked = session.clone();
    awaiting.spawn(async move {
        end.answer_to(&request).await;
        (asked.session_id(), end)
    });
    let (known, end) = within(SOON, awaiting.join_next()).await.unwrap().unwrap();
    assert_eq!(known.as_deref(), Some(end.session_id()), "the `init` was written before the request");
    stop(session, end).await;
}

// Guards: control-first
#[tokio::test(start_paused = true)]
async fn requests_of_one_read_are_answered_in_order() {
    let server = ToolServer::new("one", "1").tool("quick", "Answers", async |_: NoArgs| "here");
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let ping = |id: u64| json!({ "jsonrpc": "2.0", "id": id, "method": "ping" });
    // Read in one go. There is no server of the first name.
    let written: Vec<_> =
        (0..8).map(|n| end.mcp(if n == 0 { "nobody" } else { "one" }, ping(900 + n))).collect();
    let mut answered = Vec::new();
    while answered.len() < written.len() {
        let frame = within(SOON, end.expect("control_response")).await;
        answered.push(frame["response"]["request_id"].as_str().unwrap().to_owned());
    }
    assert_eq!(answered, written);
    stop(session, end).await;
}

// Guards: control-first
#[tokio::test(start_paused = true)]
async fn a_flood_of_messages_is_delivered_little_by_little_while_calls_run() {
    const FLOOD: usize = 3000;
    let (delivered, at_the_call) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(usize::MAX)));
    let (seen, noted) = (delivered.clone(), at_the_call.clone());
    let server = ToolServer::new("one", "1")
        .tool("hang", "Hangs", async |_: NoArgs| std::future::pending::<String>().await)
        .tool("quick", "Answers", move |_: NoArgs| {
            noted.store(seen.load(Ordering::SeqCst), Ordering::SeqCst);
            async { "here" }
        });
    let builder = Session::builder().mcp_server(server);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut turn = session.prompt("talk").await.unwrap();
    let prompt = within(SOON, end.expect("user")).await;
    let counted = delivered.clone();
    let mut reading = JoinSet::new();
    reading.spawn(async move {
        while let Some(message) = turn.next().await {
            if matches!(message, Message::StreamEvent(_)) {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        }
        turn
    });
    end.call_tool("one", "hang", json!({}));
    // More than the pipe holds, so the call is written while the session takes the messages in.
    let flood: String = (0..FLOOD).map(|number| piece(number) + "\n").collect();
    end.send_bytes(flood);
    let call = end.call_tool("one", "quick", json!({}));
    assert_eq!(text(&rpc_answer(&mut end, &call).await), "here");
    let before = at_the_call.load(Ordering::SeqCst);
    assert!(before < FLOOD / 4, "{before} of {FLOOD} messages were delivered before the call");
    end.finish_turn(&prompt, "said");
    drop(within(SOON, reading.join_next()).await.unwrap().unwrap());
    assert_eq!(delivered.load(Ordering::SeqCst), FLOOD);
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn the_first_messages_of_a_long_burst_do_not_wait_for_its_end() {
    const BURST: usize = 1000;
    let (transport, mut listener) = ScriptedCli::by_hand();
    // The pipe takes the whole burst at once, so the session finds one read after another without waiting.
    let builder = Session::builder().transport(transport.with_buffer_bytes(16 << 20));
    let (session, mut end) = within(SOON, async {
        tokio::join!(builder.start(), async {
            let mut end = listener.accept().await;
            end.handshake().await;
            end
        })
    })
    .await;
    let session = session.unwrap();
    let mut turn = session.prompt("talk").await.unwrap();
    let prompt = within(SOON, end.expect("user")).await;
    let mut reading = JoinSet::new();
    reading.spawn(async move {
        let mut first = usize::from(turn.next().await.is_some());
        while turn.next().now_or_never().flatten().is_some() {
            first += 1;
        }
        let mut all = first;
        while turn.next().await.is_some() {
            all += 1;
        }
        (first, all)
    });
    let long = "x".repeat(1000);
    let burst: String = (0..BURST).map(|number| piece(number).replace("word", &long) + "\n").collect();
    end.send_bytes(burst);
    end.finish_turn(&prompt, "said");
    let (first, all) = within(SOON, reading.join_next()).await.unwrap().unwrap();
    assert!(all > BURST, "{all} messages");
    assert!(first < BURST / 4, "the first message came with {first} of {all}");
    stop(session, end).await;
}
