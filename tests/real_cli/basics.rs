//! Starts, tool calls, panics, interrupts, kills, resumes and stops with the real `claude` CLI.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::snapshot::reported_cli;
use crate::stage::*;
use futures_util::future::BoxFuture;
use greenroom::hook::HookOutput;
use greenroom::options::ExternalServer;
use greenroom::report::{ExitCause, InterruptedBy};
use greenroom::transport::{ChildProcess, Connection, Exit, Launch, Transport};
use greenroom::{
    ErrorKind, Event, Hook, NoArgs, Outcome, PermissionDecision, ToolContext, ToolDef, ToolServer,
};
use greenroom_testkit::{Fault, ModelRequest, ModelTurn, Script};
use rustix::process::{Pid, Signal, kill_process, test_kill_process_group};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::{Barrier, mpsc};

fn one_call() -> Script {
    Script::new().turn(call("add", json!({ "a": 5, "b": 3 }))).turn(text("5 + 3 is 8."))
}

#[tokio::test]
async fn handshake_by_initialize_and_a_call() {
    let Some(stage) = Stage::new(one_call()).await else { return };
    let session = stage.start(calc()).await;
    answers(&session, "What is 5 + 3?", "5 + 3 is 8.").await;

    let seen = stage.last_result();
    assert_eq!((seen.text.as_str(), seen.is_error), ("8", false));
    assert_eq!(seen.tool_use_id, "toolu_script_0_0");
    assert!(stage.model.requests()[0].tool_names().contains(&"mcp__calc__add"));
    let snapshot = session.snapshot().await.unwrap();
    assert_eq!(snapshot.servers[0].mcp_sessions, 0, "its manifest made the MCP handshake unnecessary");
    assert_eq!((snapshot.counters.requests, snapshot.counters.answered), (1, 1));
    stop(&session).await;
}

// Guards: isolated
#[tokio::test]
async fn read_only_calls_are_in_flight_all_at_once() {
    let four =
        (1..=4).fold(ModelTurn::new(), |turn, n| turn.call("mcp__calc__meet", json!({ "a": n, "b": 0 })));
    let Some(stage) = Stage::new(Script::new().turn(four).turn(text("Met."))).await else { return };
    // None returns before all four are there.
    let barrier = Arc::new(Barrier::new(4));
    let meet = ToolDef::new("meet", "Wait for the others", move |args: Add| {
        let barrier = barrier.clone();
        async move {
            barrier.wait().await;
            args.a
        }
    });
    let session = stage.start(ToolServer::new("calc", "1").add_tool(loaded(meet).read_only_hint(true))).await;
    answers(&session, "Meet.", "Met.").await;

    let seen: Vec<_> = stage.last_request().tool_results();
    let seen: BTreeSet<_> = seen.iter().map(|seen| (seen.tool_use_id.as_str(), seen.text.as_str())).collect();
    let ids = ["toolu_script_0_0", "toolu_script_0_1", "toolu_script_0_2", "toolu_script_0_3"];
    assert_eq!(
        seen,
        BTreeSet::from_iter(ids.into_iter().zip(["1", "2", "3", "4"])),
        "each has its own result"
    );
    stop(&session).await;
}

// Guards: a tool returns `Err`
#[tokio::test]
async fn the_error_of_a_tool_is_read_by_the_model() {
    let script = Script::new().turn(call("save", json!({}))).turn(text("It is full."));
    let Some(stage) = Stage::new(script).await else { return };
    let save = ToolDef::new("save", "Save", async |_: NoArgs| Err::<(), _>("the disk is full"));
    let session = stage.start(ToolServer::new("calc", "1").add_tool(loaded(save))).await;
    answers(&session, "Save.", "It is full.").await;

    let seen = stage.last_result();
    assert_eq!((seen.text.as_str(), seen.is_error), ("the disk is full", true));
    stop(&session).await;
}

