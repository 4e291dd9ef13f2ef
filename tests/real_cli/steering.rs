//! Messages that are said into a running turn of the real `claude` CLI.

use std::sync::Arc;
use std::time::Duration;

use crate::snapshot::reported_cli;
use crate::stage::*;
use greenroom::hook::UserPromptSubmitOutput;
use greenroom::message::CommandState;
use greenroom::report::InterruptedBy;
use greenroom::session::{Steered, Steering};
use greenroom::{Event, Hook, Message, NoArgs, Outcome, Prompt, Session, ToolDef, ToolServer, Turn, hook};
use greenroom_testkit::Script;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

/// A tool that says when it is called, and returns when it may.
fn waiting() -> (ToolServer, mpsc::UnboundedReceiver<&'static str>, Arc<Notify>) {
    let (said, hear) = mpsc::unbounded_channel();
    let go = Arc::new(Notify::new());
    let going = go.clone();
    let wait = ToolDef::new("wait", "Wait for a word", move |_: NoArgs| {
        let (said, going) = (said.clone(), going.clone());
        async move {
            said.send("called").unwrap();
            going.notified().await;
            "waited"
        }
    });
    (ToolServer::new("calc", "1.0.0").add_tool(loaded(wait)), hear, go)
}

async fn prompt(session: &Session, text: &str) -> Turn {
    in_time("accepting the prompt", session.prompt(text)).await.unwrap()
}

async fn steer(session: &Session, text: &str) -> Steering {
    in_time("accepting the message", session.steer(text)).await.unwrap()
}

async fn fate(steering: Steering) -> Steered {
    in_time("what becomes of the message", steering.outcome()).await.unwrap()
}

async fn outcome(turn: &mut Turn) -> Outcome {
    in_time("the turn", turn.outcome()).await.unwrap()
}

/// Reads the turn until the CLI has queued the message.
async fn queued(turn: &mut Turn, steering: &Steering) {
    in_time("the message in the queue of the CLI", async {
        while let Some(message) = turn.next().await {
            if let Message::CommandLifecycle(lifecycle) = &message
                && (&*lifecycle.command_uuid, &lifecycle.state)
                    == (steering.prompt_uuid(), &CommandState::Queued)
            {
                return;
            }
        }
        panic!("the turn has ended");
    })
    .await;
}

/// Number of times that each request to the model contains this text.
fn told(stage: &Stage, text: &str) -> Vec<usize> {
    let count = |messages: &[Value]| Value::from(messages).to_string().matches(text).count();
    stage.model.requests().iter().map(|request| count(request.messages())).collect()
}

// Guards: ended-once
#[tokio::test(flavor = "multi_thread")]
async fn a_message_into_a_running_tool_call_reaches_the_models_next_request() {
    let script = Script::new().turn(call("wait", json!({}))).turn(text("Done.")).turn(text("Still here."));
    let Some(stage) = Stage::new(script).await else { return };
    let (server, mut hear, go) = waiting();
    let session = stage.start(server).await;
    let mut turn = prompt(&session, "Work.").await;
    hears(&mut hear, "called").await;
    let first = steer(&session, "Use the blue one.").await;
    let second = steer(&session, "And hurry.").await;
    go.notify_one();
    for steering in [first, second] {
        let steered = fate(steering).await;
        assert!(
            matches!(&steered, Steered::Joined { prompt_uuid } if prompt_uuid == turn.prompt_uuid()),
            "{steered:?}"
        );
    }
    let ended = outcome(&mut turn).await;
    assert_eq!(ended.text(), Some("Done."));
    assert_eq!(ended.result().unwrap().user_message_uuids().len(), 3);
    for message in ["Use the blue one.", "And hurry."] {
        assert_eq!(told(&stage, message), [0, 1]);
    }
    answers(&session, "Are you there?", "Still here.").await;
    stop(&session).await;
}

