//! A slow, hanging or blocking handler is nobody else's trouble.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::*;
use greenroom::hook::HookOutput;
use greenroom::{Event, Hook, NoArgs, PermissionDecision, Session, ToolContext, ToolDef, ToolServer};
use greenroom_testkit::CliEnd;
use serde_json::json;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

/// A server with a tool that hangs for ever, deaf to its cancellation, and one that answers at once.
fn stuck(name: &str) -> (ToolServer, mpsc::UnboundedReceiver<()>) {
    let (started, hanging) = mpsc::unbounded_channel();
    let server = ToolServer::new(name, "1.0.0")
        .tool("hang", "Hangs", move |_: NoArgs| {
            started.send(()).ok();
            std::future::pending::<String>()
        })
        .tool("quick", "Answers", async |_: NoArgs| "here");
    (server, hanging)
}

async fn quick(end: &mut CliEnd, server: &str) {
    assert_eq!(text(&call(end, server, "quick", json!({})).await), "here");
}

// Guards: isolated
#[tokio::test(start_paused = true)]
async fn a_handler_that_hangs_for_ever_delays_no_call_no_message_and_no_stop() {
    let (server, mut hanging) = stuck("one");
    let builder = Session::builder().mcp_server(server).mcp_server(stuck("two").0);
    let builder = builder.can_use_tool(async |_, _| PermissionDecision::allow());
    let (session, mut end, _listener) = start_by_hand(builder).await;
    end.call_tool("one", "hang", json!({}));
    within(SOON, hanging.recv()).await.unwrap();

    let asked = Instant::now();
    quick(&mut end, "one").await;
    quick(&mut end, "two").await;
    let permission = end.request(json!({ "subtype": "can_use_tool", "tool_name": "Bash", "input": {} }));
    assert_eq!(within(SOON, end.answer_to(&permission)).await["behavior"], "allow");
    let mut turn = session.prompt("hello").await.unwrap();
    let prompt = within(SOON, end.expect("user")).await;
    end.begin_turn();
    assert_eq!(within(SOON, turn.next()).await.unwrap().kind(), "system");
    end.finish_turn(&prompt, "hi");
    assert_eq!(within(SOON, turn.outcome()).await.unwrap().text(), Some("hi"));
    let (status, ()) = within(SOON, async {
        tokio::join!(session.requests().control(json!({ "subtype": "mcp_status" })), async {
            let request = end.expect_request("mcp_status").await;
            end.answer(&request, json!({ "mcpServers": [] }));
        })
    })
    .await;
    status.unwrap();
    assert_eq!(asked.elapsed(), Duration::ZERO, "something waited for the handler");
    assert_eq!(session.snapshot().await.unwrap().calls().count(), 1);

    let stopping = Instant::now();
    let bound = session.shutdown_bound();
    stop(session, end).await;
    assert!(stopping.elapsed() <= bound);
}

