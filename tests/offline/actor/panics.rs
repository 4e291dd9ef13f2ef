//! Panicking tools, servers, callbacks and the router: every call is answered, once, and the session goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::common::*;
use greenroom::options::Restart;
use greenroom::report::{Events, ServerStatus};
use greenroom::{
    ErrorKind, Event, NoArgs, PermissionDecision, Session, SessionBuilder, ToolContext, ToolDef, ToolServer,
};
use greenroom_testkit::{CliEnd, Fault};
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

/// A server with a state that counts, a tool that panics, and one that hangs.
fn calc(name: &str) -> (ToolServer, Hanging) {
    let (started, hanging) = mpsc::unbounded_channel();
    let dropped = mpsc::unbounded_channel();
    let to_dropped = dropped.0;
    let server = ToolServer::new(name, "1.0.0")
        .tool("count", "Counts its calls", async |_: NoArgs, cx: ToolContext<AtomicU32>| {
            cx.fetch_add(1, Ordering::Relaxed) + 1
        })
        .tool("generation", "Which start this is", async |_: NoArgs, cx: ToolContext<AtomicU32>| {
            cx.generation()
        })
        .tool("boom", "Panics", async |_: NoArgs, _: ToolContext<AtomicU32>| -> String { panic!("kaboom") })
        .tool("hang", "Hangs", move |_: NoArgs, cx: ToolContext<AtomicU32>| {
            let (started, guard) = (started.clone(), OnDrop(to_dropped.clone()));
            async move {
                let _guard = guard;
                started.send(cx.request_id().to_owned()).ok();
                std::future::pending::<String>().await
            }
        })
        .state(|| AtomicU32::new(0));
    (server, Hanging { started: hanging, dropped: dropped.1 })
}

struct Hanging {
    started: mpsc::UnboundedReceiver<String>,
    dropped: mpsc::UnboundedReceiver<()>,
}

struct OnDrop(mpsc::UnboundedSender<()>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.send(()).ok();
    }
}

fn panic_limit(builder: SessionBuilder, intensity: u32) -> SessionBuilder {
    builder.configure(|options| options.restarts.panics.intensity = intensity)
}

async fn restarted(events: &mut Events) -> (String, String, u32) {
    event(events, |event| match event {
        Event::ServerRestarted { server, cause, generation } => {
            Some((server.clone(), cause.clone(), *generation))
        }
        _ => None,
    })
    .await
}

async fn failed(events: &mut Events) -> (String, String) {
    event(events, |event| match event {
        Event::ServerFailed { server, cause } => Some((server.clone(), cause.clone())),
        _ => None,
    })
    .await
}

/// The message of a JSON-RPC error with code -32603.
fn internal_error(answer: &Value) -> &str {
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    answer["error"]["message"].as_str().unwrap()
}

async fn hang(end: &mut CliEnd, hanging: &mut Hanging, server: &str) -> String {
    let request_id = end.call_tool(server, "hang", json!({}));
    assert_eq!(within(SOON, hanging.started.recv()).await.unwrap(), request_id);
    request_id
}

