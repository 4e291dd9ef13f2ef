//! Turns that the CLI begins by itself. The test itself plays the CLI, as 2.1.330 was seen to do.

use crate::common::*;
use greenroom::report::InterruptedBy;
use greenroom::session::CliTurns;
use greenroom::transport::Exit;
use greenroom::{ErrorKind, Outcome, Session, Turn};
use greenroom_testkit::{CliEnd, ScriptedListener};
use serde_json::{Value, json};

fn state(end: &mut CliEnd, state: &str) {
    end.message(json!({
        "type": "system", "subtype": "session_state_changed", "state": state, "sdk_host_only": true,
    }));
}

fn lifecycle(end: &mut CliEnd, prompt: &Value, state: &str) {
    end.message(json!({ "type": "command_lifecycle", "command_uuid": prompt["uuid"], "state": state }));
}

fn says(end: &mut CliEnd, text: &str) {
    let content = json!([{ "type": "text", "text": text }]);
    end.message(json!({
        "type": "assistant", "parent_tool_use_id": null,
        "message": { "id": "msg_1", "type": "message", "role": "assistant", "content": content },
    }));
}

/// The result of the CLI's own run.
fn own_result(end: &mut CliEnd, text: &str) {
    end.message(json!({
        "type": "result", "subtype": "success", "is_error": false, "result": text, "num_turns": 1,
        "duration_ms": 0, "duration_api_ms": 0, "terminal_reason": "completed",
        "origin": { "kind": "task-notification" },
    }));
}

/// Answers a prompt as the CLI does.
async fn answers(end: &mut CliEnd, text: &str) -> Value {
    let prompt = within(SOON, end.expect("user")).await;
    state(end, "running");
    lifecycle(end, &prompt, "queued");
    lifecycle(end, &prompt, "started");
    end.begin_turn();
    says(end, text);
    end.finish_turn(&prompt, text);
    lifecycle(end, &prompt, "completed");
    prompt
}

/// A session whose first turn is over, and its CLI.
async fn after_a_turn() -> (Session, CliEnd, ScriptedListener, CliTurns) {
    let mut builder = Session::builder();
    let turns = builder.cli_turns();
    let (session, mut end, listener) = start_by_hand(builder).await;
    let mut first = session.prompt("Go.").await.unwrap();
    answers(&mut end, "It runs.").await;
    state(&mut end, "idle");
    assert_eq!(outcome(&mut first).await.text(), Some("It runs."));
    within(SOON, session.wait_idle()).await;
    (session, end, listener, turns)
}

async fn outcome(turn: &mut Turn) -> Outcome {
    within(SOON, turn.outcome()).await.unwrap()
}

async fn kinds(turn: &mut Turn) -> Vec<String> {
    let mut kinds = Vec::new();
    while let Some(message) = within(SOON, turn.next()).await {
        kinds.push(message.kind().to_owned());
    }
    kinds
}

async fn is_idle(session: &Session) -> bool {
    session.snapshot().await.unwrap().conversation.unwrap().idle
}