// Guards: isolated
#[tokio::test(start_paused = true)]
async fn a_thousand_calls_asleep_delay_no_quick_one_and_each_wakes_by_itself() {
    let server = stuck("one").0.tool("sleep", "Sleeps", async |_: NoArgs| {
        tokio::time::sleep(Duration::from_secs(60)).await;
        "slept"
    });
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let asked = Instant::now();
    let asleep: Vec<String> = (0..1000).map(|_| end.call_tool("one", "sleep", json!({}))).collect();
    quick(&mut end, "one").await;
    assert_eq!(asked.elapsed(), Duration::ZERO);
    assert_eq!(session.snapshot().await.unwrap().calls().count(), 1000);
    for request_id in &asleep {
        assert_eq!(text(&rpc_answer(&mut end, request_id).await), "slept");
    }
    assert_eq!(asked.elapsed(), Duration::from_secs(60), "they slept one after another");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_callback_that_hangs_delays_no_other_and_no_call() {
    let (started, mut hanging) = mpsc::unbounded_channel();
    let builder = Session::builder()
        .mcp_server(stuck("one").0)
        .can_use_tool(move |_, _| {
            started.send(()).ok();
            std::future::pending::<PermissionDecision>()
        })
        .hook(Hook::new("Stop", async |_, _| HookOutput::pass()));
    let (session, mut end, _listener) = start_by_hand(builder).await;
    end.request(json!({ "subtype": "can_use_tool", "tool_name": "Bash", "input": {} }));
    within(SOON, hanging.recv()).await.unwrap();
    let asked = Instant::now();
    quick(&mut end, "one").await;
    let input = json!({ "hook_event_name": "Stop" });
    let hook = end.request(json!({ "subtype": "hook_callback", "callback_id": "hook_0", "input": input }));
    assert_eq!(within(SOON, end.answer_to(&hook)).await, json!({}));
    assert_eq!(asked.elapsed(), Duration::ZERO);
    assert_eq!(session.snapshot().await.unwrap().callbacks.unwrap().in_flight, 1);
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_state_takes_its_time_delays_no_other() {
    let release = Arc::new(Notify::new());
    let released = release.clone();
    let slow = ToolServer::new("slow", "1.0.0")
        .tool("quick", "Answers", async |_: NoArgs, _: ToolContext<u32>| "here")
        .state_with(move |_| {
            let released = released.clone();
            async move {
                released.notified().await;
                Ok::<u32, std::io::Error>(1)
            }
        });
    let builder = Session::builder().mcp_server(slow).mcp_server(stuck("one").0);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let asked = Instant::now();
    let waits = end.call_tool("slow", "quick", json!({}));
    // The protocol of the server itself waits for no state.
    let listed = end.mcp("slow", json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }));
    assert_eq!(rpc_answer(&mut end, &listed).await["result"]["tools"][0]["name"], "quick");
    quick(&mut end, "one").await;
    assert_eq!(asked.elapsed(), Duration::ZERO);
    release.notify_one();
    assert_eq!(text(&rpc_answer(&mut end, &waits).await), "here");
    stop(session, end).await;
}