// Guards: a tool panics
#[tokio::test]
async fn a_panic_is_answered_and_the_session_goes_on() {
    let script = Script::new()
        .turn(call("burst", json!({})))
        .turn(text("It burst."))
        .turn(call("add", json!({ "a": 1, "b": 1 })))
        .turn(text("2"));
    let Some(stage) = Stage::new(script).await else { return };
    let burst = ToolDef::new("burst", "Panic", async |_: NoArgs| -> () { panic!("boom") });
    let session = stage.start(calc().add_tool(loaded(burst))).await;
    let mut events = session.events();
    answers(&session, "Burst.", "It burst.").await;

    let seen = stage.last_result();
    assert!(
        seen.is_error && seen.text.contains("'burst' panicked") && seen.text.contains("boom"),
        "{seen:?}"
    );
    let message = event(&mut events, "the panic", |event| match event {
        Event::CallPanicked { server, tool, message, .. } if server == "calc" && tool == "burst" => {
            Some(message.clone())
        }
        _ => None,
    });
    assert_eq!(message.await, "boom");
    answers(&session, "Add.", "2").await;
    assert_eq!(stage.last_result().text, "2");
    let snapshot = session.snapshot().await.unwrap();
    assert_eq!(
        (snapshot.servers[0].generation, snapshot.cli.unwrap().epoch),
        (1, 1),
        "nothing was restarted"
    );
    stop(&session).await;
}

/// The real transport; keeps what the CLI writes.
#[derive(Clone, Default)]
struct Overheard(Arc<Mutex<Vec<u8>>>);

impl Transport for Overheard {
    fn open(&self, launch: Launch) -> BoxFuture<'static, greenroom::Result<Connection>> {
        let (opening, heard) = (ChildProcess::new().open(launch), self.0.clone());
        Box::pin(async move {
            let mut connection = opening.await?;
            connection.reader = Box::new(Listening { reader: connection.reader, heard });
            Ok(connection)
        })
    }
}

struct Listening {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl AsyncRead for Listening {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.reader).poll_read(cx, buffer);
        self.heard.lock().unwrap().extend_from_slice(&buffer.filled()[before..]);
        read
    }
}

impl Overheard {
    /// The subtypes of all answers of the CLI to requests of ours.
    fn answers(&self) -> Vec<String> {
        let heard = self.0.lock().unwrap();
        let lines = heard.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
        let answers = lines.filter(|frame: &Value| frame["type"] == "control_response");
        answers.map(|frame| frame["response"]["subtype"].as_str().unwrap().to_owned()).collect()
    }
}

#[tokio::test]
async fn progress_is_taken_by_the_cli() {
    let script = Script::new().turn(call("walk", json!({}))).turn(text("Arrived."));
    let Some(stage) = Stage::new(script).await else { return };
    let walk = ToolDef::new("walk", "Walk", async |_: NoArgs, cx: ToolContext| {
        for step in 1..=3 {
            cx.progress(f64::from(step), Some(3.0), Some("walking")).await;
        }
        "three steps"
    });
    let overheard = Overheard::default();
    let builder = stage.builder().mcp_server(ToolServer::new("calc", "1").add_tool(loaded(walk)));
    let session = start(builder.allow_server_tools("calc").transport(overheard.clone())).await;
    let at_start = overheard.answers().len();
    answers(&session, "Walk.", "Arrived.").await;

    assert_eq!(stage.last_result().text, "three steps");
    // The CLI answers in order: once this is answered, the notifications are.
    session.requests().control(json!({ "subtype": "mcp_status" })).await.unwrap();
    assert_eq!(
        overheard.answers()[at_start..],
        ["success"; 4],
        "to three notifications, and to `mcp_status`"
    );
    let counters = session.snapshot().await.unwrap().counters;
    assert_eq!((counters.unmatched_responses, counters.noise_lines, counters.malformed_lines), (0, 0, 0));
    stop(&session).await;
}

