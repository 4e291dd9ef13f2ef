//! Messages that nobody reads wait and hold up nothing; admission is bounded.

use std::collections::HashSet;
use std::time::Duration;

use crate::common::*;
use greenroom::options::UnreadPartials;
use greenroom::report::ConversationSnapshot;
use greenroom::{Error, ErrorKind, Event, NoArgs, Outcome, Session, SessionBuilder, ToolServer, Turn};
use greenroom_testkit::CliEnd;
use serde_json::{Value, json};
use tokio::sync::mpsc;

fn server(name: &str) -> ToolServer {
    ToolServer::new(name, "1").tool("ping", "Answers", async |_: NoArgs| "pong")
}

/// A session that keeps so many bytes of unread messages.
fn keeping(bytes: usize) -> SessionBuilder {
    Session::builder().mcp_server(server("one")).configure(|options| options.limits.unread_bytes = bytes)
}

/// Starts a turn. Returns it, and the prompt that the CLI got.
async fn begin(session: &Session, end: &mut CliEnd, text: &str) -> (Turn, Value) {
    let turn = within(SOON, session.prompt(text)).await.unwrap();
    let given = within(SOON, end.expect("user")).await;
    assert_eq!(given["message"]["content"][0]["text"], text);
    (turn, given)
}

fn chatter(end: &mut CliEnd, number: usize, length: usize) {
    end.message(json!({ "type": "chatter", "number": number, "text": "x".repeat(length) }));
}

async fn conversation(session: &Session) -> ConversationSnapshot {
    within(SOON, session.snapshot()).await.unwrap().conversation.unwrap()
}

