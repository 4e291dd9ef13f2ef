//! Lines that wait for a CLI that does not read its stdin, or reads it slowly.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::bare::Bare;
use crate::common::{SOON, counters, event, within};
use crate::snapshot::reported_cli;
use greenroom::report::ExitCause;
use greenroom::{ErrorKind, Event, NoArgs, Session, SessionBuilder, ToolDef, ToolServer};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Size of a result. The pipe has room for one, but not for two.
const LARGE: usize = 60_000;

/// A session whose `outbound_bytes` are 100 kB, and the number of large results made so far.
fn builder() -> (SessionBuilder, Arc<AtomicUsize>) {
    let begun = Arc::new(AtomicUsize::new(0));
    let (count, counts) = (begun.clone(), begun.clone());
    let server = ToolServer::new("clock", "1.0.0")
        .tool("now", "The time", async |_: NoArgs| "noon")
        .tool("large", "Much", move |_: NoArgs| {
            count.fetch_add(1, Ordering::SeqCst);
            async { "x".repeat(LARGE) }
        })
        .add_tool(
            ToolDef::new("placed", "Much, one at a time", move |_: NoArgs| {
                counts.fetch_add(1, Ordering::SeqCst);
                async { "x".repeat(LARGE) }
            })
            .max_concurrency(1),
        );
    let builder = Session::builder().mcp_server(server).configure(|options| {
        options.limits.outbound_bytes = 100_000;
    });
    (builder, begun)
}

async fn calls(cli: &mut Bare, tool: &str, ids: std::ops::Range<usize>) {
    for id in ids {
        let call = json!({ "type": "control_request", "request_id": format!("{tool}{id}"), "request": {
            "subtype": "mcp_message", "server_name": "clock", "message": {
                "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": tool, "arguments": {} },
            },
        } });
        cli.write(format!("{call}\n").as_bytes()).await;
    }
    // The clock is paused: it goes on when nobody has anything to do.
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// Reads `count` answers. Returns their texts by request id.
async fn answers(cli: &mut Bare, count: usize) -> BTreeMap<String, String> {
    let mut read = BTreeMap::new();
    while read.len() < count {
        let frame = cli.recv().await;
        let response = &frame["response"];
        let rpc = &response["response"]["mcp_response"];
        let said = [&rpc["result"]["content"][0]["text"], &rpc["error"]["message"], &response["error"]];
        let said = said.into_iter().find_map(Value::as_str).unwrap_or_default();
        let said = if said.len() == LARGE { "large" } else { said };
        let twice = read.insert(response["request_id"].as_str().unwrap().to_owned(), said.to_owned());
        assert!(twice.is_none(), "{frame}");
    }
    read
}

async fn past_the_bound(tool: &str) {
    let (builder, begun) = builder();
    let mut cli = Bare::start(builder).await;
    let mut events = cli.session.events();
    calls(&mut cli, tool, 0..10).await;
    let held = reported_cli(&cli.session).await.outbound_bytes;
    assert!((100_000..100_000 + 2 * LARGE).contains(&held), "{held}");
    assert_eq!(begun.load(Ordering::SeqCst), 3, "two are in the queue, and the pipe took one");

    // New calls are refused.
    calls(&mut cli, "now", 20..25).await;
    assert_eq!(counters(&cli.session).await.at_capacity, 5);
    let full = |event: &Event| match event {
        Event::OutboundFull { epoch, limit } => Some((*epoch, *limit)),
        _ => None,
    };
    assert_eq!(event(&mut events, full).await, (1, 100_000));
    let error = within(SOON, cli.session.set_model(None)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AtCapacity);
    assert!(error.to_string().contains("100000 bytes"), "{error}");

    // Waiting calls can be cancelled and withdrawn; their handlers then never run.
    let cancel = json!({ "type": "control_request", "request_id": "c", "request": {
        "subtype": "mcp_message", "server_name": "clock", "message": {
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 8 },
        },
    } });
    let withdrawal = json!({ "type": "control_cancel_request", "request_id": format!("{tool}9") });
    cli.write(format!("{cancel}\n{withdrawal}\n").as_bytes()).await;
    tokio::time::sleep(Duration::from_millis(1)).await;

    // Accepted calls run as soon as the CLI reads.
    let read = answers(&mut cli, 9 + 5 + 1).await;
    for id in 0..8 {
        assert_eq!(read[&format!("{tool}{id}")], "large");
    }
    assert!(!read.contains_key(&format!("{tool}9")) && read.contains_key("c"));
    assert!(read[&format!("{tool}8")].contains("cancelled"), "{}", read[&format!("{tool}8")]);
    for id in 20..25 {
        assert_eq!(
            read[&format!("now{id}")],
            "at capacity: 100000 bytes or more wait for the CLI to read them"
        );
    }
    assert_eq!(begun.load(Ordering::SeqCst), 8);
    cli.calls("then").await;
    let held = reported_cli(&cli.session).await.outbound_bytes;
    assert_eq!(held, 0);

    // The event comes again, because there was room in between.
    calls(&mut cli, tool, 30..34).await;
    calls(&mut cli, "now", 40..42).await;
    assert_eq!(event(&mut events, full).await, (1, 100_000));
    answers(&mut cli, 6).await;
    assert_eq!(counters(&cli.session).await.at_capacity, 7);
}