// Guards: cancelled-reaches
// Guards: a call is cancelled
#[tokio::test]
async fn an_interrupt_reaches_the_tool_and_the_session_goes_on() {
    let script = Script::new().turn(call("hang", json!({}))).turn(text("Still here."));
    let Some(stage) = Stage::new(script).await else { return };
    let (hang, mut hear) = hang();
    let session = stage.start(ToolServer::new("calc", "1").add_tool(hang)).await;
    let mut events = session.events();
    let mut turn = session.prompt("Hang.").await.unwrap();
    hears(&mut hear, "called").await;

    in_time("the interrupt", session.interrupt()).await.unwrap();
    hears(&mut hear, "cancelled").await;
    let ended = in_time("the turn", turn.outcome()).await.unwrap();
    assert!(
        matches!(&ended, Outcome::Interrupted { by: InterruptedBy::User, result: Some(_), .. }),
        "{ended:?}"
    );
    let cancelled =
        |event: &Event| matches!(event, Event::CallCancelled { tool, .. } if tool == "hang").then_some(());
    event(&mut events, "the cancellation", cancelled).await;
    answers(&session, "Are you there?", "Still here.").await;
    assert_eq!(reported_cli(&session).await.epoch, 1);
    stop(&session).await;
}

// Guards: a tool outlives its limit
#[tokio::test]
async fn a_tool_that_takes_too_long_is_answered_for() {
    let script = Script::new().turn(call("hang", json!({}))).turn(text("Too slow."));
    let Some(stage) = Stage::new(script).await else { return };
    let (hang, mut hear) = hang();
    let limit = Duration::from_millis(150);
    let builder =
        stage.builder().mcp_server(ToolServer::new("calc", "1").add_tool(hang)).allow_server_tools("calc");
    let session = start(builder.configure(|options| options.timeouts.tool = Some(limit))).await;
    let mut events = session.events();
    answers(&session, "Hang.", "Too slow.").await;

    hears(&mut hear, "called").await;
    hears(&mut hear, "cancelled").await;
    let seen = stage.last_result();
    assert!(seen.is_error && seen.text.contains("150ms"), "the model reads what the limit is: {seen:?}");
    let told = event(&mut events, "the timeout", |event| match event {
        Event::CallTimedOut { tool, limit, .. } if tool == "hang" => Some(*limit),
        _ => None,
    });
    assert_eq!(told.await, limit);
    stop(&session).await;
}

#[tokio::test]
async fn the_limit_of_the_cli_reaches_the_tool_too() {
    let script = Script::new().turn(call("hang", json!({}))).turn(text("Too slow."));
    let Some(stage) = Stage::new(script).await else { return };
    let (hang, mut hear) = hang();
    let builder =
        stage.builder().mcp_server(ToolServer::new("calc", "1").add_tool(hang)).allow_server_tools("calc");
    let session = start(builder.env("MCP_TOOL_TIMEOUT", "300")).await;
    let mut events = session.events();
    answers(&session, "Hang.", "Too slow.").await;

    hears(&mut hear, "called").await;
    hears(&mut hear, "cancelled").await;
    assert!(stage.last_result().is_error);
    let cancelled =
        |event: &Event| matches!(event, Event::CallCancelled { tool, .. } if tool == "hang").then_some(());
    event(&mut events, "the cancellation", cancelled).await;
    stop(&session).await;
}

// Guards: arguments that do not fit
#[tokio::test]
async fn an_unknown_tool_and_bad_arguments_are_errors_that_the_model_reads() {
    let script = Script::new()
        .turn(call("nope", json!({})))
        .turn(call("add", json!({ "a": 1, "b": "two" })))
        .turn(text("I see."));
    let Some(stage) = Stage::new(script).await else { return };
    let session = stage.start(calc()).await;
    answers(&session, "Try.", "I see.").await;

    let requests = stage.model.requests();
    let results: Vec<_> = requests.iter().flat_map(|request| request.tool_results()).collect();
    assert_eq!(results.len(), 2, "{results:?}");
    assert!(results.iter().all(|result| result.is_error), "{results:?}");
    assert!(results[0].text.contains("mcp__calc__nope"), "{results:?}");
    assert!(results[1].text.contains("`b`"), "the argument is named: {results:?}");
    stop(&session).await;
}

/// A stdio MCP server, with a tool `shout`.
fn outside() -> ExternalServer {
    ExternalServer::stdio(env!("CARGO_BIN_EXE_greenroom-fake-cli"), Vec::<String>::new())
        .with_env("FAKE_CLI", "mcp-server")
}

