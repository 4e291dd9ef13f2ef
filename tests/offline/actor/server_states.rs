//! The state of a tool server: replaced after panics without harm to calls in flight, waited for while it cannot be
//! made, and tried again after the server was given up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use crate::common::*;
use greenroom::options::Restart;
use greenroom::report::{Events, ServerStatus};
use greenroom::{Error, ErrorKind, Event, NoArgs, Session, SessionBuilder, ToolContext, ToolDef, ToolServer};
use greenroom_testkit::{CliEnd, Fault, ScriptedCli};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

const RETRY: Duration = Duration::from_secs(60);

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Number {
    number: usize,
}

/// A state that says when it is dropped, and on which thread.
struct Tells(mpsc::UnboundedSender<ThreadId>);

impl Drop for Tells {
    fn drop(&mut self) {
        self.0.send(std::thread::current().id()).ok();
    }
}

/// A server with a tool that waits until it is released, one that panics, and one that hangs.
struct Calc {
    release: Arc<Notify>,
    started: mpsc::UnboundedReceiver<()>,
    dropped: mpsc::UnboundedReceiver<ThreadId>,
}

fn calc() -> (ToolServer, Calc) {
    let release = Arc::new(Notify::new());
    let (started, starts) = mpsc::unbounded_channel();
    let (drops, dropped) = mpsc::unbounded_channel();
    let begins = {
        let (release, started) = (release.clone(), started.clone());
        move || {
            started.send(()).ok();
            release.clone().notified_owned()
        }
    };
    let (first, second, third) = (begins.clone(), begins.clone(), begins);
    let server = ToolServer::new("calc", "1.0.0")
        .tool("generation", "Which start this is", async |_: NoArgs, cx: ToolContext<Tells>| cx.generation())
        .tool("boom", "Panics", async |_: NoArgs, _: ToolContext<Tells>| -> String { panic!("kaboom") })
        .tool("wait", "Waits", move |args: Number, cx: ToolContext<Tells>| {
            let released = first();
            async move {
                released.await;
                format!("{} of {}", args.number, cx.generation())
            }
        })
        .tool("wait_and_boom", "Panics late", move |_: NoArgs, _: ToolContext<Tells>| {
            let released = second();
            async move {
                released.await;
                if true {
                    panic!("late")
                }
            }
        })
        .add_tool(
            ToolDef::new("one", "One at a time", move |_: NoArgs, cx: ToolContext<Tells>| {
                let released = third();
                async move {
                    released.await;
                    cx.generation()
                }
            })
            .max_concurrency(1),
        )
        .tool("hang", "Hangs", {
            move |_: NoArgs, _: ToolContext<Tells>| {
                let started = started.clone();
                async move {
                    started.send(()).ok();
                    std::future::pending::<()>().await
                }
            }
        })
        .state(move || Tells(drops.clone()));
    (server, Calc { release, started: starts, dropped })
}

impl Calc {
    async fn begins(&mut self) {
        within(SOON, self.started.recv()).await.unwrap();
    }

    fn release(&self) {
        self.release.notify_waiters();
    }
}

async fn restarted(events: &mut Events) -> (String, u32) {
    event(events, |event| match event {
        Event::ServerRestarted { cause, generation, .. } => Some((cause.clone(), *generation)),
        _ => None,
    })
    .await
}

async fn failed(events: &mut Events) -> String {
    event(events, |event| match event {
        Event::ServerFailed { cause, .. } => Some(cause.clone()),
        _ => None,
    })
    .await
}

/// The message of a JSON-RPC error with code -32603.
fn internal_error(answer: &Value) -> &str {
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    answer["error"]["message"].as_str().unwrap()
}

async fn boom(end: &mut CliEnd, times: usize) {
    for _ in 0..times {
        assert_eq!(error_text(&call(end, "calc", "boom", json!({})).await), "tool 'boom' panicked: kaboom");
    }
}

async fn generation(end: &mut CliEnd) -> String {
    text(&call(end, "calc", "generation", json!({})).await).to_owned()
}