#[tokio::test(start_paused = true)]
async fn a_run_that_the_cli_begins_is_a_turn_with_its_messages_and_its_outcome() {
    let (session, mut end, _listener, mut turns) = after_a_turn().await;
    state(&mut end, "running");
    end.begin_turn();
    let mut own = within(SOON, turns.next()).await.unwrap();
    assert!(!is_idle(&session).await, "a run of the CLI's own is work");
    says(&mut end, "The agent is done.");
    own_result(&mut end, "The agent is done.");
    state(&mut end, "idle");
    assert_eq!(kinds(&mut own).await, ["system", "assistant", "result"]);
    assert_eq!(outcome(&mut own).await.text(), Some("The agent is done."));
    within(SOON, session.wait_idle()).await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_prompt_waits_for_the_end_of_the_clis_own_run() {
    let (session, mut end, _listener, mut turns) = after_a_turn().await;
    state(&mut end, "running");
    end.begin_turn();
    let mut own = within(SOON, turns.next()).await.unwrap();
    let mut mine = session.prompt("Mine.").await.unwrap();
    says(&mut end, "Of its own.");
    assert!(settled(&mut end).await.is_empty(), "the prompt would join the run");
    own_result(&mut end, "Of its own.");
    answers(&mut end, "Yours.").await;
    state(&mut end, "idle");
    assert_eq!(outcome(&mut own).await.text(), Some("Of its own."));
    assert_eq!(kinds(&mut mine).await.iter().filter(|kind| *kind == "assistant").count(), 1);
    assert_eq!(outcome(&mut mine).await.text(), Some("Yours."));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_begins_as_a_prompt_is_written_comes_before_it() {
    let (session, mut end, _listener, mut turns) = after_a_turn().await;
    let mut mine = session.prompt("Mine.").await.unwrap();
    let prompt = within(SOON, end.expect("user")).await;
    state(&mut end, "running");
    end.begin_turn();
    lifecycle(&mut end, &prompt, "queued");
    says(&mut end, "Of its own.");
    own_result(&mut end, "Of its own.");
    lifecycle(&mut end, &prompt, "started");
    end.begin_turn();
    says(&mut end, "Yours.");
    end.finish_turn(&prompt, "Yours.");
    let mut own = within(SOON, turns.next()).await.unwrap();
    assert_eq!(kinds(&mut own).await, ["system", "assistant", "result"]);
    assert_eq!(outcome(&mut own).await.text(), Some("Of its own."));
    let kinds = kinds(&mut mine).await;
    assert_eq!(kinds, ["command_lifecycle", "command_lifecycle", "system", "assistant", "result"]);
    assert_eq!(outcome(&mut mine).await.text(), Some("Yours."));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_joins_the_clis_own_run_has_its_rest_and_its_result() {
    let (session, mut end, _listener, mut turns) = after_a_turn().await;
    let mut mine = session.prompt("Mine.").await.unwrap();
    let prompt = within(SOON, end.expect("user")).await;
    state(&mut end, "running");
    end.begin_turn();
    says(&mut end, "Of its own.");
    lifecycle(&mut end, &prompt, "queued");
    lifecycle(&mut end, &prompt, "started");
    says(&mut end, "Of both.");
    end.finish_turn(&prompt, "Of both.");
    let mut own = within(SOON, turns.next()).await.unwrap();
    assert_eq!(kinds(&mut own).await, ["system", "assistant", "command_lifecycle"]);
    let Outcome::Joined { prompt_uuid } = outcome(&mut own).await else { panic!() };
    assert_eq!(prompt_uuid, mine.prompt_uuid());
    assert_eq!(kinds(&mut mine).await, ["command_lifecycle", "assistant", "result"]);
    assert_eq!(outcome(&mut mine).await.text(), Some("Of both."));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn the_init_of_a_prompt_that_says_late_that_it_has_started_is_the_prompts() {
    let (session, mut end, _listener, mut turns) = after_a_turn().await;
    let mut mine = session.prompt("Mine.").await.unwrap();
    let prompt = within(SOON, end.expect("user")).await;
    end.begin_turn();
    lifecycle(&mut end, &prompt, "started");
    end.finish_turn(&prompt, "Yours.");
    assert_eq!(kinds(&mut mine).await, ["system", "command_lifecycle", "result"]);
    assert!(turns.try_next().is_none());
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_of_the_clis_own_has_the_limits_of_a_turn() {
    let mut builder = Session::builder()
        .configure(|options| options.timeouts.turn = Some(std::time::Duration::from_secs(60)));
    let mut turns = builder.cli_turns();
    let (session, mut end, _listener) = start_by_hand(builder).await;
    state(&mut end, "running");
    end.begin_turn();
    let mut own = within(SOON, turns.next()).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(61)).await;
    let interrupt = end.expect_request("interrupt").await;
    end.answer(&interrupt, json!({ "still_queued": [] }));
    end.fail_turn(&json!({}), "aborted_streaming", "interrupted");
    let Outcome::Interrupted { by: InterruptedBy::Limit { limit, .. }, .. } = outcome(&mut own).await else {
        panic!()
    };
    assert_eq!(limit, "turn");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancel_of_the_clis_own_run_interrupts_it_and_no_prompt() {
    let (session, mut end, _listener, mut turns) = after_a_turn().await;
    state(&mut end, "running");
    end.begin_turn();
    let mut own = within(SOON, turns.next()).await.unwrap();
    let mut mine = session.prompt("Mine.").await.unwrap();
    let cancelled = async {
        own.cancel().await;
        outcome(&mut own).await
    };
    let played = async {
        let interrupt = end.expect_request("interrupt").await;
        end.answer(&interrupt, json!({ "still_queued": [] }));
        own_result(&mut end, "cut");
        answers(&mut end, "Yours.").await;
    };
    let (own, ()) = tokio::join!(cancelled, played);
    assert!(matches!(own, Outcome::Completed { .. }), "{own:?}");
    assert_eq!(outcome(&mut mine).await.text(), Some("Yours."));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_the_clis_own_run() {
    let (session, mut end, _listener, mut turns) = after_a_turn().await;
    state(&mut end, "running");
    end.begin_turn();
    let mut own = within(SOON, turns.next()).await.unwrap();
    let stopped = async { session.stop().await.unwrap() };
    let played = async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        own_result(&mut end, "Of its own.");
        end.run_out().await;
    };
    tokio::join!(stopped, played);
    assert_eq!(outcome(&mut own).await.text(), Some("Of its own."));
    assert!(within(SOON, turns.next()).await.is_none(), "the session has ended");
}

#[tokio::test(start_paused = true)]
async fn a_cli_that_dies_in_its_own_run_interrupts_it() {
    let (session, mut end, mut listener, mut turns) = after_a_turn().await;
    state(&mut end, "running");
    end.begin_turn();
    let mut own = within(SOON, turns.next()).await.unwrap();
    let mut mine = session.prompt("Mine.").await.unwrap();
    end.exit(Exit::Code(1));
    let by = match outcome(&mut own).await {
        Outcome::Interrupted { by, .. } => by,
        other => panic!("{other:?}"),
    };
    assert!(matches!(by, InterruptedBy::CliExit { .. }), "{by:?}");
    let mut end = within(SOON, listener.accept()).await;
    end.handshake().await;
    answers(&mut end, "Yours.").await;
    assert_eq!(outcome(&mut mine).await.text(), Some("Yours."));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_without_a_result_ends_when_the_cli_is_idle() {
    let (session, mut end, _listener, mut turns) = after_a_turn().await;
    state(&mut end, "running");
    end.begin_turn();
    let mut own = within(SOON, turns.next()).await.unwrap();
    state(&mut end, "idle");
    let Outcome::Failed { error, .. } = outcome(&mut own).await else { panic!() };
    assert_eq!(error.kind(), ErrorKind::Malformed);
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_nobody_reads_goes_on_and_is_told_to_subscribers() {
    let (session, mut end, _listener) = start_by_hand(Session::builder()).await;
    state(&mut end, "running");
    let mut messages = session.messages();
    end.begin_turn();
    says(&mut end, "Of its own.");
    own_result(&mut end, "Of its own.");
    state(&mut end, "idle");
    for _ in 0..3 {
        within(SOON, messages.next()).await.unwrap();
    }
    within(SOON, session.wait_idle()).await;
    stop(session, end).await;
}