#[tokio::test]
async fn servers_inside_and_outside_serve_the_same_turn() {
    let both = call("add", json!({ "a": 1, "b": 2 })).call("mcp__outside__shout", json!({ "text": "hello" }));
    let Some(stage) = Stage::new(Script::new().turn(both).turn(text("Both."))).await else { return };
    let builder = stage.builder().mcp_server(calc()).external_mcp_server("outside", outside());
    let session = start(builder.allow_server_tools("calc").allow_server_tools("outside")).await;
    answers(&session, "Both, please.", "Both.").await;

    let results = stage.last_request().tool_results();
    let results: Vec<_> = results.iter().map(|result| (result.text.as_str(), result.is_error)).collect();
    assert_eq!(results, [("3", false), ("HELLO", false)]);
    stop(&session).await;
}

// Guards: resumed
// Guards: the CLI exits, is killed, closes stdout, stops reading stdin
#[tokio::test]
async fn a_killed_cli_is_restarted_and_remembers() {
    let script = Script::new().turn(text("Noted.")).turn(call("hang", json!({}))).turn(text("It is blue."));
    let Some(stage) = Stage::new(script).await else { return };
    let (hang, mut hear) = hang();
    let session = stage.start(ToolServer::new("calc", "1").add_tool(hang)).await;
    let mut events = session.events();
    answers(&session, "My favourite colour is blue.", "Noted.").await;
    let session_id = session.session_id().expect("the CLI has named the conversation");
    let mut turn = session.prompt("Hang.").await.unwrap();
    hears(&mut hear, "called").await;

    let pid = reported_cli(&session).await.pid.unwrap();
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();

    hears(&mut hear, "cancelled").await;
    match in_time("the turn", turn.outcome()).await.unwrap() {
        Outcome::Interrupted {
            by: InterruptedBy::CliExit { cause: ExitCause::Exited { exit, .. } }, ..
        } => assert_eq!(exit, Exit::Signal(9)),
        other => panic!("{other:?}"),
    }
    let restarted = event(&mut events, "the restart", |event| match event {
        Event::CliRestarted { epoch, session_id } => Some((*epoch, session_id.clone())),
        _ => None,
    });
    assert_eq!(restarted.await, (2, Some(session_id.clone())));
    answers(&session, "Which colour is it?", "It is blue.").await;

    assert_eq!(session.session_id(), Some(session_id.clone()));
    let request = stage.last_request();
    assert_eq!(request.session_id(), Some(session_id.as_str()));
    let told = Value::from(request.messages()).to_string();
    assert!(told.contains("My favourite colour is blue.") && told.contains("Noted."), "{told}");
    assert_eq!(request.last_user_text(), Some("Which colour is it?"));
    stop(&session).await;
}

#[tokio::test]
async fn a_permission_is_asked_for_and_may_change_the_arguments() {
    let script = Script::new()
        .turn(call("add", json!({ "a": 5, "b": 3 })))
        .turn(call("add", json!({ "a": 6, "b": 6 })))
        .turn(text("Done."));
    let Some(stage) = Stage::new(script).await else { return };
    let (asked, mut hear) = mpsc::unbounded_channel();
    let builder = stage.builder().mcp_server(calc()).can_use_tool(move |request, _| {
        asked.send((request.tool_name.clone(), Value::from(request.input.clone()))).unwrap();
        async move {
            match request.input["a"].as_i64() {
                Some(5) => PermissionDecision::allow_with(json!({ "a": 50, "b": 30 })),
                _ => PermissionDecision::deny("not six"),
            }
        }
    });
    let session = start(builder).await;
    answers(&session, "Add.", "Done.").await;

    for input in [json!({ "a": 5, "b": 3 }), json!({ "a": 6, "b": 6 })] {
        assert_eq!(hear.recv().await, Some(("mcp__calc__add".to_owned(), input)));
    }
    let requests = stage.model.requests();
    let results: Vec<_> = requests.iter().flat_map(|request| request.tool_results()).collect();
    assert_eq!((results[0].text.as_str(), results[0].is_error), ("80", false));
    assert!(results[1].is_error && results[1].text.contains("not six"), "{results:?}");
    stop(&session).await;
}