// Guards: a tool panics
#[tokio::test(start_paused = true)]
async fn a_panicking_tool_is_answered_with_its_text_and_its_server_goes_on() {
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(calc("calc").0)).await;
    let mut events = session.events();
    assert_eq!(text(&call(&mut end, "calc", "count", json!({})).await), "1");

    let request_id = end.call_tool("calc", "boom", json!({}));
    let answer = rpc_answer(&mut end, &request_id).await;
    assert_eq!(error_text(&answer), "tool 'boom' panicked: kaboom");
    let told = event(&mut events, |event| match event {
        Event::CallPanicked { server, tool, request_id, message } => {
            Some((server.clone(), tool.clone(), request_id.clone(), message.clone()))
        }
        _ => None,
    });
    assert_eq!(told.await, ("calc".into(), "boom".into(), request_id, "kaboom".into()));

    assert_eq!(text(&call(&mut end, "calc", "count", json!({})).await), "2", "its state is kept");
    let counters = counters(&session).await;
    assert_eq!((counters.panics, counters.server_restarts, counters.late_answers), (1, 0, 0));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_before_it_makes_a_future_is_answered_as_well() {
    let schema: Map<String, Value> = serde_json::from_value(json!({ "type": "object" })).unwrap();
    let server = ToolServer::new("calc", "1.0.0")
        .tool("early", "Panics", |_: NoArgs| -> std::future::Ready<String> { panic!("no future") })
        .tool("late", "Panics", async |_: NoArgs| -> String {
            tokio::task::yield_now().await;
            panic!("after an await")
        })
        .tool("formatted", "Panics", async |_: NoArgs| -> String { panic!("at {}", 7) })
        .tool("odd", "Panics", async |_: NoArgs| -> String { std::panic::panic_any(7) })
        .add_tool(ToolDef::raw("raw", "Panics", schema, |_, _| -> std::future::Ready<String> {
            panic!("raw and early")
        }));
    let (session, mut end, _listener) =
        start_by_hand(panic_limit(Session::builder().mcp_server(server), 100)).await;
    for (tool, said) in [
        ("early", "no future"),
        ("late", "after an await"),
        ("formatted", "at 7"),
        ("odd", "a panic without a text"),
        ("raw", "raw and early"),
    ] {
        let answer = call(&mut end, "calc", tool, json!({})).await;
        assert_eq!(error_text(&answer), format!("tool '{tool}' panicked: {said}"));
    }
    assert_eq!(counters(&session).await.panics, 5);
    stop(session, end).await;
}

#[tokio::test]
async fn a_panicking_blocking_tool_is_answered_and_gives_its_place_back() {
    let server = ToolServer::new("calc", "1.0.0").add_tool(ToolDef::blocking(
        "boom",
        "Panics",
        |_: NoArgs, _| -> String { panic!("on its thread") },
    ));
    let builder = panic_limit(Session::builder().mcp_server(server), 100)
        .configure(|options| options.limits.blocking_calls = 1);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    for _ in 0..3 {
        let answer = call(&mut end, "calc", "boom", json!({})).await;
        assert_eq!(error_text(&answer), "tool 'boom' panicked: on its thread");
    }
    let snapshot = session.snapshot().await.unwrap();
    assert_eq!((snapshot.servers[0].abandoned, snapshot.counters.panics), (0, 3));
    stop(session, end).await;
}