// Guards: isolated
#[tokio::test(start_paused = true)]
async fn calls_in_flight_outlive_a_hundred_panics_of_another_tool() {
    let (server, mut calc) = calc();
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let mut calls = Vec::new();
    for number in 0..50 {
        calls.push(end.call_tool("calc", "wait", json!({ "number": number })));
        calc.begins().await;
    }
    boom(&mut end, 100).await;
    assert_eq!(generation(&mut end).await, "26", "a fresh state after every fourth panic");
    let snapshot = session.snapshot().await.unwrap();
    assert_eq!((&snapshot.servers[0].status, snapshot.servers[0].calls.len()), (&ServerStatus::Up, 50));
    calc.release();
    for (number, request_id) in calls.iter().enumerate() {
        assert_eq!(text(&rpc_answer(&mut end, request_id).await), format!("{number} of 1"));
    }
    let counters = counters(&session).await;
    assert_eq!((counters.panics, counters.server_restarts, counters.late_answers), (100, 25, 0));
    stop(session, end).await;
}

// Guards: more tools of a server panic than `restarts.panics`
#[tokio::test(start_paused = true)]
async fn a_state_lives_until_its_last_call_has_ended() {
    let (server, mut calc) = calc();
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let waits = end.call_tool("calc", "wait", json!({ "number": 7 }));
    calc.begins().await;
    boom(&mut end, 4).await;
    assert_eq!(generation(&mut end).await, "2");
    // The server drops old states on the blocking pool: let all its work finish.
    for _ in 0..9 {
        tokio::task::spawn_blocking(std::thread::yield_now).await.unwrap();
    }
    assert!(calc.dropped.try_recv().is_err(), "a call still has it");
    calc.release();
    assert_eq!(text(&rpc_answer(&mut end, &waits).await), "7 of 1");
    let thread = within(SOON, calc.dropped.recv()).await.unwrap();
    assert_ne!(thread, std::thread::current().id(), "its drop may block, and holds up no other call");
    assert_eq!(generation(&mut end).await, "2");
    assert!(calc.dropped.try_recv().is_err());
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn panics_of_calls_on_the_old_state_do_not_count_against_the_new_one() {
    let (server, mut calc) = calc();
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let mut late = Vec::new();
    for _ in 0..20 {
        late.push(end.call_tool("calc", "wait_and_boom", json!({})));
        calc.begins().await;
    }
    boom(&mut end, 4).await;
    assert_eq!(generation(&mut end).await, "2");
    calc.release();
    for request_id in &late {
        error_text(&rpc_answer(&mut end, request_id).await);
    }
    assert_eq!(generation(&mut end).await, "2");
    boom(&mut end, 3).await;
    assert_eq!(generation(&mut end).await, "2", "the old panics are forgotten");
    stop(session, end).await;
}

// Guards: more tools of a server panic than `restarts.panics`
#[tokio::test(start_paused = true)]
async fn cancellations_withdrawals_and_limits_reach_calls_on_the_old_state() {
    let (server, mut calc) = calc();
    let builder = Session::builder().mcp_server(server).configure(|options| {
        options.timeouts.tool = Some(Duration::from_secs(90));
    });
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let hang =
        |id: u64| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "hang" } });
    let mut calls = Vec::new();
    for id in [901, 902, 903] {
        calls.push(end.mcp("calc", hang(id)));
        calc.begins().await;
    }
    boom(&mut end, 4).await;
    assert_eq!(generation(&mut end).await, "2");
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 901 } });
    end.mcp("calc", cancel);
    assert_eq!(rpc_answer(&mut end, &calls[0]).await["error"]["code"], -32800);
    end.send(json!({ "type": "control_cancel_request", "request_id": calls[1] }));
    let late = rpc_answer(&mut end, &calls[2]).await;
    assert!(error_text(&late).contains("within its limit of 90s"), "{late}");
    // The state goes with the last of them, after its grace time.
    within(SOON, calc.dropped.recv()).await.unwrap();
    let snapshot = session.snapshot().await.unwrap();
    assert_eq!((snapshot.servers[0].calls.len(), snapshot.counters.aborted), (0, 3));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn calls_on_the_old_state_count_for_the_concurrency_of_their_tool() {
    let (server, mut calc) = calc();
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let first = end.call_tool("calc", "one", json!({}));
    calc.begins().await;
    boom(&mut end, 4).await;
    let second = end.call_tool("calc", "one", json!({}));
    assert_eq!(generation(&mut end).await, "2");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(calc.started.try_recv().is_err(), "there is one at a time");
    calc.release();
    assert_eq!(text(&rpc_answer(&mut end, &first).await), "1");
    calc.begins().await;
    calc.release();
    assert_eq!(text(&rpc_answer(&mut end, &second).await), "2");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_calls_on_the_old_state_and_answers_them() {
    let (server, mut calc) = calc();
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let old = end.call_tool("calc", "hang", json!({}));
    calc.begins().await;
    boom(&mut end, 4).await;
    session.inject(Fault::KillServer("calc".into()));
    let answer = rpc_answer(&mut end, &old).await;
    assert!(internal_error(&answer).contains("has ended"), "{answer}");
    assert_eq!(generation(&mut end).await, "3");
    stop(session, end).await;
    for _ in 0..3 {
        within(SOON, calc.dropped.recv()).await.unwrap();
    }
}

/// A server whose factory fails until `well` is true, and the times of its attempts.
fn db(well: &Arc<AtomicBool>) -> (ToolServer, mpsc::UnboundedReceiver<Instant>) {
    let (attempt, attempts) = mpsc::unbounded_channel();
    let well = well.clone();
    let server = ToolServer::new("db", "1.0.0")
        .tool("query", "Asks", async |_: NoArgs, _: ToolContext<u32>| "row")
        .tool("boom", "Panics", async |_: NoArgs, _: ToolContext<u32>| -> String { panic!("kaboom") })
        .tool("wait", "Waits", async |_: NoArgs, _: ToolContext<u32>| {
            tokio::time::sleep(Duration::from_secs(200)).await;
            "waited"
        })
        .state_with(move |_| {
            attempt.send(Instant::now()).ok();
            let well = well.load(Ordering::Relaxed);
            async move { if well { Ok(7_u32) } else { Err(std::io::Error::other("no database here")) } }
        });
    (server, attempts)
}

async fn query(end: &mut CliEnd) -> Value {
    call(end, "db", "query", json!({})).await
}

// Guards: the factory of a server fails
#[tokio::test(start_paused = true)]
async fn a_dependency_that_is_late_costs_a_call_a_wait_and_no_server() {
    let well = Arc::new(AtomicBool::new(false));
    let (server, mut attempts) = db(&well);
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let comes = well.clone();
    let late = async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        comes.store(true, Ordering::Relaxed);
    };
    let asked = Instant::now();
    let (answer, ()) = tokio::join!(query(&mut end), late);
    assert_eq!(text(&answer), "row");
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    let mut made = 0;
    while attempts.try_recv().is_ok() {
        made += 1;
    }
    assert!(made <= 3, "{made} attempts");
    stop(session, end).await;
}

