//! Cancellation reaches the handler: first its token is cancelled, and after the grace time its task is dropped.

use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use crate::timeline;
use greenroom::callback::CallbackContext;
use greenroom::report::{Events, InterruptedBy};
use greenroom::transport::Exit;
use greenroom::{
    Event, NoArgs, Outcome, PermissionDecision, PermissionRequest, Session, ToolContext, ToolDef, ToolServer,
};
use greenroom_testkit::{CliEnd, ModelTurn, Script, ScriptedCli};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

/// Stages of a handler's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lived {
    Started,
    /// The token was cancelled.
    Told,
    /// The handler returned.
    Ended,
    /// The handler's future was dropped.
    Dropped,
}
use Lived::{Dropped, Ended, Started, Told};

struct Life(mpsc::UnboundedSender<(Lived, Instant)>);

impl Life {
    fn is(&self, lived: Lived) {
        self.0.send((lived, Instant::now())).ok();
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.is(Dropped);
    }
}

struct Lives(mpsc::UnboundedReceiver<(Lived, Instant)>);

impl Lives {
    async fn expect(&mut self, lived: Lived) -> Instant {
        let (next, at) = within(SOON, self.0.recv()).await.unwrap();
        assert_eq!(next, lived);
        at
    }
}

/// A server with tools that hang: `stubborn` whatever is said to it, `tidy` cleans up for two seconds when it is
/// told, `patient` waits for its release.
fn hanging() -> (ToolServer, Lives, Arc<Notify>) {
    let (lives, seen) = mpsc::unbounded_channel();
    let (stubborn, tidy, patient) = (lives.clone(), lives.clone(), lives);
    let release = Arc::new(Notify::new());
    let released = release.clone();
    let server = ToolServer::new("work", "1.0.0")
        .tool("stubborn", "Hangs", move |_: NoArgs, cx: ToolContext| {
            let life = Life(stubborn.clone());
            async move {
                life.is(Started);
                cx.cancelled().await;
                life.is(Told);
                std::future::pending::<String>().await
            }
        })
        .tool("tidy", "Cleans up", move |_: NoArgs, cx: ToolContext| {
            let life = Life(tidy.clone());
            async move {
                life.is(Started);
                cx.cancelled().await;
                life.is(Told);
                tokio::time::sleep(Duration::from_secs(2)).await;
                life.is(Ended);
                "cleaned up"
            }
        })
        .tool("patient", "Waits", move |_: NoArgs| {
            let (life, released) = (Life(patient.clone()), released.clone());
            async move {
                life.is(Started);
                released.notified().await;
                life.is(Ended);
                "done"
            }
        })
        .tool("quick", "Answers", async |_: NoArgs| "here");
    (server, Lives(seen), release)
}

const GRACE: Duration = Duration::from_secs(5);

/// Calls a tool with a JSON-RPC id of the test's own.
fn call_with_id(end: &mut CliEnd, tool: &str, id: u64) -> String {
    let params = json!({ "name": tool, "arguments": {} });
    end.mcp("work", json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }))
}