#[tokio::test]
async fn a_denial_may_end_the_turn() {
    let script = Script::new().turn(call("add", json!({ "a": 5, "b": 3 }))).turn(text("Still here."));
    let Some(stage) = Stage::new(script).await else { return };
    let builder = stage.builder().mcp_server(calc());
    let session =
        start(builder.can_use_tool(async |_, _| PermissionDecision::deny_and_interrupt("that is enough")))
            .await;
    let ended = outcome(&session, "Add.").await;
    assert!(
        matches!(&ended, Outcome::Interrupted { by: InterruptedBy::User, result: Some(_), .. }),
        "{ended:?}"
    );
    answers(&session, "Are you there?", "Still here.").await;
    stop(&session).await;
}

#[tokio::test]
async fn hooks_see_a_call_before_and_after_and_may_forbid_it() {
    let script = Script::new()
        .turn(call("add", json!({ "a": 5, "b": 3 })))
        .turn(call("add", json!({ "a": 6, "b": 6 })))
        .turn(text("Done."));
    let Some(stage) = Stage::new(script).await else { return };
    let (saw, mut hear) = mpsc::unbounded_channel();
    let hook = |event: &str| {
        let saw = saw.clone();
        Hook::new(event, move |input, _| {
            let a = input.field("tool_input")["a"].as_i64();
            saw.send((input.event().to_owned(), a)).unwrap();
            let forbidden = input.event() == "PreToolUse" && a == Some(6);
            async move {
                if forbidden { HookOutput::permission("deny", "no sixes") } else { HookOutput::pass() }
            }
        })
        .matcher("mcp__calc__add")
    };
    let builder = stage.builder().mcp_server(calc()).allow_server_tools("calc");
    let session = start(builder.hook(hook("PreToolUse")).hook(hook("PostToolUse"))).await;
    answers(&session, "Add.", "Done.").await;
    stop(&session).await;
    drop(session);

    for expected in [("PreToolUse", Some(5)), ("PostToolUse", Some(5)), ("PreToolUse", Some(6))] {
        let (event, a) = in_time("a hook", hear.recv()).await.unwrap();
        assert_eq!((event.as_str(), a), expected);
    }
    let requests = stage.model.requests();
    let results: Vec<_> = requests.iter().flat_map(|request| request.tool_results()).collect();
    assert_eq!((results[0].text.as_str(), results[0].is_error), ("8", false));
    assert!(results[1].is_error && results[1].text.contains("no sixes"), "{results:?}");
}

#[tokio::test]
async fn an_interrupt_ends_a_turn_whose_model_does_not_answer() {
    let silent = ModelTurn::new().pause_before(Duration::MAX);
    let Some(stage) = Stage::new(Script::new().turn(silent).turn(text("Awake."))).await else { return };
    let session = stage.start(calc()).await;
    let mut turn = session.prompt("Hello?").await.unwrap();
    in_time("the request", stage.model.wait_for_requests(1)).await;
    in_time("the interrupt", session.interrupt()).await.unwrap();
    let ended = in_time("the turn", turn.outcome()).await.unwrap();
    assert!(
        matches!(&ended, Outcome::Interrupted { by: InterruptedBy::User, result: Some(_), .. }),
        "{ended:?}"
    );
    answers(&session, "And now?", "Awake.").await;
    stop(&session).await;
}