// Guards: a message into the running turn comes too late for it
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_comes_too_late_is_a_turn_of_its_own_before_the_queue() {
    let late = text("Done.").pause_before(Duration::from_secs(1));
    let script = Script::new().turn(late).turn(text("Blue.")).turn(text("Last."));
    let Some(stage) = Stage::new(script).await else { return };
    let session = stage.start(calc()).await;
    let mut turn = prompt(&session, "Work.").await;
    let mut waiting = prompt(&session, "And then?").await;
    let first = steer(&session, "Use the blue one.").await;
    let second = steer(&session, "And hurry.").await;
    queued(&mut turn, &second).await;
    assert_eq!(outcome(&mut turn).await.text(), Some("Done."));
    let Steered::Turn(mut own) = fate(first).await else { panic!("it joined no turn") };
    let steered = fate(second).await;
    assert!(
        matches!(&steered, Steered::Joined { prompt_uuid } if prompt_uuid == own.prompt_uuid()),
        "{steered:?}"
    );
    assert_eq!(outcome(&mut own).await.text(), Some("Blue."));
    assert_eq!(outcome(&mut waiting).await.text(), Some("Last."));
    assert_eq!(told(&stage, "Use the blue one."), [0, 1, 1]);
    stop(&session).await;
}

// Guards: a hook blocks a message into the running turn, or it is taken back
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_leaves_a_message_or_brings_it_back() {
    let script = Script::new()
        .turn(call("wait", json!({})))
        .turn(text("Blue."))
        .turn(call("wait", json!({})))
        .turn(text("Still here."));
    let Some(stage) = Stage::new(script).await else { return };
    let (server, mut hear, _go) = waiting();
    let session = stage.start(server).await;

    let mut turn = prompt(&session, "Work.").await;
    hears(&mut hear, "called").await;
    let steering = steer(&session, "Use the blue one.").await;
    queued(&mut turn, &steering).await;
    let receipt = in_time("the interrupt", session.interrupt()).await.unwrap();
    assert_eq!(receipt.still_queued, [steering.prompt_uuid()]);
    assert!(matches!(outcome(&mut turn).await, Outcome::Interrupted { by: InterruptedBy::User, .. }));
    let Steered::Turn(mut own) = fate(steering).await else { panic!("no turn") };
    assert_eq!(outcome(&mut own).await.text(), Some("Blue."));

    let mut turn = prompt(&session, "Work again.").await;
    hears(&mut hear, "called").await;
    let steering = steer(&session, "Use the red one.").await;
    queued(&mut turn, &steering).await;
    let receipt = in_time("the interrupt", session.interrupt_cancel_queued()).await.unwrap();
    assert_eq!(receipt.cancelled, [steering.prompt_uuid()]);
    let steered = fate(steering).await;
    assert!(matches!(&steered, Steered::NotTaken { prompt } if *prompt == Prompt::text("Use the red one.")));
    assert!(matches!(outcome(&mut turn).await, Outcome::Interrupted { by: InterruptedBy::User, .. }));
    answers(&session, "Are you there?", "Still here.").await;
    assert_eq!(told(&stage, "Use the red one.").iter().sum::<usize>(), 0);
    stop(&session).await;
}

// Guards: a hook blocks a message into the running turn, or it is taken back
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_a_hook_blocks_comes_back_and_the_model_does_not_read_it() {
    let script = Script::new().turn(call("wait", json!({}))).turn(text("Done."));
    let Some(stage) = Stage::new(script).await else { return };
    let (server, mut hear, go) = waiting();
    let blocks = Hook::on(hook::UserPromptSubmit, async |input, _cx| match input.prompt.contains("blue") {
        true => UserPromptSubmitOutput::block("no colours"),
        false => UserPromptSubmitOutput::pass(),
    });
    let session = start(stage.builder().mcp_server(server).allow_server_tools("calc").hook(blocks)).await;
    let mut turn = prompt(&session, "Work.").await;
    hears(&mut hear, "called").await;
    let steering = steer(&session, "Use the blue one.").await;
    go.notify_one();
    assert_eq!(outcome(&mut turn).await.text(), Some("Done."));
    let steered = fate(steering).await;
    assert!(matches!(steered, Steered::NotTaken { .. }), "{steered:?}");
    assert_eq!(told(&stage, "Use the blue one."), [0, 0]);
    stop(&session).await;
}

async fn kill(session: &Session) {
    let snapshot = in_time("the snapshot", session.snapshot()).await.unwrap();
    let pid = snapshot.cli.unwrap().pid.unwrap();
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();
}