// Guards: control-first
#[tokio::test(start_paused = true)]
async fn a_reader_who_never_reads_delays_no_call() {
    let builder = Session::builder().mcp_server(stuck("one").0);
    let builder = builder.configure(|options| options.limits.unread_bytes = 32 << 20);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let unread = session.messages();
    let turn = session.prompt("hello").await.unwrap();
    within(SOON, end.expect("user")).await;
    let long = "x".repeat(10_000);
    for _ in 0..2000 {
        end.message(json!({ "type": "assistant", "parent_tool_use_id": null, "message": {
            "id": "m", "type": "message", "role": "assistant", "model": "scripted", "stop_reason": null,
            "content": [{ "type": "text", "text": long }],
        } }));
    }
    let asked = Instant::now();
    quick(&mut end, "one").await;
    assert_eq!(asked.elapsed(), Duration::ZERO);
    // The call overtakes the messages; this request does not.
    settled(&mut end).await;
    let conversation = session.snapshot().await.unwrap().conversation.unwrap();
    assert!(conversation.unread_bytes > 2000 * 10_000, "{}", conversation.unread_bytes);
    drop((unread, turn));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn max_concurrency_limits_a_tool_and_delays_no_other() {
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, seen) = (running.clone(), most.clone());
    let narrow = ToolDef::new("narrow", "Two at a time", move |_: NoArgs| {
        let (counted, seen) = (counted.clone(), seen.clone());
        async move {
            seen.fetch_max(counted.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(1)).await;
            counted.fetch_sub(1, Ordering::Relaxed);
            "through"
        }
    });
    let server = stuck("one").0.add_tool(narrow.max_concurrency(2));
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let asked = Instant::now();
    let calls: Vec<String> = (0..10).map(|_| end.call_tool("one", "narrow", json!({}))).collect();
    quick(&mut end, "one").await;
    assert_eq!(asked.elapsed(), Duration::ZERO);
    for request_id in &calls {
        assert_eq!(text(&rpc_answer(&mut end, request_id).await), "through");
    }
    assert_eq!(asked.elapsed(), Duration::from_secs(5));
    assert_eq!(most.load(Ordering::Relaxed), 2);
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_its_place_may_run_out_of_time() {
    let narrow = |_: NoArgs| std::future::pending::<String>();
    let narrow = ToolDef::new("narrow", "One at a time", narrow);
    let server =
        ToolServer::new("one", "1.0.0").add_tool(narrow.max_concurrency(1).timeout(Duration::from_secs(3)));
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let asked = Instant::now();
    let calls = [0, 1].map(|_| end.call_tool("one", "narrow", json!({})));
    for request_id in &calls {
        let answer = rpc_answer(&mut end, request_id).await;
        assert!(error_text(&answer).ends_with("within its limit of 3s"), "{answer}");
    }
    assert_eq!(asked.elapsed(), Duration::from_secs(3));
    stop(session, end).await;
}

// Guards: no-orphans
#[tokio::test(start_paused = true)]
async fn a_stop_takes_no_longer_than_its_bound_whatever_hangs() {
    // The handler, the callback and the CLI all hang.
    let (server, mut hanging) = stuck("one");
    let builder = Session::builder()
        .mcp_server(server)
        .can_use_tool(|_, _| std::future::pending::<PermissionDecision>());
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let _turn = session.prompt("hello").await.unwrap();
    within(SOON, end.expect("user")).await;
    end.call_tool("one", "hang", json!({}));
    end.request(json!({ "subtype": "can_use_tool", "tool_name": "Bash", "input": {} }));
    within(SOON, hanging.recv()).await.unwrap();
    settled(&mut end).await;
    let stopping = Instant::now();
    within(SOON, session.stop()).await.unwrap();
    assert!(stopping.elapsed() <= session.shutdown_bound(), "{:?}", stopping.elapsed());
    drop(end);
}

/// A blocking tool that stays on its thread until the test says so.
struct Thread {
    tool: ToolDef,
    entered: mpsc::UnboundedReceiver<String>,
    leave: std::sync::mpsc::Sender<()>,
}

fn thread() -> Thread {
    let (to_entered, entered) = mpsc::unbounded_channel();
    let (leave, wait) = std::sync::mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let tool = ToolDef::blocking("block", "Blocks", move |_: NoArgs, cx: ToolContext| {
        to_entered.send(cx.request_id().to_owned()).ok();
        // Fails when the test has failed and dropped the sender.
        wait.lock().unwrap().recv().ok();
        if cx.is_cancelled() { "cancelled" } else { "left" }
    });
    Thread { tool, entered, leave }
}

// Threads take real time, so these are not on the paused clock.

// Guards: isolated
#[tokio::test]
async fn a_blocking_handler_delays_no_other_and_further_ones_queue() {
    let Thread { tool, mut entered, leave } = thread();
    let builder = Session::builder().mcp_server(stuck("one").0.add_tool(tool)).mcp_server(stuck("two").0);
    let builder = builder.configure(|options| options.limits.blocking_calls = 1);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let first = end.call_tool("one", "block", json!({}));
    let second = end.call_tool("one", "block", json!({}));
    assert_eq!(within(SOON, entered.recv()).await.unwrap(), first);
    quick(&mut end, "one").await;
    quick(&mut end, "two").await;
    assert!(entered.try_recv().is_err(), "two of them ran at once");
    let snapshot = session.snapshot().await.unwrap();
    assert_eq!((snapshot.servers[0].blocking, snapshot.servers[0].calls.len()), (1, 2));

    leave.send(()).unwrap();
    assert_eq!(text(&rpc_answer(&mut end, &first).await), "left");
    assert_eq!(within(SOON, entered.recv()).await.unwrap(), second);
    leave.send(()).unwrap();
    assert_eq!(text(&rpc_answer(&mut end, &second).await), "left");
    assert_eq!(session.snapshot().await.unwrap().servers[0].abandoned, 0);
    stop(session, end).await;
}

// Guards: a tool outlives its limit
#[tokio::test]
async fn a_blocking_handler_past_its_limit_is_answered_and_keeps_its_thread() {
    let Thread { tool, mut entered, leave } = thread();
    // Long enough for the handler to begin on a busy machine.
    let short = Duration::from_secs(2);
    let server = stuck("one").0.add_tool(tool.timeout(short));
    let builder = Session::builder().mcp_server(server);
    let builder = builder.configure(|options| {
        options.limits.blocking_calls = 1;
        options.timeouts.cancel_grace = short;
    });
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut events = session.events();
    let first = end.call_tool("one", "block", json!({}));
    within(SOON, entered.recv()).await.unwrap();
    let answer = rpc_answer(&mut end, &first).await;
    assert_eq!(error_text(&answer), "tool 'block' did not finish within its limit of 2s");
    let abandoned = event(&mut events, |event| match event {
        Event::HandlerAbandoned { tool, request_id, .. } => Some((tool.clone(), request_id.clone())),
        _ => None,
    });
    assert_eq!(abandoned.await, ("block".to_owned(), first.clone()));
    let snapshot = session.snapshot().await.unwrap();
    assert_eq!(snapshot.servers[0].abandoned, 1);
    assert_eq!((snapshot.servers[0].blocking, snapshot.counters.aborted), (1, 1));
    assert_eq!(snapshot.calls().count(), 0, "no call is in flight");

    // The first handler still has the only thread, so the next call waits for it until its own limit.
    let second = end.call_tool("one", "block", json!({}));
    assert!(error_text(&rpc_answer(&mut end, &second).await).contains("2s"));
    assert!(entered.try_recv().is_err(), "there was no place for it");
    leave.send(()).unwrap();
    drop(leave);
    let free = async {
        while session.snapshot().await.unwrap().servers[0].blocking > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    within(SOON, free).await;
    assert_eq!(answers(&settled(&mut end).await, &first).len(), 0, "its late answer was written");
    stop(session, end).await;
}

#[tokio::test]
async fn a_handler_that_blocks_holds_no_stop_up() {
    let Thread { tool, mut entered, leave } = thread();
    let builder = Session::builder().mcp_server(stuck("one").0.add_tool(tool));
    let builder = builder.configure(|options| {
        options.timeouts.cancel_grace = Duration::from_millis(20);
        options.timeouts.drain = Duration::from_millis(20);
    });
    let (session, mut end, _listener) = start_by_hand(builder).await;
    end.call_tool("one", "block", json!({}));
    within(SOON, entered.recv()).await.unwrap();
    stop(session, end).await;
    leave.send(()).unwrap();
}

#[tokio::test]
async fn a_blocking_handler_of_a_removed_tool_is_told_as_abandoned() {
    let Thread { tool, mut entered, leave } = thread();
    let short = Duration::from_millis(20);
    let builder = Session::builder().mcp_server(stuck("one").0.add_tool(tool));
    let builder = builder.configure(|options| options.timeouts.cancel_grace = short);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut events = session.events();
    let call = end.call_tool("one", "block", json!({}));
    within(SOON, entered.recv()).await.unwrap();
    assert!(session.server("one").unwrap().remove_tool("block").unwrap());
    end.cancel_call("one", end.last_rpc_id());
    let abandoned = event(&mut events, |event| match event {
        Event::HandlerAbandoned { tool, request_id, .. } => Some((tool.clone(), request_id.clone())),
        _ => None,
    });
    assert_eq!(abandoned.await, ("block".to_owned(), call));
    leave.send(()).unwrap();
    stop(session, end).await;
}