// Guards: isolated
#[tokio::test]
async fn a_call_in_flight_outlives_the_panics_of_another_tool() {
    let wait = ModelTurn::new().call("mcp__calc__wait", json!({}));
    let calls = (0..4).fold(wait, |turn, _| turn.call("mcp__calc__burst", json!({})));
    let Some(stage) = Stage::new(Script::new().turn(calls).turn(text("Done."))).await else { return };
    let (renewed, renewal) = tokio::sync::watch::channel(false);
    let wait = ToolDef::new("wait", "Wait for a fresh state", move |_: NoArgs, cx: ToolContext<()>| {
        let mut renewal = renewal.clone();
        async move {
            renewal.wait_for(|renewed| *renewed).await.unwrap();
            format!("waited in generation {}", cx.generation())
        }
    });
    let burst = ToolDef::new("burst", "Panic", async |_: NoArgs| -> () { panic!("boom") });
    let [wait, burst] = [wait, burst].map(|tool| loaded(tool).read_only_hint(true));
    let session = stage.start(ToolServer::new("calc", "1").add_tool(wait).add_tool(burst)).await;
    let mut events = session.events();
    let restarts = event(&mut events, "the fresh state", |event| match event {
        Event::ServerRestarted { generation, .. } => Some(*generation),
        _ => None,
    });
    let fresh = async {
        assert_eq!(restarts.await, 2);
        renewed.send(true).unwrap();
    };
    tokio::join!(answers(&session, "Wait and burst.", "Done."), fresh);
    let seen = stage.last_request().tool_results();
    assert_eq!(seen.len(), 5, "{seen:?}");
    let waited: Vec<_> = seen.iter().filter(|seen| !seen.is_error).map(|seen| &*seen.text).collect();
    assert_eq!(waited, ["waited in generation 1"]);
    stop(&session).await;
}

// Guards: a server's actor ends
#[tokio::test]
async fn a_server_that_restarts_serves_the_next_call_with_a_fresh_state() {
    let script = Script::new()
        .turn(call("next", json!({})))
        .turn(call("next", json!({})))
        .turn(text("Counted."))
        .turn(call("next", json!({})))
        .turn(text("Counted again."));
    let Some(stage) = Stage::new(script).await else { return };
    let next = ToolDef::new("next", "The next number", async |_: NoArgs, cx: ToolContext<AtomicU64>| {
        cx.state().fetch_add(1, Ordering::Relaxed)
    });
    let counter = ToolServer::new("calc", "1").add_tool(next.always_load(true)).state(|| AtomicU64::new(1));
    let session = stage.start(counter).await;
    let mut events = session.events();
    answers(&session, "Count.", "Counted.").await;
    assert_eq!(stage.last_result().text, "2");

    session.inject(Fault::PanicServer("calc".into()));
    let generation = event(&mut events, "the restart", |event| match event {
        Event::ServerRestarted { generation, .. } => Some(*generation),
        _ => None,
    });
    assert_eq!(generation.await, 2);
    answers(&session, "Count.", "Counted again.").await;
    assert_eq!(stage.last_result().text, "1");
    stop(&session).await;
}