async fn initialize(end: &mut CliEnd) {
    let params =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t" } });
    let request = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    let request_id = end.mcp("work", request);
    assert_eq!(rpc_answer(end, &request_id).await["result"]["serverInfo"]["name"], "work");
    end.mcp("work", json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
}

async fn cancelled(events: &mut Events) -> (String, String, Option<String>) {
    event(events, |event| match event {
        Event::CallCancelled { tool, request_id, reason, .. } => {
            Some((tool.clone(), request_id.clone(), reason.clone()))
        }
        _ => None,
    })
    .await
}

fn is_cancelled(answer: &Value) {
    assert_eq!(answer["error"], json!({ "code": -32800, "message": "Request cancelled" }), "{answer}");
}

// Guards: cancelled-reaches
// Guards: a call is cancelled
#[tokio::test(start_paused = true)]
async fn a_cancelled_call_is_answered_and_its_handler_aborted_after_the_grace() {
    let (server, mut lives, _) = hanging();
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let mut events = session.events();
    let request_id = end.call_tool("work", "stubborn", json!({}));
    lives.expect(Started).await;

    let at = Instant::now();
    let notification = end.cancel_call("work", end.last_rpc_id());
    let answer = rpc_answer(&mut end, &request_id).await;
    is_cancelled(&answer);
    assert_eq!(answer["id"], end.last_rpc_id());
    assert_eq!(rpc_answer(&mut end, &notification).await["result"], json!({}), "the notification too");
    assert_eq!(
        cancelled(&mut events).await,
        ("stubborn".into(), request_id.clone(), Some("scripted".into()))
    );
    assert_eq!(lives.expect(Told).await, at);
    let snapshot = session.snapshot().await.unwrap();
    assert!(snapshot.calls().next().unwrap().cancelled, "it is still cleaning up, and that is seen");
    assert_eq!(lives.expect(Dropped).await - at, GRACE);

    assert_eq!(answers(&settled(&mut end).await, &request_id).len(), 0, "a second answer was written");
    let snapshot = session.snapshot().await.unwrap();
    assert_eq!(snapshot.calls().count(), 0);
    let counters = snapshot.counters;
    assert_eq!((counters.cancelled, counters.aborted, counters.unmatched_cancels), (1, 1, 0));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_cleans_up_in_its_grace_time_comes_to_its_end() {
    let (server, mut lives, _) = hanging();
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let request_id = end.call_tool("work", "tidy", json!({}));
    lives.expect(Started).await;
    end.cancel_call("work", end.last_rpc_id());
    is_cancelled(&rpc_answer(&mut end, &request_id).await);
    let told = lives.expect(Told).await;
    assert_eq!(lives.expect(Ended).await - told, Duration::from_secs(2));
    lives.expect(Dropped).await;
    assert_eq!(answers(&settled(&mut end).await, &request_id).len(), 0, "its own answer was written");
    let counters = counters(&session).await;
    assert_eq!((counters.late_answers, counters.aborted), (1, 0));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn the_grace_time_is_the_one_of_the_options() {
    let (server, mut lives, _) = hanging();
    let builder = Session::builder().mcp_server(server);
    let builder = builder.configure(|options| options.timeouts.cancel_grace = Duration::from_millis(70));
    let (session, mut end, _listener) = start_by_hand(builder).await;
    end.call_tool("work", "tidy", json!({}));
    lives.expect(Started).await;
    end.cancel_call("work", end.last_rpc_id());
    let told = lives.expect(Told).await;
    assert_eq!(lives.expect(Dropped).await - told, Duration::from_millis(70));
    stop(session, end).await;
}

// Guards: cancelled-reaches
#[tokio::test(start_paused = true)]
async fn a_call_that_the_cli_withdraws_gets_no_answer_and_its_handler_is_told() {
    let (server, mut lives, _) = hanging();
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let request_id = end.call_tool("work", "tidy", json!({}));
    lives.expect(Started).await;
    end.send(json!({ "type": "control_cancel_request", "request_id": request_id }));
    lives.expect(Told).await;
    lives.expect(Ended).await;
    lives.expect(Dropped).await;
    assert_eq!(answers(&settled(&mut end).await, &request_id).len(), 0);
    let withdrawn = counters(&session).await;
    assert_eq!((withdrawn.orphaned, withdrawn.cancelled, withdrawn.unmatched_cancels), (1, 0, 0));

    // Cancels the call again, and a call that never was.
    end.send(json!({ "type": "control_cancel_request", "request_id": request_id }));
    end.send(json!({ "type": "control_cancel_request", "request_id": "nothing" }));
    settled(&mut end).await;
    assert_eq!(counters(&session).await.unmatched_cancels, 2);
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_callback_that_the_cli_withdraws_is_told_and_gets_no_answer() {
    let (lives, seen) = mpsc::unbounded_channel();
    let mut seen = Lives(seen);
    let builder = Session::builder().can_use_tool(move |_: PermissionRequest, cx: CallbackContext| {
        let life = Life(lives.clone());
        async move {
            life.is(Started);
            cx.cancelled().await;
            life.is(Told);
            PermissionDecision::allow()
        }
    });
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let asked = end.request(json!({ "subtype": "can_use_tool", "tool_name": "Bash", "input": {} }));
    seen.expect(Started).await;
    end.send(json!({ "type": "control_cancel_request", "request_id": asked }));
    seen.expect(Told).await;
    seen.expect(Dropped).await;
    assert_eq!(answers(&settled(&mut end).await, &asked).len(), 0);
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_of_a_finished_call_is_counted_and_changes_nothing() {
    let (server, _, _) = hanging();
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let request_id = end.call_tool("work", "quick", json!({}));
    assert_eq!(text(&rpc_answer(&mut end, &request_id).await), "here");
    let late = end.cancel_call("work", end.last_rpc_id());
    assert_eq!(rpc_answer(&mut end, &late).await["result"], json!({}));
    assert_eq!(answers(&settled(&mut end).await, &request_id).len(), 0);
    let counters = counters(&session).await;
    assert_eq!((counters.unmatched_cancels, counters.cancelled), (1, 0));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_second_cancellation_of_the_same_call_answers_nothing() {
    let (server, mut lives, _) = hanging();
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let request_id = end.call_tool("work", "stubborn", json!({}));
    lives.expect(Started).await;
    for _ in 0..2 {
        end.cancel_call("work", end.last_rpc_id());
    }
    assert_eq!(answers(&settled_after_cancel(&mut end).await, &request_id).len(), 1);
    assert_eq!(counters(&session).await.cancelled, 1);
    stop(session, end).await;
}

/// Frames up to the answer of a call that is made now.
async fn settled_after_cancel(end: &mut CliEnd) -> Vec<Value> {
    let last = end.call_tool("work", "quick", json!({}));
    let mut frames = Vec::new();
    loop {
        let frame = within(SOON, end.recv()).await.unwrap();
        if frame["response"]["request_id"] == last.as_str() {
            return frames;
        }
        frames.push(frame);
    }
}

// Guards: cancelled-reaches
#[tokio::test(start_paused = true)]
async fn json_rpc_ids_mean_calls_of_the_newest_mcp_session_only() {
    let (server, mut lives, release) = hanging();
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    initialize(&mut end).await;
    let older = call_with_id(&mut end, "patient", 2);
    lives.expect(Started).await;
    initialize(&mut end).await;

    // Late: in this MCP session there is no call 2 yet.
    let late = end.cancel_call("work", 2);
    rpc_answer(&mut end, &late).await;
    assert_eq!(counters(&session).await.unmatched_cancels, 1);

    let younger = call_with_id(&mut end, "stubborn", 2);
    lives.expect(Started).await;
    release.notify_one();
    let answer = rpc_answer(&mut end, &older).await;
    assert_eq!((text(&answer), &answer["id"]), ("done", &json!(2)), "the older call went on");
    lives.expect(Ended).await;
    lives.expect(Dropped).await;

    // The end of the older call leaves the id to the younger call.
    end.cancel_call("work", 2);
    is_cancelled(&rpc_answer(&mut end, &younger).await);
    lives.expect(Told).await;
    assert_eq!(counters(&session).await.cancelled, 1);
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_never_reaches_a_call_of_an_older_mcp_session() {
    let (server, mut lives, release) = hanging();
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    initialize(&mut end).await;
    let older = call_with_id(&mut end, "patient", 2);
    lives.expect(Started).await;
    initialize(&mut end).await;
    let younger = call_with_id(&mut end, "stubborn", 2);
    lives.expect(Started).await;
    end.cancel_call("work", 2);
    is_cancelled(&rpc_answer(&mut end, &younger).await);
    lives.expect(Told).await;
    lives.expect(Dropped).await;
    release.notify_one();
    assert_eq!(text(&rpc_answer(&mut end, &older).await), "done");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_is_cancelled_while_the_state_of_its_server_is_being_made() {
    let release = Arc::new(Notify::new());
    let (entered, mut ran) = mpsc::unbounded_channel();
    let released = release.clone();
    let server = ToolServer::new("work", "1.0.0")
        .tool("slow", "Answers", move |_: NoArgs, _: ToolContext<u32>| {
            let entered = entered.clone();
            async move {
                entered.send(()).ok();
                "ran"
            }
        })
        .state_with(move |_| {
            let released = released.clone();
            async move {
                released.notified().await;
                Ok::<u32, std::io::Error>(1)
            }
        });
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let mut events = session.events();
    let request_id = end.call_tool("work", "slow", json!({}));
    end.cancel_call("work", end.last_rpc_id());
    is_cancelled(&rpc_answer(&mut end, &request_id).await);
    assert_eq!(cancelled(&mut events).await.1, request_id);
    release.notify_one();
    assert_eq!(text(&call(&mut end, "work", "slow", json!({})).await), "ran");
    within(SOON, ran.recv()).await.unwrap();
    assert!(ran.try_recv().is_err(), "the cancelled call ran all the same");
    assert_eq!(counters(&session).await.unmatched_cancels, 0);
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_cancelled_while_it_waits_for_its_place_never_runs() {
    let release = Arc::new(Notify::new());
    let (entered, mut ran) = mpsc::unbounded_channel();
    let released = release.clone();
    let one = ToolDef::new("one", "One at a time", move |_: NoArgs, cx: ToolContext| {
        let (entered, released) = (entered.clone(), released.clone());
        async move {
            entered.send(cx.request_id().to_owned()).ok();
            released.notified().await;
            "done"
        }
    });
    let server = ToolServer::new("work", "1.0.0").add_tool(one.max_concurrency(1));
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let first = end.call_tool("work", "one", json!({}));
    assert_eq!(within(SOON, ran.recv()).await.unwrap(), first);
    let second = end.call_tool("work", "one", json!({}));
    end.cancel_call("work", end.last_rpc_id());
    is_cancelled(&rpc_answer(&mut end, &second).await);
    let third = end.call_tool("work", "one", json!({}));
    release.notify_one();
    assert_eq!(text(&rpc_answer(&mut end, &first).await), "done");
    assert_eq!(within(SOON, ran.recv()).await.unwrap(), third, "the cancelled call ran all the same");
    release.notify_one();
    assert_eq!(text(&rpc_answer(&mut end, &third).await), "done");
    let counters = counters(&session).await;
    assert_eq!((counters.late_answers, counters.aborted), (0, 0), "a call that did not begin has no end");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_of_the_turn_reaches_the_handler() {
    let (server, mut lives, _) = hanging();
    let turn = ModelTurn::new().call("mcp__work__tidy", json!({}));
    let cli = ScriptedCli::play(Script::new().turn(turn).turn(ModelTurn::new().text("again")));
    let builder = Session::builder().mcp_server(server).allow_server_tools("work");
    let session = timeline::watched(builder, cli.transport()).start().await.unwrap();
    let mut turn = session.prompt("go").await.unwrap();
    lives.expect(Started).await;
    within(SOON, session.interrupt()).await.unwrap();
    lives.expect(Told).await;
    let outcome = within(SOON, turn.outcome()).await.unwrap();
    assert!(matches!(outcome, Outcome::Interrupted { by: InterruptedBy::User, .. }), "{outcome:?}");
    lives.expect(Ended).await;
    let mut turn = session.prompt("go on").await.unwrap();
    assert_eq!(within(SOON, turn.outcome()).await.unwrap().text(), Some("again"));
    within(session.shutdown_bound(), session.stop()).await.unwrap();
}

async fn timed_out(events: &mut Events) -> (String, String, Duration) {
    event(events, |event| match event {
        Event::CallTimedOut { tool, request_id, limit, .. } => {
            Some((tool.clone(), request_id.clone(), *limit))
        }
        _ => None,
    })
    .await
}

// Guards: a tool outlives its limit
#[tokio::test(start_paused = true)]
async fn a_call_over_the_limit_of_the_session_is_answered_with_the_limit() {
    let (server, mut lives, _) = hanging();
    let builder = Session::builder()
        .mcp_server(server)
        .configure(|options| options.timeouts.tool = Some(Duration::from_secs(30)));
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut events = session.events();
    let asked = Instant::now();
    let request_id = end.call_tool("work", "stubborn", json!({}));
    lives.expect(Started).await;
    let answer = rpc_answer(&mut end, &request_id).await;
    assert_eq!(error_text(&answer), "tool 'stubborn' did not finish within its limit of 30s");
    assert_eq!(asked.elapsed(), Duration::from_secs(30));
    let told = timed_out(&mut events).await;
    assert_eq!(told, ("stubborn".into(), request_id.clone(), Duration::from_secs(30)));
    lives.expect(Told).await;
    assert_eq!(lives.expect(Dropped).await - asked, Duration::from_secs(30) + GRACE);
    assert_eq!(answers(&settled(&mut end).await, &request_id).len(), 0);
    let counters = counters(&session).await;
    assert_eq!((counters.timeouts, counters.aborted, counters.cancelled), (1, 1, 1));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_a_tool_goes_before_the_one_of_the_session() {
    let deadlines = mpsc::unbounded_channel();
    let tool = |name: &str| {
        let to_deadlines = deadlines.0.clone();
        ToolDef::new(name, "Hangs", move |_: NoArgs, cx: ToolContext| {
            to_deadlines.send(cx.deadline()).ok();
            std::future::pending::<String>()
        })
    };
    let server = ToolServer::new("work", "1.0.0")
        .add_tool(tool("shorter").timeout(Duration::from_secs(1)))
        .add_tool(tool("longer").timeout(Duration::from_secs(90)))
        .add_tool(tool("other"));
    let builder = Session::builder()
        .mcp_server(server)
        .configure(|options| options.timeouts.tool = Some(Duration::from_secs(30)));
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let asked = Instant::now();
    // The longest first, so that the timer has to be set anew.
    let longer = end.call_tool("work", "longer", json!({}));
    let other = end.call_tool("work", "other", json!({}));
    let shorter = end.call_tool("work", "shorter", json!({}));
    for (request_id, limit) in [(shorter, 1), (other, 30), (longer, 90)] {
        let answer = rpc_answer(&mut end, &request_id).await;
        assert!(error_text(&answer).ends_with(&format!("within its limit of {limit}s")), "{answer}");
        assert_eq!(asked.elapsed(), Duration::from_secs(limit));
    }
    let mut told = deadlines.1;
    for limit in [90, 30, 1] {
        assert_eq!(told.recv().await.unwrap(), Some(asked + Duration::from_secs(limit)));
    }
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_a_call_may_take_a_day() {
    let (server, mut lives, release) = hanging();
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let request_id = end.call_tool("work", "patient", json!({}));
    lives.expect(Started).await;
    tokio::time::sleep(Duration::from_secs(24 * 60 * 60)).await;
    release.notify_one();
    assert_eq!(text(&rpc_answer(&mut end, &request_id).await), "done");
    stop(session, end).await;
}

// Guards: cancelled-reaches
#[tokio::test(start_paused = true)]
async fn the_end_of_an_incarnation_reaches_the_handlers_of_its_calls() {
    let (server, mut lives, _) = hanging();
    let (session, mut end, mut listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let mut events = session.events();
    let request_id = end.call_tool("work", "tidy", json!({}));
    lives.expect(Started).await;
    end.exit(Exit::Signal(9));
    lives.expect(Told).await;
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.handshake()).await;
    event(&mut events, |event| matches!(event, Event::CliRestarted { epoch: 2, .. }).then_some(())).await;
    lives.expect(Ended).await;
    lives.expect(Dropped).await;
    assert_eq!(text(&call(&mut end, "work", "quick", json!({})).await), "here");
    let frames = settled(&mut end).await;
    assert_eq!(answers(&frames, &request_id).len(), 0, "an answer went to another incarnation");
    let counters = counters(&session).await;
    assert_eq!((counters.orphaned, counters.late_answers), (1, 1));
    stop(session, end).await;
}