// Guards: the CLI dies with a message that it was given for the running turn
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_the_model_has_not_read_is_told_once_after_a_kill() {
    let script = Script::new().turn(text("Hello.")).turn(call("wait", json!({}))).turn(text("Blue."));
    let Some(stage) = Stage::new(script).await else { return };
    let (server, mut hear, _go) = waiting();
    let session = stage.start(server).await;
    answers(&session, "Hello?", "Hello.").await;
    let mut events = session.events();
    let mut turn = prompt(&session, "Work.").await;
    hears(&mut hear, "called").await;
    let steering = steer(&session, "Use the blue one.").await;
    queued(&mut turn, &steering).await;
    kill(&session).await;
    event(&mut events, "the next CLI", |event| matches!(event, Event::CliReady { .. }).then_some(())).await;
    let ended = outcome(&mut turn).await;
    assert!(matches!(ended, Outcome::Interrupted { by: InterruptedBy::CliExit { .. }, .. }), "{ended:?}");
    let Steered::Turn(mut own) = fate(steering).await else { panic!("no turn") };
    assert_eq!(outcome(&mut own).await.text(), Some("Blue."));
    assert_eq!(told(&stage, "Use the blue one."), [0, 0, 1]);
    stop(&session).await;
}

// Guards: the CLI dies with a message that it was given for the running turn
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_the_model_has_read_is_not_told_again_after_a_kill() {
    let wait = || call("wait", json!({}));
    let script = Script::new().turn(text("Hello.")).turn(wait()).turn(wait()).turn(text("Still here."));
    let Some(stage) = Stage::new(script).await else { return };
    let (server, mut hear, go) = waiting();
    let session = stage.start(server).await;
    answers(&session, "Hello?", "Hello.").await;
    let mut turn = prompt(&session, "Work.").await;
    hears(&mut hear, "called").await;
    let steering = steer(&session, "Use the blue one.").await;
    go.notify_one();
    hears(&mut hear, "called").await;
    kill(&session).await;
    let steered = fate(steering).await;
    assert!(matches!(steered, Steered::Joined { .. } | Steered::Unknown { .. }), "{steered:?}");
    let ended = outcome(&mut turn).await;
    assert!(matches!(ended, Outcome::Interrupted { by: InterruptedBy::CliExit { .. }, .. }), "{ended:?}");
    answers(&session, "Are you there?", "Still here.").await;
    let told = told(&stage, "Use the blue one.");
    assert!(told[2] == 1 && told[3] <= 1, "{told:?}");
    stop(&session).await;
}

// Guards: a turn is cancelled: it waits, runs, has just ended, or its CLI dies or hangs
#[tokio::test]
async fn a_cancelled_turn_ends_alone_and_the_next_one_is_answered() {
    let script =
        (0..10).fold(Script::new().turn(call("hang", json!({}))), |script, _| script.turn(text("Fine.")));
    let Some(stage) = Stage::new(script).await else { return };
    let (hang, mut hear) = hang();
    let session = stage.start(ToolServer::new("calc", "1").add_tool(hang)).await;
    let mut running = session.prompt("Hang.").await.unwrap();
    let mut waiting = session.prompt("Wait.").await.unwrap();
    let mut next = session.prompt("Are you there?").await.unwrap();
    hears(&mut hear, "called").await;
    in_time("the cancel", waiting.cancel()).await;
    in_time("the cancel", running.cancel()).await;
    hears(&mut hear, "cancelled").await;
    let ended = in_time("the turn", running.outcome()).await.unwrap();
    assert!(matches!(&ended, Outcome::Interrupted { by: InterruptedBy::User, .. }), "{ended:?}");
    let ended = in_time("the turn", waiting.outcome()).await.unwrap();
    assert!(matches!(&ended, Outcome::NotStarted { .. }), "{ended:?}");
    let ended = in_time("the turn", next.outcome()).await.unwrap();
    assert_eq!(ended.text(), Some("Fine."), "{ended:?}");

    // Prompts that the CLI was just given: it may have begun with them or not.
    for _ in 0..4 {
        let mut turn = session.prompt("Never mind.").await.unwrap();
        let mut next = session.prompt("And now?").await.unwrap();
        in_time("the cancel", turn.cancel()).await;
        let ended = in_time("the turn", turn.outcome()).await.unwrap();
        // The model answers at once, so the turn may also end before the CLI has read the cancel.
        let is_fine = ended.text() == Some("Fine.");
        assert!(
            is_fine
                || matches!(
                    &ended,
                    Outcome::NotStarted { .. } | Outcome::Interrupted { by: InterruptedBy::User, .. }
                ),
            "{ended:?}"
        );
        let ended = in_time("the turn", next.outcome()).await.unwrap();
        assert_eq!(ended.text(), Some("Fine."), "{ended:?}");
    }
    assert_eq!(reported_cli(&session).await.epoch, 1, "the CLI answered every cancel");
    stop(&session).await;
}