/// Polls snapshots until one satisfies `so`, and returns it.
async fn until(session: &Session, so: impl Fn(&ConversationSnapshot) -> bool) -> ConversationSnapshot {
    within(SOON, async {
        loop {
            let conversation = conversation(session).await;
            if so(&conversation) {
                return conversation;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
}

/// A snapshot taken after the conversation has all messages written before. A call alone would overtake messages.
async fn all_taken_in(session: &Session, end: &mut CliEnd) -> ConversationSnapshot {
    settled(end).await;
    conversation(session).await
}

async fn ping(end: &mut CliEnd, server: &str) {
    assert_eq!(text(&call(end, server, "ping", json!({})).await), "pong");
}

/// Reads the next message, which has this number.
async fn reads(turn: &mut Turn, number: usize) {
    let message = within(SOON, turn.next()).await;
    assert_eq!(message.and_then(|message| message.field("number")), Some(json!(number)));
}

async fn failure(turn: &mut Turn) -> Error {
    match within(SOON, turn.outcome()).await.unwrap() {
        Outcome::Failed { error, result: None, .. } => error,
        other => panic!("{other:?}"),
    }
}

/// A prompt and its answer.
async fn exchange(session: &Session, end: &mut CliEnd, text: &str) {
    let (mut turn, given) = begin(session, end, text).await;
    end.finish_turn(&given, text);
    assert_eq!(within(SOON, turn.outcome()).await.unwrap().text(), Some(text));
}

// Guards: control-first
// Guards: nobody reads messages
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_reads_nothing_holds_up_no_call_and_loses_nothing() {
    let (session, mut end, _listener) = start_by_hand(keeping(64 << 20)).await;
    let (mut turn, given) = begin(&session, &mut end, "talk").await;
    let mut calls = HashSet::new();
    for number in 0..100_000 {
        chatter(&mut end, number, 20);
        if number % 100 == 0 {
            calls.insert(end.call_tool("one", "ping", json!({})));
        }
    }
    while !calls.is_empty() {
        let frame = within(SOON, end.recv()).await.unwrap();
        if frame["type"] == "control_response" {
            assert_eq!(text(&frame["response"]["response"]["mcp_response"]), "pong");
            assert!(calls.remove(frame["response"]["request_id"].as_str().unwrap()));
        }
    }
    // The calls have overtaken messages.
    let standing = all_taken_in(&session, &mut end).await;
    assert!(standing.unread_bytes > 5_000_000, "{standing:?}");

    end.finish_turn(&given, "over");
    for number in 0..100_000 {
        reads(&mut turn, number).await;
    }
    assert_eq!(within(SOON, turn.next()).await.unwrap().kind(), "result");
    assert!(within(SOON, turn.next()).await.is_none());
    assert_eq!(within(SOON, turn.outcome()).await.unwrap().text(), Some("over"));
    assert_eq!(turn.missed_partials(), 0);
    exchange(&session, &mut end, "next").await;
    stop(session, end).await;
}

#[tokio::test]
async fn what_is_read_late_and_what_comes_meanwhile_stay_in_order() {
    let (session, mut end, _listener) = start_by_hand(keeping(300_000)).await;
    let (mut turn, given) = begin(&session, &mut end, "talk").await;
    let (mut sent, mut read) = (0, 0);
    // More than three times the bound, and never more than it at a time.
    for _ in 0..10 {
        for _ in 0..100 {
            chatter(&mut end, sent, 1000);
            sent += 1;
        }
        all_taken_in(&session, &mut end).await;
        while read + 150 < sent {
            reads(&mut turn, read).await;
            read += 1;
        }
    }
    // A `next` that is dropped loses no message.
    for _ in 0..20 {
        tokio::time::timeout(Duration::ZERO, turn.next()).await.ok().flatten().inspect(|message| {
            assert_eq!(message.field("number"), Some(json!(read)));
            read += 1;
        });
    }
    while read < sent {
        reads(&mut turn, read).await;
        read += 1;
    }
    assert_eq!(conversation(&session).await.unread_bytes, 0);
    chatter(&mut end, sent, 10);
    reads(&mut turn, sent).await;
    end.finish_turn(&given, "over");
    assert_eq!(within(SOON, turn.outcome()).await.unwrap().text(), Some("over"));
    stop(session, end).await;
}

// Guards: control-first
// Guards: nobody reads messages
#[tokio::test]
async fn past_the_bound_the_turn_ends_and_the_next_prompt_works() {
    let (session, mut end, _listener) = start_by_hand(keeping(300_000)).await;
    let (mut turn, given) = begin(&session, &mut end, "talk").await;
    for number in 0..400 {
        chatter(&mut end, number, 1000);
    }
    ping(&mut end, "one").await;
    all_taken_in(&session, &mut end).await;
    let mut read = 0;
    while let Some(message) = within(SOON, turn.next()).await {
        assert_eq!(message.field("number"), Some(json!(read)));
        read += 1;
    }
    // Each takes 1,100 bytes and a little.
    assert!((250..275).contains(&read), "{read}");
    let error = failure(&mut turn).await;
    assert_eq!(error.kind(), ErrorKind::Overflow);
    assert!(error.help().unwrap().contains("limits.unread_bytes"), "{error}");
    assert!(error.to_string().contains("300000 bytes of them were waiting"), "{error}");
    assert!(counters(&session).await.unread_messages >= 100);
    end.finish_turn(&given, "too late");
    exchange(&session, &mut end, "next").await;
    stop(session, end).await;
}

#[tokio::test]
async fn an_outcome_that_is_asked_for_late_drops_what_waits() {
    let (session, mut end, _listener) = start_by_hand(keeping(1 << 20)).await;
    let (mut turn, given) = begin(&session, &mut end, "talk").await;
    for number in 0..500 {
        chatter(&mut end, number, 1000);
    }
    assert!(all_taken_in(&session, &mut end).await.unread_bytes > 500_000);
    let (outcome, ()) = tokio::join!(within(SOON, turn.outcome()), async {
        until(&session, |now| now.unread_bytes == 0).await;
        end.finish_turn(&given, "over");
    });
    assert_eq!(outcome.unwrap().text(), Some("over"));
    stop(session, end).await;
}

#[tokio::test]
async fn a_turn_without_a_reader_keeps_no_messages() {
    let (session, mut end, _listener) = start_by_hand(keeping(1 << 20)).await;
    let (turn, given) = begin(&session, &mut end, "talk").await;
    for number in 0..500 {
        chatter(&mut end, number, 1000);
    }
    assert!(all_taken_in(&session, &mut end).await.unread_bytes > 500_000);
    drop(turn);
    for number in 0..500 {
        chatter(&mut end, number, 1000);
    }
    assert_eq!(all_taken_in(&session, &mut end).await.unread_bytes, 0);
    end.finish_turn(&given, "over");
    exchange(&session, &mut end, "next").await;
    stop(session, end).await;
}

#[tokio::test]
async fn a_consumer_that_has_stopped_for_ever_holds_up_no_stop() {
    let (session, mut end, _listener) = start_by_hand(keeping(16 << 20)).await;
    let (mut turn, _) = begin(&session, &mut end, "talk").await;
    for number in 0..5000 {
        chatter(&mut end, number, 1000);
    }
    ping(&mut end, "one").await;
    within(SOON, async { tokio::join!(session.stop(), end.run_out()).0 }).await.unwrap();
    // Messages that had arrived can be read after the session is gone.
    for number in 0..5000 {
        reads(&mut turn, number).await;
    }
    assert!(within(SOON, turn.next()).await.is_none());
    assert!(matches!(within(SOON, turn.outcome()).await.unwrap(), Outcome::Interrupted { .. }));
}

#[tokio::test(start_paused = true)]
async fn partial_messages_go_first_by_choice_and_the_reader_is_told_where() {
    let builder = Session::builder().configure(|options| {
        options.limits.unread_bytes = 20_000;
        options.unread_partials = UnreadPartials::DropFirst;
    });
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let (mut turn, given) = begin(&session, &mut end, "talk").await;
    for number in 0..1000 {
        if number % 100 == 0 {
            chatter(&mut end, number, 10);
        } else {
            end.message(
                json!({ "type": "stream_event", "number": number, "parent_tool_use_id": null, "event": {
                "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "word" },
            } }),
            );
        }
    }
    end.finish_turn(&given, "over");
    within(SOON, session.wait_idle()).await;
    assert!(counters(&session).await.dropped_partials > 500);

    let (mut expected, mut whole) = (0, 0);
    while let Some(message) = within(SOON, turn.next()).await {
        // A message's number is the count of messages and gaps before it.
        let number = message.field("number").map_or(1000, |number| number.as_u64().unwrap());
        assert_eq!(number, expected + turn.missed_partials());
        expected += 1;
        whole += u64::from(message.kind() == "chatter");
    }
    assert_eq!(whole, 10, "only partial messages may be dropped");
    assert_eq!(turn.missed_partials(), counters(&session).await.dropped_partials);
    assert_eq!(expected + turn.missed_partials(), 1001);
    assert_eq!(within(SOON, turn.outcome()).await.unwrap().text(), Some("over"));
    stop(session, end).await;
}

/// A server with a tool that hangs until it is cancelled.
fn hanging(name: &str) -> (ToolServer, mpsc::UnboundedReceiver<()>) {
    let (started, begun) = mpsc::unbounded_channel();
    let server = server(name).tool("hang", "Hangs", move |_: NoArgs, cx: greenroom::ToolContext| {
        started.send(()).ok();
        async move { cx.cancelled().await }
    });
    (server, begun)
}

fn at_capacity(event: &Event) -> Option<(Option<String>, usize)> {
    match event {
        Event::AtCapacity { server, limit } => Some((server.clone(), *limit)),
        _ => None,
    }
}

// Guards: control-first
// Guards: more requests than may be in flight
#[tokio::test(start_paused = true)]
async fn a_server_at_capacity_refuses_calls_with_one_event() {
    let (one, mut begun) = hanging("one");
    let builder = Session::builder().mcp_server(one).mcp_server(server("two"));
    let builder = builder.configure(|options| options.limits.calls_per_server = 4);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut events = session.events();
    for round in 1..=2 {
        let mut calls = Vec::new();
        for _ in 0..4 {
            calls.push((end.call_tool("one", "hang", json!({})), end.last_rpc_id()));
            within(SOON, begun.recv()).await.unwrap();
        }
        for _ in 0..50 {
            let answer = call(&mut end, "one", "ping", json!({})).await;
            assert_eq!(answer["error"]["code"], -32603);
            assert_eq!(
                answer["error"]["message"],
                "at capacity: 4 requests to MCP server 'one' are in flight"
            );
        }
        ping(&mut end, "two").await;
        assert_eq!(counters(&session).await.at_capacity, 50 * round);
        assert_eq!(event(&mut events, at_capacity).await, (Some("one".into()), 4));
        for (request_id, rpc_id) in calls {
            end.cancel_call("one", rpc_id);
            rpc_answer(&mut end, &request_id).await;
        }
        ping(&mut end, "one").await;
    }
    stop(session, end).await;
    while let Some(event) = within(SOON, events.next()).await {
        assert!(at_capacity(&event).is_none(), "a flood of events");
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_at_its_bound_says_so_once() {
    let (one, mut begun) = hanging("one");
    let builder = Session::builder().mcp_server(one).configure(|options| options.limits.calls_in_flight = 1);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut events = session.events();
    end.call_tool("one", "hang", json!({}));
    within(SOON, begun.recv()).await.unwrap();
    for _ in 0..9 {
        let answer = call(&mut end, "one", "ping", json!({})).await;
        assert_eq!(answer["error"]["message"], "at capacity: 1 requests are in flight");
    }
    assert_eq!(event(&mut events, at_capacity).await, (None, 1));
    stop(session, end).await;
    while let Some(event) = within(SOON, events.next()).await {
        assert!(at_capacity(&event).is_none(), "a flood of events");
    }
}