// Guards: the factory of a server fails
#[tokio::test(start_paused = true)]
async fn the_waits_between_attempts_double_and_the_last_one_gives_the_server_up() {
    let well = Arc::default();
    let (server, mut attempts) = db(&well);
    let (session, end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let mut events = session.events();
    assert!(failed(&mut events).await.contains("no database here"));
    let mut last = attempts.recv().await.unwrap();
    for wait in [250, 500, 1_000, 2_000, 4_000] {
        let next = attempts.recv().await.unwrap();
        let (waited, most) = (next - last, Duration::from_millis(wait));
        // A timer is late by up to a millisecond.
        assert!(waited >= most / 2 && waited <= most + Duration::from_millis(2), "{waited:?} of {most:?}");
        last = next;
    }
    assert!(attempts.try_recv().is_err(), "five restarts");
    stop(session, end).await;
}

/// The server has failed; it is tried again, in vain, and then with success.
async fn comes_back(session: Session, mut end: CliEnd, well: &AtomicBool, made: impl Fn() -> u32) {
    let mut events = session.events();
    let gave_up = Instant::now();
    let before = made();
    tokio::time::sleep(RETRY * 3 / 2).await;
    assert_eq!(made(), before + 1, "it is tried once a minute");
    let asked = Instant::now();
    let answer = query(&mut end).await;
    assert!(internal_error(&answer).contains("MCP server 'db' has failed: "), "{answer}");
    assert_eq!(asked.elapsed(), Duration::ZERO, "at once");
    let snapshot = session.snapshot().await.unwrap();
    assert!(matches!(&snapshot.servers[0].status, ServerStatus::Failed(_)));

    well.store(true, Ordering::Relaxed);
    let (cause, generation) = restarted(&mut events).await;
    assert!(cause.contains("no database here"), "{cause}");
    let took = gave_up.elapsed();
    assert!(took >= RETRY * 2 && took < RETRY * 2 + Duration::from_secs(1), "{took:?}");
    assert_eq!(text(&query(&mut end).await), "row");
    let snapshot = session.snapshot().await.unwrap();
    assert_eq!(
        (&snapshot.servers[0].status, snapshot.servers[0].generation),
        (&ServerStatus::Up, generation)
    );
    stop(session, end).await;
}

// Guards: a server is given up
#[tokio::test(start_paused = true)]
async fn a_server_that_was_given_up_is_tried_again_and_told_when_it_is_back() {
    let well = Arc::default();
    let (server, attempts) = db(&well);
    let (session, end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    failed(&mut session.events()).await;
    let made = AtomicU32::new(0);
    let attempts = std::cell::RefCell::new(attempts);
    let count = || {
        while attempts.borrow_mut().try_recv().is_ok() {
            made.fetch_add(1, Ordering::Relaxed);
        }
        made.load(Ordering::Relaxed)
    };
    comes_back(session, end, &well, count).await;
}

// Guards: a server is given up
#[tokio::test(start_paused = true)]
async fn a_server_whose_actor_ended_too_often_is_tried_again_as_well() {
    let well = Arc::new(AtomicBool::new(true));
    let (server, _attempts) = db(&well);
    let builder =
        Session::builder().mcp_server(server).configure(|options| options.restarts.server.intensity = 0);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    assert_eq!(text(&query(&mut end).await), "row");
    let mut events = session.events();
    session.inject(Fault::KillServer("db".into()));
    failed(&mut events).await;
    let failed_at = Instant::now();
    let answer = query(&mut end).await;
    assert!(internal_error(&answer).contains("has failed"), "{answer}");
    restarted(&mut events).await;
    assert!(failed_at.elapsed() >= RETRY && failed_at.elapsed() < RETRY + Duration::from_secs(1));
    assert_eq!(text(&query(&mut end).await), "row");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_is_not_tried_again_without_a_time_for_it() {
    let well = Arc::default();
    let (server, mut attempts) = db(&well);
    let builder =
        Session::builder().mcp_server(server).configure(|options| options.restarts.server_retry = None);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    failed(&mut session.events()).await;
    while attempts.try_recv().is_ok() {}
    well.store(true, Ordering::Relaxed);
    tokio::time::sleep(RETRY * 100).await;
    assert!(attempts.try_recv().is_err());
    assert!(internal_error(&query(&mut end).await).contains("no database here"));
    stop(session, end).await;
}

// Guards: isolated
#[tokio::test(start_paused = true)]
async fn a_factory_that_fails_after_panics_harms_no_call_in_flight() {
    let well = Arc::new(AtomicBool::new(true));
    let (server, _attempts) = db(&well);
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let mut events = session.events();
    assert_eq!(text(&query(&mut end).await), "row");
    let waits = end.call_tool("db", "wait", json!({}));
    well.store(false, Ordering::Relaxed);
    for _ in 0..4 {
        error_text(&call(&mut end, "db", "boom", json!({})).await);
    }
    let answer = query(&mut end).await;
    assert!(internal_error(&answer).contains("MCP server 'db' has failed"), "{answer}");
    assert!(failed(&mut events).await.contains("no database here"));
    assert_eq!(session.snapshot().await.unwrap().servers[0].calls.len(), 1);
    assert_eq!(text(&rpc_answer(&mut end, &waits).await), "waited");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn calls_wait_between_attempts_no_longer_than_their_bound() {
    let slow = Duration::from_secs(60);
    let (server, _attempts) = db(&Arc::default());
    let builder = Session::builder().mcp_server(server).configure(|options| {
        options.restarts.server = Restart { backoff_min: slow, backoff_max: slow, ..Restart::default() };
    });
    let (session, mut end, _listener) = start_by_hand(builder).await;
    for _ in 0..2 {
        let asked = Instant::now();
        let answer = query(&mut end).await;
        let said = internal_error(&answer);
        assert_eq!(
            said,
            "MCP server 'db' was not ready within 10s: its state could not be made: no database here"
        );
        assert!(asked.elapsed() - Duration::from_secs(10) < Duration::from_millis(5));
    }
    let snapshot = session.snapshot().await.unwrap();
    assert_eq!(snapshot.servers[0].status, ServerStatus::Restarting);
    stop(session, end).await;
}

/// A value whose drop panics.
struct Burns;

impl Drop for Burns {
    fn drop(&mut self) {
        panic!("it burns");
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_that_panics_on_drop_does_not_stop_attempts_to_make_a_state() {
    let made = Arc::new(AtomicU32::new(0));
    let attempts = made.clone();
    let server = ToolServer::new("db", "1.0.0")
        .tool("query", "Asks", async |_: NoArgs, _: ToolContext<u32>| "row")
        .state_with(move |_| {
            let attempt = attempts.fetch_add(1, Ordering::Relaxed);
            async move {
                match attempt {
                    // Left behind when the limit of the factory passes.
                    0 => {
                        let _burns = Burns;
                        std::future::pending().await
                    }
                    attempt => Ok::<_, std::io::Error>(attempt),
                }
            }
        });
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(text(&query(&mut end).await), "row");
    assert_eq!(made.load(Ordering::Relaxed), 2);
    stop(session, end).await;
}

async fn start(builder: SessionBuilder) -> Result<(Session, CliEnd), Error> {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let starting = builder.transport(transport).start();
    let playing = async {
        let mut end = listener.accept().await;
        end.handshake().await;
        end
    };
    tokio::pin!(playing);
    tokio::pin!(starting);
    let mut cli = None;
    loop {
        tokio::select! {
            end = &mut playing, if cli.is_none() => cli = Some(end),
            session = &mut starting => return Ok((session?, cli.unwrap())),
        }
    }
}

// Guards: the factory of a server fails
#[tokio::test(start_paused = true)]
async fn a_significant_server_whose_factory_fails_fails_the_start() {
    let (server, _attempts) = db(&Arc::default());
    // The CLI answers nothing: the session may end before it has asked.
    let (transport, _listener) = ScriptedCli::by_hand();
    let starting = Session::builder().mcp_server(server.significant(true)).transport(transport).start();
    let error = within(SOON, starting).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionFailed);
    let said = "the significant MCP server 'db' did not start: its state could not be made: no database here";
    assert!(error.to_string().contains(said), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_start_waits_for_the_state_of_a_significant_server() {
    let server = ToolServer::new("db", "1.0.0")
        .tool("query", "Asks", async |_: NoArgs, _: ToolContext<u32>| "row")
        .state_with(async |_| {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Ok::<_, std::io::Error>(7_u32)
        });
    for (significant, takes) in [(true, 5), (false, 0)] {
        let begins = Instant::now();
        let server = server.clone().significant(significant);
        let (session, mut end) = within(SOON, start(Session::builder().mcp_server(server))).await.unwrap();
        assert_eq!(begins.elapsed().as_secs(), takes);
        assert_eq!(text(&query(&mut end).await), "row");
        stop(session, end).await;
    }
}