// Guards: more tools of a server panic than `restarts.panics`
#[tokio::test(start_paused = true)]
async fn more_panics_than_the_intensity_give_new_calls_a_fresh_state() {
    let (server, mut hanging) = calc("calc");
    let (session, mut end, _listener) =
        start_by_hand(panic_limit(Session::builder().mcp_server(server), 2)).await;
    let mut events = session.events();
    let in_flight = hang(&mut end, &mut hanging, "calc").await;
    assert_eq!(text(&call(&mut end, "calc", "count", json!({})).await), "1");
    for _ in 0..2 {
        error_text(&call(&mut end, "calc", "boom", json!({})).await);
    }
    assert_eq!(text(&call(&mut end, "calc", "count", json!({})).await), "2", "two panics are put up with");

    let last = call(&mut end, "calc", "boom", json!({})).await;
    assert_eq!(error_text(&last), "tool 'boom' panicked: kaboom");
    let (server, cause, generation) = restarted(&mut events).await;
    assert_eq!((server.as_str(), generation), ("calc", 2));
    assert_eq!(cause, "more than 2 of its calls panicked within 5s");

    assert_eq!(text(&call(&mut end, "calc", "count", json!({})).await), "1", "the state is a fresh one");
    assert_eq!(text(&call(&mut end, "calc", "generation", json!({})).await), "2");
    let snapshot = session.snapshot().await.unwrap();
    assert_eq!((snapshot.servers[0].generation, &snapshot.servers[0].status), (2, &ServerStatus::Up));
    assert_eq!((snapshot.counters.panics, snapshot.counters.server_restarts), (3, 1));
    assert_eq!(snapshot.servers[0].calls[0].request_id, in_flight, "it goes on");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn panics_that_are_further_apart_than_the_period_restart_nothing() {
    let (session, mut end, _listener) =
        start_by_hand(panic_limit(Session::builder().mcp_server(calc("calc").0), 1)).await;
    for _ in 0..4 {
        error_text(&call(&mut end, "calc", "boom", json!({})).await);
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    assert_eq!(text(&call(&mut end, "calc", "generation", json!({})).await), "1");
    stop(session, end).await;
}

// Guards: isolated
#[tokio::test(start_paused = true)]
async fn a_panic_in_one_server_harms_no_call_of_another() {
    let release = Arc::new(Notify::new());
    let (started, mut waiting) = mpsc::unbounded_channel();
    let released = release.clone();
    let other = ToolServer::new("other", "1.0.0").tool("wait", "Waits", move |_: NoArgs| {
        let (released, started) = (released.clone(), started.clone());
        async move {
            started.send(()).ok();
            released.notified().await;
            "done"
        }
    });
    let builder = Session::builder().mcp_server(calc("calc").0).mcp_server(other);
    let (session, mut end, _listener) = start_by_hand(panic_limit(builder, 0)).await;
    let mut events = session.events();
    let waits = end.call_tool("other", "wait", json!({}));
    within(SOON, waiting.recv()).await.unwrap();
    error_text(&call(&mut end, "calc", "boom", json!({})).await);
    assert_eq!(restarted(&mut events).await.0, "calc");
    release.notify_one();
    assert_eq!(text(&rpc_answer(&mut end, &waits).await), "done");
    let snapshot = session.snapshot().await.unwrap();
    assert_eq!(snapshot.servers.iter().map(|server| server.generation).collect::<Vec<_>>(), [2, 1]);
    stop(session, end).await;
}

#[derive(Clone, Copy, Debug)]
enum Trouble {
    Fails,
    Panics,
    Hangs,
}

/// A server whose factory succeeds only while `well` is true.
fn db(trouble: Trouble, well: &Arc<AtomicBool>, made: &Arc<AtomicU32>) -> ToolServer {
    let (well, made) = (well.clone(), made.clone());
    ToolServer::new("db", "1.0.0")
        .tool("query", "Asks", async |_: NoArgs, _: ToolContext<u32>| "row")
        .tool("hang", "Hangs", async |_: NoArgs, _: ToolContext<u32>| std::future::pending::<String>().await)
        .state_with(move |_| {
            made.fetch_add(1, Ordering::Relaxed);
            let well = well.load(Ordering::Relaxed);
            async move {
                match (well, trouble) {
                    (true, _) => Ok::<u32, std::io::Error>(7),
                    (false, Trouble::Fails) => Err(std::io::Error::other("no database here")),
                    (false, Trouble::Panics) => panic!("the factory is broken"),
                    (false, Trouble::Hangs) => std::future::pending().await,
                }
            }
        })
}

/// The server is killed and cannot be started again.
async fn is_given_up(trouble: Trouble, said: &str) {
    let (well, made) = (Arc::new(AtomicBool::new(true)), Arc::default());
    let builder = Session::builder().mcp_server(db(trouble, &well, &made)).mcp_server(calc("calc").0);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut events = session.events();
    assert_eq!(text(&call(&mut end, "db", "query", json!({})).await), "row");

    well.store(false, Ordering::Relaxed);
    session.inject(Fault::KillServer("db".into()));
    let (server, cause) = failed(&mut events).await;
    assert_eq!(server, "db");
    assert!(cause.contains(said), "{cause}");
    // The first start, and the five restarts that the default allows.
    assert_eq!(made.load(Ordering::Relaxed), 6);

    let asked = Instant::now();
    for _ in 0..2 {
        let answer = call(&mut end, "db", "query", json!({})).await;
        let text = internal_error(&answer);
        assert!(text.contains("MCP server 'db' has failed") && text.contains(said), "{text}");
    }
    assert_eq!(asked.elapsed(), Duration::ZERO, "at once");
    assert_eq!(text(&call(&mut end, "calc", "count", json!({})).await), "1", "the session lives");
    let snapshot = session.snapshot().await.unwrap();
    assert!(matches!(&snapshot.servers[0].status, ServerStatus::Failed(cause) if cause.contains(said)));
    assert!(session.failure().is_none());
    stop(session, end).await;
}

// Guards: a server is given up
#[tokio::test(start_paused = true)]
async fn a_server_whose_factory_fails_is_given_up_and_the_session_lives() {
    is_given_up(Trouble::Fails, "no database here").await;
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_factory_panics_is_given_up_and_the_session_lives() {
    is_given_up(Trouble::Panics, "the factory is broken").await;
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_factory_hangs_is_given_up_and_the_session_lives() {
    is_given_up(Trouble::Hangs, "its state was not made within 10s").await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_slower_than_the_period_counts_is_given_up_too() {
    let server = db(Trouble::Hangs, &Arc::default(), &Arc::default());
    let builder = Session::builder().mcp_server(server).configure(|options| {
        options.timeouts.server_restart = Duration::from_secs(100);
        options.restarts.server.intensity = 3;
        options.restarts.server.period = Duration::from_secs(60);
    });
    let (session, end, _listener) = start_by_hand(builder).await;
    let mut events = session.events();
    let given_up = async {
        while let Some(event) = events.next().await {
            if matches!(event, Event::ServerFailed { .. }) {
                return;
            }
        }
    };
    let began = Instant::now();
    within(Duration::from_secs(1000), given_up).await;
    let took = began.elapsed();
    let (least, most) = (Duration::from_secs(400), Duration::from_secs(401));
    assert!(took >= least && took < most, "once and three times again: {took:?}");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_comes_up_keeps_no_session_from_starting() {
    let made = Arc::default();
    let server = db(Trouble::Fails, &Arc::default(), &made);
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let answer = call(&mut end, "db", "query", json!({})).await;
    assert!(internal_error(&answer).contains("no database here"), "{answer}");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_a_state_is_answered_if_the_factory_fails_or_not() {
    let (well, made) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let builder = Session::builder().mcp_server(db(Trouble::Hangs, &well, &made));
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut events = session.events();
    let asked = Instant::now();
    let waits = end.call_tool("db", "query", json!({}));
    well.store(true, Ordering::Relaxed);
    let answer = rpc_answer(&mut end, &waits).await;
    let said = internal_error(&answer);
    assert!(said.contains("MCP server 'db' was not ready within 10s"), "{said}");
    assert_eq!(asked.elapsed(), Duration::from_secs(10));
    assert_eq!(restarted(&mut events).await.2, 2);
    assert_eq!(text(&call(&mut end, "db", "query", json!({})).await), "row");
    stop(session, end).await;
}

// Guards: a server is given up
#[tokio::test(start_paused = true)]
async fn a_significant_server_that_is_given_up_fails_the_session() {
    let (well, made) = (Arc::new(AtomicBool::new(true)), Arc::default());
    let server = db(Trouble::Fails, &well, &made).significant(true);
    let (session, end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let mut events = session.events();
    well.store(false, Ordering::Relaxed);
    session.inject(Fault::PanicServer("db".into()));
    let running = Instant::now();
    let ((), ()) = within(SOON, async { tokio::join!(session.wait(), end.run_out()) }).await;
    assert!(running.elapsed() <= session.shutdown_bound());
    let error = session.failure().unwrap();
    assert_eq!(error.kind(), ErrorKind::SessionFailed);
    assert!(error.to_string().contains("'db' was given up"), "{error}");
    assert!(error.to_string().contains("no database here"), "{error}");
    let cause = event(&mut events, |event| match event {
        Event::Failed { cause } => Some(cause.clone()),
        _ => None,
    });
    assert!(cause.await.contains("no database here"));
    assert_eq!(session.prompt("hello").await.unwrap_err().kind(), ErrorKind::SessionFailed);
}

// Guards: a server's actor ends
#[tokio::test(start_paused = true)]
async fn calls_wait_for_a_server_that_restarts_up_to_their_bound() {
    for (backoff, comes_back) in [(3, true), (30, false)] {
        let backoff = Duration::from_secs(backoff);
        // The wait is random between the half and the whole of this.
        let slow = Restart { backoff_min: backoff, backoff_max: backoff, ..Restart::default() };
        let builder = Session::builder().mcp_server(calc("calc").0);
        let builder = builder.configure(|options| options.restarts.server = slow);
        let (session, mut end, _listener) = start_by_hand(builder).await;
        session.inject(Fault::KillServer("calc".into()));
        let asked = Instant::now();
        let answer = call(&mut end, "calc", "generation", json!({})).await;
        if comes_back {
            assert_eq!(text(&answer), "2");
            assert!(asked.elapsed() >= backoff / 2, "{:?}", asked.elapsed());
        } else {
            let said = internal_error(&answer);
            assert!(said.contains("MCP server 'calc' was restarting and did not come back"), "{said}");
            assert_eq!(asked.elapsed(), Duration::from_secs(10));
        }
        stop(session, end).await;
    }
}

/// The server's actor ends in the middle of many calls, some of them not yet looked at.
async fn each_call_is_answered_once(fault: Fault) {
    let (server, mut hanging) = calc("calc");
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let mut events = session.events();
    let mut requests = Vec::new();
    for _ in 0..20 {
        requests.push(hang(&mut end, &mut hanging, "calc").await);
    }
    session.inject(fault);
    let mut quick = Vec::new();
    for _ in 0..20 {
        quick.push(end.call_tool("calc", "generation", json!({})));
    }
    assert_eq!(restarted(&mut events).await.2, 2);
    for _ in 0..20 {
        within(SOON, hanging.dropped.recv()).await.unwrap();
    }
    let after = end.call_tool("calc", "generation", json!({}));
    let last = within(SOON, end.expect_where("the last", |frame| frame["response"]["request_id"] == *after));
    let last = last.await;
    assert_eq!(text(&last["response"]["response"]["mcp_response"]), "2");
    let frames = settled(&mut end).await;
    for request_id in &requests {
        let [answer] = answers(&frames, request_id)[..] else { panic!("not one answer to {request_id}") };
        let said = internal_error(&answer["response"]["response"]["mcp_response"]);
        assert!(said.contains("MCP server 'calc' has ended"), "{said}");
    }
    for request_id in &quick {
        // Chance decides whether a call met the old actor or the new one; each is answered.
        assert_eq!(answers(&frames, request_id).len(), 1, "{request_id}");
    }
    assert_eq!(counters(&session).await.server_restarts, 1);
    stop(session, end).await;
}

// Guards: answered-once
#[tokio::test(start_paused = true)]
async fn the_calls_of_a_server_that_is_killed_are_answered_once() {
    each_call_is_answered_once(Fault::KillServer("calc".into())).await;
}

#[tokio::test(start_paused = true)]
async fn the_calls_of_a_server_that_panics_itself_are_answered_once() {
    each_call_is_answered_once(Fault::PanicServer("calc".into())).await;
}

async fn control_restarted(events: &mut Events) -> (&'static str, String) {
    event(events, |event| match event {
        Event::ControlRestarted { child, cause } => Some((*child, cause.clone())),
        _ => None,
    })
    .await
}

// Guards: answered-once
// Guards: the router panics
#[tokio::test(start_paused = true)]
async fn a_router_that_panics_fails_its_own_requests_and_harms_no_call() {
    let release = Arc::new(Notify::new());
    let (started, mut running) = mpsc::unbounded_channel();
    let released = release.clone();
    let server = ToolServer::new("calc", "1.0.0")
        .tool("slow", "Waits", move |_: NoArgs| {
            let (released, started) = (released.clone(), started.clone());
            async move {
                started.send(()).ok();
                released.notified().await;
                "in time"
            }
        })
        .tool("quick", "Answers", async |_: NoArgs| "here");
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let mut events = session.events();
    let owed = end.call_tool("calc", "slow", json!({}));
    within(SOON, running.recv()).await.unwrap();
    let asking = session.requests().control(json!({ "subtype": "mcp_status" }));
    let asked = async {
        end.expect_request("mcp_status").await;
        session.inject(Fault::PanicRouter);
    };
    let (refused, ()) = within(SOON, async { tokio::join!(asking, asked) }).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotReady, "who asked the CLI is told");
    assert_eq!(control_restarted(&mut events).await.0, "router");

    assert_eq!(text(&call(&mut end, "calc", "quick", json!({})).await), "here");
    release.notify_one();
    assert_eq!(text(&rpc_answer(&mut end, &owed).await), "in time", "the call went on without a router");
    assert_eq!(answers(&settled(&mut end).await, &owed).len(), 0, "a second answer was written");
    let counters = counters(&session).await;
    assert_eq!((counters.late_answers, counters.cancelled, counters.control_restarts), (0, 0, 1));
    stop(session, end).await;
}

// Guards: answered-once
#[tokio::test(start_paused = true)]
async fn calls_are_answered_once_while_the_router_panics() {
    let (server, _hanging) = calc("calc");
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let mut events = session.events();
    let mut requests = Vec::new();
    for round in 0..5 {
        for _ in 0..50 {
            requests.push(end.call_tool("calc", "generation", json!({})));
            if round % 2 == 0 {
                tokio::task::yield_now().await;
            }
        }
        session.inject(Fault::PanicRouter);
        for _ in 0..50 {
            requests.push(end.call_tool("calc", "generation", json!({})));
        }
        assert_eq!(control_restarted(&mut events).await.0, "router");
    }
    assert_eq!(text(&call(&mut end, "calc", "generation", json!({})).await), "1");
    let frames = settled(&mut end).await;
    for request_id in &requests {
        assert_eq!(answers(&frames, request_id).len(), 1, "{request_id}");
    }
    assert!(session.snapshot().await.unwrap().router.unwrap().owed.is_empty());
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_router_that_panics_too_often_fails_the_session() {
    let builder = Session::builder().mcp_server(calc("calc").0);
    let builder = builder.configure(|options| options.restarts.control.intensity = 1);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut events = session.events();
    session.inject(Fault::PanicRouter);
    control_restarted(&mut events).await;
    assert_eq!(text(&call(&mut end, "calc", "count", json!({})).await), "1");
    session.inject(Fault::PanicRouter);
    let ((), ()) = within(SOON, async { tokio::join!(session.wait(), end.run_out()) }).await;
    let error = session.failure().unwrap();
    assert_eq!(error.kind(), ErrorKind::SessionFailed);
    assert!(error.to_string().contains("router ended too often"), "{error}");
}

// Guards: the callbacks' actor ends while a hook or a permission is open
#[tokio::test(start_paused = true)]
async fn callbacks_that_panic_as_a_whole_answer_what_they_owe_and_are_restarted() {
    let (started, mut running) = mpsc::unbounded_channel();
    let builder = Session::builder().can_use_tool(move |request, cx| {
        let started = started.clone();
        async move {
            if request.tool_name == "Slow" {
                started.send(()).ok();
                cx.cancelled().await;
                started.send(()).ok();
            }
            PermissionDecision::allow()
        }
    });
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut events = session.events();
    let owed = end.request(json!({ "subtype": "can_use_tool", "tool_name": "Slow", "input": {} }));
    within(SOON, running.recv()).await.unwrap();
    session.inject(Fault::PanicCallbacks);
    let answer = within(SOON, end.answer_to(&owed)).await;
    assert_eq!(answer["subtype"], "error");
    assert!(answer["error"].as_str().unwrap().contains("callbacks have ended"), "{answer}");
    assert_eq!(control_restarted(&mut events).await.0, "callbacks");
    let again = end.request(json!({ "subtype": "can_use_tool", "tool_name": "Quick", "input": {} }));
    assert_eq!(within(SOON, end.answer_to(&again)).await["behavior"], "allow");
    assert_eq!(answers(&settled(&mut end).await, &owed).len(), 0);
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_callback_that_panics_is_told_as_an_event_and_harms_no_other() {
    let builder = Session::builder().can_use_tool(async |request, _| match request.tool_name.as_str() {
        "Bad" => panic!("no decision"),
        _ => PermissionDecision::allow(),
    });
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut events = session.events();
    let bad = end.request(json!({ "subtype": "can_use_tool", "tool_name": "Bad", "input": {} }));
    let answer = within(SOON, end.answer_to(&bad)).await;
    assert_eq!(
        answer,
        json!({ "behavior": "deny", "message": "the permission handler panicked: no decision" })
    );
    let told = event(&mut events, |event| match event {
        Event::CallbackPanicked { callback, hook, request_id, message } => {
            Some((*callback, hook.clone(), request_id.clone(), message.clone()))
        }
        _ => None,
    });
    assert_eq!(told.await, ("permission", None, bad, "no decision".into()));
    let good = end.request(json!({ "subtype": "can_use_tool", "tool_name": "Good", "input": {} }));
    assert_eq!(within(SOON, end.answer_to(&good)).await["behavior"], "allow");
    assert_eq!(counters(&session).await.control_restarts, 0);
    stop(session, end).await;
}