// Guards: control-first
// Guards: the CLI reads more slowly than it is answered
#[tokio::test(start_paused = true)]
async fn past_the_bound_new_calls_are_refused_and_accepted_ones_wait_for_room() {
    past_the_bound("large").await;
}

/// Otherwise the CLI would keep servers that the session does not have.
// Guards: all-or-nothing
#[tokio::test(start_paused = true)]
async fn a_change_of_servers_is_undone_past_the_bound() {
    let (builder, _) = builder();
    let mut cli = Bare::start(builder).await;
    let session = cli.session.clone();
    let late = ToolServer::new("late", "1.0.0").tool("now", "The time", async |_: NoArgs| "one");
    let (added, ()) = tokio::join!(session.add_mcp_server(late), async {
        let asked = cli.recv().await;
        assert!(asked["request"]["servers"].get("late").is_some(), "{asked}");
        calls(&mut cli, "large", 0..5).await;
        assert!(reported_cli(&session).await.outbound_bytes >= 100_000);
        let mut answer = json!({ "type": "control_response", "response": {
            "subtype": "success", "request_id": asked["request_id"], "response": {
                "added": [], "removed": [], "errors": { "late": "no" },
            },
        } });
        cli.write(format!("{answer}\n").as_bytes()).await;
        let undone = loop {
            let frame = cli.recv().await;
            if frame["type"] == "control_request" {
                break frame;
            }
        };
        assert_eq!(undone["request"]["subtype"], "mcp_set_servers");
        assert!(undone["request"]["servers"].get("late").is_none(), "{undone}");
        answer["response"]["request_id"] = undone["request_id"].clone();
        answer["response"]["response"]["errors"] = json!({});
        cli.write(format!("{answer}\n").as_bytes()).await;
    });
    assert_eq!(added.unwrap_err().kind(), ErrorKind::Refused);
}

// Guards: the CLI reads more slowly than it is answered
#[tokio::test(start_paused = true)]
async fn calls_that_wait_for_a_place_of_their_tool_wait_for_room_too() {
    past_the_bound("placed").await;
}

// Guards: the CLI reads more slowly than it is answered
#[tokio::test(start_paused = true)]
async fn a_cli_that_reads_nothing_is_ended_and_waiting_calls_never_run() {
    let (builder, begun) = builder();
    let mut cli = Bare::start(builder).await;
    let mut events = cli.session.events();
    let since = Instant::now();
    calls(&mut cli, "large", 0..10).await;
    let exited = |event: &Event| match event {
        Event::CliExited { cause, .. } => Some(cause.clone()),
        _ => None,
    };
    let cause = event(&mut events, exited).await;
    assert!(matches!(cause, ExitCause::StdinBroken { .. }), "{cause:?}");
    assert!(since.elapsed() < Duration::from_secs(61), "{:?}", since.elapsed());
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(begun.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn prompts_that_wait_are_bounded_in_bytes_and_one_alone_is_not() {
    let (builder, _) = builder();
    let mut cli = Bare::start(builder).await;
    let running = within(SOON, cli.session.prompt("x".repeat(150_000))).await.unwrap();
    let alone = within(SOON, cli.session.prompt("x".repeat(150_000))).await.unwrap();
    let refused = within(SOON, cli.session.prompt("y")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AtCapacity);
    assert!(refused.to_string().contains("limits.outbound_bytes"), "{refused}");
    let prompt = cli.recv().await;
    let answer = json!({
        "type": "result", "subtype": "success", "is_error": false, "result": "ok", "session_id": "s",
        "user_message_uuids": [prompt["uuid"]],
    });
    assert_eq!(prompt["message"]["content"][0]["text"].as_str().unwrap().len(), 150_000);
    cli.write(format!("{answer}\n").as_bytes()).await;
    cli.recv().await;
    let waits = within(SOON, cli.session.prompt("x".repeat(60_000))).await.unwrap();
    within(SOON, cli.session.prompt("x".repeat(60_000))).await.unwrap_err();
    drop(within(SOON, cli.session.prompt("x".repeat(30_000))).await.unwrap());
    drop((running, alone, waits));
}