#[tokio::test]
async fn a_control_request_of_ours_is_answered_or_refused() {
    let Some(stage) = Stage::new(Script::new().turn(text("Hello."))).await else { return };
    let session = stage.start(calc()).await;
    let model = json!({ "subtype": "set_model", "model": "claude-of-the-test" });
    in_time("the answer", session.requests().control(model)).await.unwrap();
    answers(&session, "Hello?", "Hello.").await;
    assert_eq!(stage.last_request().model(), Some("claude-of-the-test"));

    let nonsense = json!({ "subtype": "no_such_request" });
    let error = in_time("the refusal", session.requests().control(nonsense)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    stop(&session).await;
}

#[tokio::test]
async fn queued_prompts_are_answered_in_order() {
    let script = Script::new().turn(text("One.")).turn(text("Two.")).turn(text("Three."));
    let Some(stage) = Stage::new(script).await else { return };
    let session = stage.start(calc()).await;
    let mut turns = Vec::new();
    for prompt in ["first", "second", "third"] {
        turns.push(session.prompt(prompt).await.unwrap());
    }
    for (turn, expected) in turns.iter_mut().zip(["One.", "Two.", "Three."]) {
        assert_eq!(in_time("a turn", turn.outcome()).await.unwrap().text(), Some(expected));
    }
    let requests = stage.model.requests();
    let prompts: Vec<_> = requests.iter().filter_map(ModelRequest::last_user_text).collect();
    assert_eq!(prompts, ["first", "second", "third"]);
    stop(&session).await;
}

#[tokio::test]
async fn a_query_answers_and_is_over() {
    let Some(stage) = Stage::new(one_call()).await else { return };
    let builder = stage.builder().mcp_server(calc()).allow_server_tools("calc");
    let mut turn = in_time("the start", greenroom::query("What is 5 + 3?", builder)).await.unwrap();
    let mut said = Vec::new();
    while let Some(message) = in_time("a message", turn.next()).await {
        said.extend(message.text());
    }
    assert_eq!(said, ["5 + 3 is 8."]);
    assert_eq!(in_time("the end", turn.outcome()).await.unwrap().text(), Some("5 + 3 is 8."));
    assert_eq!(stage.last_result().text, "8");
}

#[tokio::test]
async fn a_stopped_session_is_resumed_by_its_id() {
    let script = Script::new().turn(text("Noted.")).turn(text("It is blue."));
    let Some(stage) = Stage::new(script).await else { return };
    let first = stage.start(calc()).await;
    answers(&first, "My favourite colour is blue.", "Noted.").await;
    let session_id = first.session_id().unwrap();
    stop(&first).await;

    let second = start(stage.builder().mcp_server(calc()).resume(&session_id)).await;
    answers(&second, "Which colour is it?", "It is blue.").await;
    assert_eq!(second.session_id(), Some(session_id));
    let told = Value::from(stage.last_request().messages()).to_string();
    assert!(told.contains("My favourite colour is blue.") && told.contains("Noted."), "{told}");
    stop(&second).await;
}

// Guards: `stop()`
#[tokio::test]
async fn stop_leaves_no_process_behind() {
    let shout = ModelTurn::new().call("mcp__outside__shout", json!({ "text": "a" }));
    let Some(stage) = Stage::new(Script::new().turn(shout).turn(text("A."))).await else { return };
    let builder = stage.builder().mcp_server(calc()).external_mcp_server("outside", outside());
    let session = start(builder.allow_server_tools("outside")).await;
    answers(&session, "Shout.", "A.").await;
    let pid = reported_cli(&session).await.pid.unwrap();
    let group = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    assert!(test_kill_process_group(group).is_ok(), "the CLI leads a group of its own");

    stop(&session).await;
    assert!(test_kill_process_group(group).is_err(), "a process of the group {pid} is left");
}

#[tokio::test]
async fn an_error_of_the_api_ends_the_turn_and_not_the_session() {
    let script = Script::new()
        .turn(ModelTurn::new().final_error(403, "permission_error", "not for you"))
        .turn(text("Now it works."));
    let Some(stage) = Stage::new(script).await else { return };
    let session = stage.start(calc()).await;
    match outcome(&session, "Hello?").await {
        Outcome::Failed { error, result: Some(result), .. } => {
            assert!(error.to_string().contains("not for you"), "{error}");
            assert_eq!((error.kind(), result.api_error_status), (ErrorKind::Unauthenticated, Some(403)));
        }
        other => panic!("{other:?}"),
    }
    answers(&session, "And now?", "Now it works.").await;
    let snapshot = session.snapshot().await.unwrap();
    assert_eq!((snapshot.counters.cli_restarts, snapshot.cli.unwrap().epoch), (0, 1));
    stop(&session).await;
}

// Guards: the API refuses a call of the turn, the budget is spent, or the context is full
#[tokio::test]
async fn failures_of_the_api_have_kinds() {
    let failures = [
        (429, "rate_limit_error", "slow down", ErrorKind::RateLimited),
        (529, "overloaded_error", "overloaded", ErrorKind::Overloaded),
        (500, "api_error", "broken", ErrorKind::Overloaded),
        (
            400,
            "invalid_request_error",
            "prompt is too long: 300000 tokens > 200000 maximum",
            ErrorKind::ContextFull,
        ),
        (
            400,
            "invalid_request_error",
            "Your credit balance is too low to access the API",
            ErrorKind::NoCredit,
        ),
    ];
    for (status, kind, text, expected) in failures {
        let script = Script::new().turn(ModelTurn::new().final_error(status, kind, text));
        let Some(stage) = Stage::new(script).await else { return };
        let session = start(stage.builder().env("CLAUDE_CODE_MAX_RETRIES", "0")).await;
        let Outcome::Failed { error, result, .. } = outcome(&session, "Hello?").await else {
            panic!("{status}")
        };
        assert_eq!(error.kind(), expected, "{error} {result:?}");
        stop(&session).await;
    }
}
