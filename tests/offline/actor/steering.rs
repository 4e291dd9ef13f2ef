//! Messages that are said into a running turn: which turn they join or become, and what becomes of them when
//! something ends. The test itself plays the CLI, in the order of frames that CLI 2.1.330 was seen to write.

use std::time::Duration;

use crate::common::*;
use greenroom::options::TurnRecovery;
use greenroom::report::InterruptedBy;
use greenroom::session::{Steered, Steering};
use greenroom::transport::Exit;
use greenroom::{ErrorKind, Outcome, Prompt, Session, SessionBuilder, Turn};
use greenroom_testkit::{CliEnd, Fault, ScriptedListener};
use serde_json::{Value, json};

fn builder() -> SessionBuilder {
    Session::builder().configure(|options| options.restarts.cli.intensity = 100)
}

fn lifecycle(end: &mut CliEnd, prompt: &Value, state: &str) {
    end.message(json!({ "type": "command_lifecycle", "command_uuid": prompt["uuid"], "state": state }));
}

fn lifecycles(end: &mut CliEnd, prompt: &Value, states: &[&str]) {
    states.iter().for_each(|state| lifecycle(end, prompt, state));
}

fn state(end: &mut CliEnd, state: &str) {
    end.message(json!({
        "type": "system", "subtype": "session_state_changed", "state": state, "sdk_host_only": true,
    }));
}

fn says(end: &mut CliEnd, text: &str) {
    let content = json!([{ "type": "text", "text": text }]);
    end.message(json!({
        "type": "assistant", "parent_tool_use_id": null, "message": { "role": "assistant", "content": content },
    }));
}

fn tool_result(end: &mut CliEnd) {
    let content = json!([{ "type": "tool_result", "tool_use_id": "toolu_1", "content": "done" }]);
    end.message(json!({
        "type": "user", "parent_tool_use_id": null, "message": { "role": "user", "content": content },
    }));
}

fn result(end: &mut CliEnd, prompts: &[&Value], text: &str) {
    let uuids: Vec<_> = prompts.iter().map(|prompt| &prompt["uuid"]).collect();
    end.message(json!({
        "type": "result", "subtype": "success", "is_error": false, "result": text, "num_turns": 1,
        "duration_ms": 0, "duration_api_ms": 0, "user_message_uuids": uuids,
    }));
}

async fn said(end: &mut CliEnd) -> Value {
    within(SOON, end.expect("user")).await
}

async fn outcome(turn: &mut Turn) -> Outcome {
    within(SOON, turn.outcome()).await.unwrap()
}

async fn fate(steering: Steering) -> Steered {
    within(SOON, steering.outcome()).await.unwrap()
}

async fn own_turn(steering: Steering) -> Turn {
    match fate(steering).await {
        Steered::Turn(turn) => turn,
        other => panic!("no turn: {other:?}"),
    }
}

fn content(prompt: &Value) -> &str {
    prompt["message"]["content"][0]["text"].as_str().unwrap()
}

/// A session whose CLI works at a turn.
async fn working(builder: SessionBuilder) -> (Session, CliEnd, ScriptedListener, Turn, Value) {
    let (session, mut end, listener) = start_by_hand(builder).await;
    let turn = session.prompt("Work.").await.unwrap();
    let prompt = said(&mut end).await;
    state(&mut end, "running");
    lifecycles(&mut end, &prompt, &["queued", "started"]);
    end.begin_turn();
    settled(&mut end).await;
    (session, end, listener, turn, prompt)
}

async fn steer(session: &Session, end: &mut CliEnd, text: &str) -> (Steering, Value) {
    let steering = session.steer(text).await.unwrap();
    let message = said(end).await;
    assert_eq!((content(&message), &message["uuid"]), (text, &json!(steering.prompt_uuid())));
    lifecycle(end, &message, "queued");
    (steering, message)
}

/// Plays another turn, which fails if the first left anything behind.
async fn exchange(session: &Session, end: &mut CliEnd, text: &str) {
    let mut turn = session.prompt(text).await.unwrap();
    let prompt = said(end).await;
    assert_eq!(content(&prompt), text);
    answer(end, &prompt, text);
    assert_eq!(outcome(&mut turn).await.text(), Some(text));
}

fn answer(end: &mut CliEnd, prompt: &Value, text: &str) {
    state(end, "running");
    lifecycles(end, prompt, &["queued", "started"]);
    end.begin_turn();
    result(end, &[prompt], text);
    lifecycle(end, prompt, "completed");
    state(end, "idle");
}

#[tokio::test(start_paused = true)]
async fn a_message_joins_the_running_turn_at_the_result_of_a_tool() {
    let (session, mut end, _listener, mut turn, prompt) = working(builder()).await;
    let mut waiting = session.prompt("And then?").await.unwrap();
    let (first, one) = steer(&session, &mut end, "Faster.").await;
    let (second, two) = steer(&session, &mut end, "Much faster.").await;
    tool_result(&mut end);
    lifecycle(&mut end, &one, "started");
    lifecycle(&mut end, &two, "started");
    says(&mut end, "I hurry.");
    for steering in [first, second] {
        let steered = fate(steering).await;
        assert!(
            matches!(&steered, Steered::Joined { prompt_uuid } if prompt_uuid == turn.prompt_uuid()),
            "{steered:?}"
        );
    }
    assert_eq!(session.snapshot().await.unwrap().conversation.unwrap().steering, 0);
    lifecycle(&mut end, &one, "completed");
    lifecycle(&mut end, &two, "completed");
    assert!(settled(&mut end).await.is_empty(), "the queue waits for the end of the turn");
    result(&mut end, &[&prompt, &one, &two], "done");
    lifecycle(&mut end, &prompt, "completed");
    state(&mut end, "idle");
    assert_eq!(outcome(&mut turn).await.text(), Some("done"));
    let next = said(&mut end).await;
    assert_eq!(content(&next), "And then?");
    answer(&mut end, &next, "nothing");
    assert_eq!(outcome(&mut waiting).await.text(), Some("nothing"));
    within(SOON, session.wait_idle()).await;
    stop(session, end).await;
}

// Guards: a message into the running turn comes too late for it
#[tokio::test(start_paused = true)]
async fn a_message_that_comes_too_late_becomes_a_turn_before_the_queue() {
    let (session, mut end, _listener, mut turn, prompt) = working(builder()).await;
    let mut waiting = session.prompt("And then?").await.unwrap();
    let (first, one) = steer(&session, &mut end, "Faster.").await;
    let (second, two) = steer(&session, &mut end, "Much faster.").await;
    result(&mut end, &[&prompt], "done");
    lifecycle(&mut end, &prompt, "completed");
    assert_eq!(outcome(&mut turn).await.text(), Some("done"));
    assert!(settled(&mut end).await.is_empty(), "one prompt at a time");
    // The CLI makes one turn of both.
    lifecycle(&mut end, &one, "started");
    lifecycle(&mut end, &two, "started");
    end.begin_turn();
    let mut own = own_turn(first).await;
    assert_eq!(own.prompt_uuid(), one["uuid"].as_str().unwrap());
    says(&mut end, "I hurry.");
    let steered = fate(second).await;
    assert!(matches!(&steered, Steered::Joined { prompt_uuid } if prompt_uuid == own.prompt_uuid()));
    result(&mut end, &[&one, &two], "faster");
    lifecycle(&mut end, &one, "completed");
    lifecycle(&mut end, &two, "completed");
    state(&mut end, "idle");
    let mut texts = Vec::new();
    while let Some(message) = within(SOON, own.next()).await {
        texts.extend(message.text());
    }
    assert_eq!(texts, ["I hurry."]);
    assert_eq!(outcome(&mut own).await.text(), Some("faster"));
    let next = said(&mut end).await;
    answer(&mut end, &next, "nothing");
    assert_eq!(outcome(&mut waiting).await.text(), Some("nothing"));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn the_message_that_the_cli_begins_with_is_the_one_that_runs() {
    let (session, mut end, _listener, mut turn, prompt) = working(builder()).await;
    let (later, late) = steer(&session, &mut end, "Later.").await;
    let (sooner, soon) = steer(&session, &mut end, "Soon.").await;
    result(&mut end, &[&prompt], "done");
    lifecycle(&mut end, &prompt, "completed");
    for (steering, message, text) in [(sooner, soon, "soon"), (later, late, "late")] {
        lifecycle(&mut end, &message, "started");
        end.begin_turn();
        result(&mut end, &[&message], text);
        lifecycle(&mut end, &message, "completed");
        assert_eq!(outcome(&mut own_turn(steering).await).await.text(), Some(text));
    }
    state(&mut end, "idle");
    assert_eq!(outcome(&mut turn).await.text(), Some("done"));
    exchange(&session, &mut end, "next").await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_that_the_cli_reads_behind_its_idle_is_a_turn_all_the_same() {
    let (session, mut end, _listener, mut turn, prompt) = working(builder()).await;
    let steering = session.steer("Faster.").await.unwrap();
    let message = said(&mut end).await;
    result(&mut end, &[&prompt], "done");
    lifecycle(&mut end, &prompt, "completed");
    state(&mut end, "idle");
    assert_eq!(outcome(&mut turn).await.text(), Some("done"));
    settled(&mut end).await;
    answer(&mut end, &message, "faster");
    assert_eq!(outcome(&mut own_turn(steering).await).await.text(), Some("faster"));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_turn_and_without_lifecycles_it_is_an_ordinary_prompt() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let mut alone = own_turn(session.steer("Alone.").await.unwrap()).await;
    let prompt = said(&mut end).await;
    end.begin_turn();
    settled(&mut end).await;
    // This CLI has reported no lifecycle.
    let mut second = own_turn(session.steer("Into it.").await.unwrap()).await;
    assert!(settled(&mut end).await.is_empty());
    result(&mut end, &[&prompt], "one");
    let prompt = said(&mut end).await;
    // Before the turn begins nobody knows whether this CLI reports lifecycles.
    let third = session.steer("At once.").await.unwrap();
    assert!(settled(&mut end).await.is_empty());
    end.begin_turn();
    let mut third = own_turn(third).await;
    result(&mut end, &[&prompt], "two");
    let prompt = said(&mut end).await;
    assert_eq!(content(&prompt), "At once.");
    result(&mut end, &[&prompt], "three");
    for (turn, text) in [(&mut alone, "one"), (&mut second, "two"), (&mut third, "three")] {
        assert_eq!(outcome(turn).await.text(), Some(text));
    }
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_to_a_new_turn_is_written_once_the_cli_tells_lifecycles() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let mut turn = session.prompt("Work.").await.unwrap();
    let prompt = said(&mut end).await;
    let steering = session.steer("Faster.").await.unwrap();
    assert!(settled(&mut end).await.is_empty());
    lifecycle(&mut end, &prompt, "queued");
    let message = said(&mut end).await;
    lifecycle(&mut end, &prompt, "started");
    lifecycle(&mut end, &message, "queued");
    lifecycle(&mut end, &message, "started");
    result(&mut end, &[&prompt, &message], "done");
    assert_eq!(outcome(&mut turn).await.text(), Some("done"));
    assert!(matches!(fate(steering).await, Steered::Joined { .. }));
    stop(session, end).await;
}

// Guards: a hook blocks a message into the running turn, or it is taken back
#[tokio::test(start_paused = true)]
async fn a_message_that_a_hook_blocks_comes_back() {
    let (session, mut end, _listener, mut turn, prompt) = working(builder()).await;
    let (steering, message) = steer(&session, &mut end, "Faster.").await;
    tool_result(&mut end);
    lifecycles(&mut end, &message, &["started", "completed"]);
    says(&mut end, "I do not hurry.");
    result(&mut end, &[&prompt], "done");
    assert_eq!(outcome(&mut turn).await.text(), Some("done"));
    assert!(
        matches!(fate(steering).await, Steered::NotTaken { prompt } if prompt == Prompt::text("Faster."))
    );
    exchange(&session, &mut end, "next").await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_taken_back_comes_back() {
    let (session, mut end, _listener, mut turn, prompt) = working(builder()).await;
    let (first, one) = steer(&session, &mut end, "Faster.").await;
    let (second, two) = steer(&session, &mut end, "Much faster.").await;
    let (cancelled, ()) = within(SOON, async {
        tokio::join!(session.cancel_async_message(first.prompt_uuid()), async {
            let request = end.expect_request("cancel_async_message").await;
            lifecycle(&mut end, &one, "cancelled");
            end.answer(&request, json!({ "cancelled": true, "message_uuid": one["uuid"] }));
        })
    })
    .await;
    assert!(cancelled.unwrap().cancelled);
    assert!(matches!(fate(first).await, Steered::NotTaken { .. }));
    let (receipt, ()) = within(SOON, async {
        tokio::join!(session.interrupt_cancel_queued(), async {
            let request = end.expect_request("interrupt").await;
            lifecycle(&mut end, &two, "cancelled");
            end.answer(&request, json!({ "still_queued": [], "cancelled": [two["uuid"]] }));
        })
    })
    .await;
    assert_eq!(receipt.unwrap().cancelled, [second.prompt_uuid()]);
    end.fail_turn(&prompt, "aborted_tools", "interrupted");
    lifecycle(&mut end, &prompt, "cancelled");
    state(&mut end, "idle");
    assert!(matches!(fate(second).await, Steered::NotTaken { .. }));
    assert!(matches!(outcome(&mut turn).await, Outcome::Interrupted { by: InterruptedBy::User, .. }));
    exchange(&session, &mut end, "next").await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_names_the_message_that_is_not_written_yet() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let _turn = session.prompt("Work.").await.unwrap();
    said(&mut end).await;
    let steering = session.steer("Faster.").await.unwrap();
    let (receipt, ()) = within(SOON, async {
        tokio::join!(session.interrupt_cancel_queued(), async {
            let request = end.expect_request("interrupt").await;
            end.answer(&request, json!({ "still_queued": [], "cancelled": [] }));
        })
    })
    .await;
    assert_eq!(receipt.unwrap().cancelled, [steering.prompt_uuid()]);
    assert!(matches!(fate(steering).await, Steered::NotTaken { .. }));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_makes_a_turn_of_a_message_that_waits() {
    let (session, mut end, _listener, mut turn, prompt) = working(builder()).await;
    let (steering, message) = steer(&session, &mut end, "Faster.").await;
    let (receipt, ()) = within(SOON, async {
        tokio::join!(session.interrupt(), async {
            let request = end.expect_request("interrupt").await;
            end.answer(&request, json!({ "still_queued": [message["uuid"]] }));
        })
    })
    .await;
    assert_eq!(receipt.unwrap().still_queued, [steering.prompt_uuid()]);
    end.fail_turn(&prompt, "aborted_tools", "interrupted");
    lifecycle(&mut end, &prompt, "cancelled");
    lifecycle(&mut end, &message, "started");
    end.begin_turn();
    result(&mut end, &[&message], "faster");
    assert!(matches!(outcome(&mut turn).await, Outcome::Interrupted { by: InterruptedBy::User, .. }));
    let mut own = own_turn(steering).await;
    assert_eq!(outcome(&mut own).await.text(), Some("faster"), "the interrupt was of the turn before");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_a_message_cuts_off_is_no_success() {
    let (session, mut end, _listener, mut turn, prompt) = working(builder()).await;
    let (steering, message) = steer(&session, &mut end, "Stop that.").await;
    end.message(json!({
        "type": "result", "subtype": "success", "is_error": false, "result": "", "num_turns": 2,
        "terminal_reason": "aborted_tools", "user_message_uuids": [prompt["uuid"]],
    }));
    lifecycle(&mut end, &prompt, "cancelled");
    lifecycle(&mut end, &message, "started");
    result(&mut end, &[&message], "stopped");
    assert!(matches!(outcome(&mut turn).await, Outcome::Interrupted { by: InterruptedBy::User, .. }));
    assert_eq!(outcome(&mut own_turn(steering).await).await.text(), Some("stopped"));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_result_does_not_hide_the_turn_of_a_message() {
    let short = builder().configure(|options| options.limits.line_bytes = 4000);
    let (session, mut end, _listener, mut turn, prompt) = working(short).await;
    let (first, one) = steer(&session, &mut end, "Faster.").await;
    let (second, two) = steer(&session, &mut end, "Much faster.").await;
    result(&mut end, &[&prompt], &"x".repeat(5000));
    lifecycle(&mut end, &prompt, "completed");
    lifecycle(&mut end, &one, "started");
    result(&mut end, &[&one], "faster");
    assert_eq!(outcome(&mut turn).await.into_result().unwrap_err().kind(), ErrorKind::Malformed);
    assert_eq!(outcome(&mut own_turn(first).await).await.text(), Some("faster"));
    // The frame that says so may be lost as well.
    result(&mut end, &[&two], "much faster");
    assert_eq!(outcome(&mut own_turn(second).await).await.text(), Some("much faster"));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_that_the_cli_loses_ends_when_it_is_idle() {
    let (session, mut end, _listener, mut turn, prompt) = working(builder()).await;
    let (steering, _) = steer(&session, &mut end, "Faster.").await;
    result(&mut end, &[&prompt], "done");
    lifecycle(&mut end, &prompt, "completed");
    state(&mut end, "idle");
    assert!(outcome(&mut turn).await.is_completed());
    assert!(
        matches!(fate(steering).await, Steered::Unknown { error, .. } if error.kind() == ErrorKind::Malformed)
    );
    exchange(&session, &mut end, "next").await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn messages_count_among_the_prompts_that_wait() {
    let few = builder().configure(|options| options.limits.prompts_queued = 2);
    let (session, mut end, _listener, mut turn, prompt) = working(few).await;
    let (steering, message) = steer(&session, &mut end, "Faster.").await;
    let mut waiting = session.prompt("And then?").await.unwrap();
    assert_eq!(session.steer("More.").await.unwrap_err().kind(), ErrorKind::AtCapacity);
    assert_eq!(session.prompt("More.").await.unwrap_err().kind(), ErrorKind::AtCapacity);
    lifecycle(&mut end, &message, "started");
    says(&mut end, "I hurry.");
    assert!(matches!(fate(steering).await, Steered::Joined { .. }));
    drop(steer(&session, &mut end, "More.").await);
    result(&mut end, &[&prompt, &message], "done");
    assert!(outcome(&mut turn).await.is_completed());
    let (stopped, ()) = tokio::join!(session.stop(), end.run_out());
    stopped.unwrap();
    assert!(matches!(outcome(&mut waiting).await, Outcome::NotStarted { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_what_waits() {
    let (session, mut end, _listener, mut turn, prompt) = working(builder()).await;
    let (taken, one) = steer(&session, &mut end, "Faster.").await;
    tool_result(&mut end);
    lifecycle(&mut end, &one, "started");
    settled(&mut end).await;
    let (waiting, _) = steer(&session, &mut end, "Much faster.").await;
    stop(session, end).await;
    assert!(matches!(outcome(&mut turn).await, Outcome::Interrupted { by: InterruptedBy::Stop, .. }));
    assert!(
        matches!(fate(taken).await, Steered::Unknown { error, .. } if error.kind() == ErrorKind::Stopped)
    );
    assert!(matches!(fate(waiting).await, Steered::NotTaken { .. }));
    drop(prompt);
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_the_turn_of_a_message_and_the_last_handle_does_not() {
    let (session, mut end, _listener, mut turn, prompt) = working(builder()).await;
    let (steering, message) = steer(&session, &mut end, "Faster.").await;
    let goes_on = async {
        settled(&mut end).await;
        assert_eq!(session.steer("More.").await.unwrap_err().kind(), ErrorKind::Stopped);
        result(&mut end, &[&prompt], "done");
        assert!(outcome(&mut turn).await.is_completed());
        settled(&mut end).await;
        lifecycle(&mut end, &message, "started");
        result(&mut end, &[&message], "faster");
        assert_eq!(outcome(&mut own_turn(steering).await).await.text(), Some("faster"));
        end.run_out().await;
    };
    let (stopped, ()) = within(SOON, async { tokio::join!(session.stop(), goes_on) }).await;
    stopped.unwrap();

    let (session, mut end, _listener, mut turn, _) = working(builder()).await;
    let (steering, _) = steer(&session, &mut end, "Faster.").await;
    drop(session);
    assert!(matches!(fate(steering).await, Steered::NotTaken { .. } | Steered::Unknown { .. }));
    assert!(!outcome(&mut turn).await.is_completed());
    end.run_out().await;
}

/// The CLI's lines after it got the message, step by step.
const STEPS: [fn(&mut CliEnd, &Value, &Value); 8] = [
    |end, _, message| lifecycle(end, message, "queued"),
    |end, _, _| tool_result(end),
    |end, _, message| lifecycle(end, message, "started"),
    |end, _, _| says(end, "I hurry."),
    |end, _, message| lifecycle(end, message, "completed"),
    |end, prompt, message| result(end, &[prompt, message], "done"),
    |end, prompt, _| lifecycle(end, prompt, "completed"),
    |end, _, _| state(end, "idle"),
];

// Guards: ended-once
// Guards: the CLI dies with a message that it was given for the running turn
#[tokio::test(start_paused = true)]
async fn a_cli_that_dies_at_any_step_ends_a_message_once_and_never_rereads_it() {
    for steps in 0..=STEPS.len() {
        let (session, mut end, mut listener, mut turn, prompt) = working(builder()).await;
        let mut waiting = session.prompt("And then?").await.unwrap();
        let steering = session.steer("Faster.").await.unwrap();
        let message = said(&mut end).await;
        for step in &STEPS[..steps] {
            step(&mut end, &prompt, &message);
        }
        settled(&mut end).await;
        end.exit(Exit::Signal(9));
        let mut end = within(SOON, listener.accept()).await;
        within(SOON, end.handshake()).await;
        let turn = outcome(&mut turn).await;
        assert_eq!(turn.is_completed(), steps >= 6, "{steps}: {turn:?}");
        match (steps, fate(steering).await) {
            // The dead CLI cannot have read the message: it is sent again, as a turn of its own.
            (0..=1, Steered::Turn(mut own)) => {
                let again = said(&mut end).await;
                assert_eq!(again["uuid"], message["uuid"], "a CLI that has seen it knows it by that");
                answer(&mut end, &again, "faster");
                assert_eq!(outcome(&mut own).await.text(), Some("faster"));
            }
            (2..=3, Steered::Unknown { error, prompt }) => {
                assert!(error.kind() == ErrorKind::CliExited && prompt == Prompt::text("Faster."), "{error}");
            }
            (4.., Steered::Joined { .. }) => {}
            (_, other) => panic!("{steps}: {other:?}"),
        }
        let next = said(&mut end).await;
        assert_eq!(content(&next), "And then?", "{steps}");
        answer(&mut end, &next, "nothing");
        assert!(outcome(&mut waiting).await.is_completed());
        stop(session, end).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cli_that_dies_between_two_turns_does_not_get_the_message_again() {
    let (session, mut end, mut listener, mut turn, prompt) = working(builder()).await;
    let (steering, _) = steer(&session, &mut end, "Faster.").await;
    result(&mut end, &[&prompt], "done");
    settled(&mut end).await;
    end.exit(Exit::Signal(9));
    assert!(outcome(&mut turn).await.is_completed());
    assert!(
        matches!(fate(steering).await, Steered::Unknown { error, .. } if error.kind() == ErrorKind::CliExited)
    );
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.handshake()).await;
    exchange(&session, &mut end, "next").await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_line_that_may_be_a_tool_result_prevents_a_second_send() {
    let short = builder().configure(|options| options.limits.line_bytes = 4000);
    let (session, mut end, mut listener, mut turn, _) = working(short).await;
    let (steering, _) = steer(&session, &mut end, "Faster.").await;
    let content = json!([{ "type": "tool_result", "tool_use_id": "toolu_1", "content": "x".repeat(5000) }]);
    end.message(json!({ "type": "user", "message": { "role": "user", "content": content } }));
    settled(&mut end).await;
    end.exit(Exit::Signal(9));
    assert!(
        matches!(fate(steering).await, Steered::Unknown { error, .. } if error.kind() == ErrorKind::CliExited)
    );
    assert!(!outcome(&mut turn).await.is_completed());
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.handshake()).await;
    exchange(&session, &mut end, "next").await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_that_asks_nothing_waits_for_the_end_of_the_turn() {
    let (session, mut end, _listener, mut turn, prompt) = working(builder()).await;
    let aside = Prompt { should_query: Some(false), ..Prompt::text("By the way.") };
    let mut own = own_turn(session.steer(aside).await.unwrap()).await;
    assert!(settled(&mut end).await.is_empty());
    answer(&mut end, &prompt, "done");
    assert!(outcome(&mut turn).await.is_completed());
    let message = said(&mut end).await;
    lifecycles(&mut end, &message, &["queued", "started", "completed"]);
    assert!(matches!(outcome(&mut own).await, Outcome::Appended));
    exchange(&session, &mut end, "next").await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn what_no_cli_began_with_is_sent_again_in_order_and_once() {
    let policy = TurnRecovery::Continue { prompt: "Go on.".into() };
    let builder = builder().configure(|options| options.turn_recovery = policy);
    let (session, mut end, mut listener) = start_by_hand(builder).await;
    exchange(&session, &mut end, "hello").await;
    let mut turn = session.prompt("Work.").await.unwrap();
    let prompt = said(&mut end).await;
    lifecycles(&mut end, &prompt, &["queued", "started"]);
    let (first, one) = steer(&session, &mut end, "One.").await;
    let (second, two) = steer(&session, &mut end, "Two.").await;
    settled(&mut end).await;
    end.exit(Exit::Signal(9));
    let (mut first, mut second) = (own_turn(first).await, own_turn(second).await);
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.handshake()).await;
    let go_on = said(&mut end).await;
    assert_eq!(content(&go_on), "Go on.");
    answer(&mut end, &go_on, "done");
    assert_eq!(outcome(&mut turn).await.text(), Some("done"));
    let again = said(&mut end).await;
    assert_eq!(again["uuid"], one["uuid"]);
    // The message is sent again only once, because it may be what kills the CLI.
    end.exit(Exit::Signal(9));
    assert!(matches!(outcome(&mut first).await, Outcome::Interrupted { .. }));
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.handshake()).await;
    let again = said(&mut end).await;
    assert_eq!(again["uuid"], two["uuid"]);
    answer(&mut end, &again, "two");
    assert_eq!(outcome(&mut second).await.text(), Some("two"));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_the_turn_does_not_reach_the_turn_of_a_message() {
    let limited = builder().configure(|options| options.timeouts.turn = Some(Duration::from_secs(100)));
    let (session, mut end, _listener, mut turn, prompt) = working(limited).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (steering, message) = steer(&session, &mut end, "Faster.").await;
    result(&mut end, &[&prompt], "done");
    lifecycle(&mut end, &message, "started");
    assert!(outcome(&mut turn).await.is_completed());
    let mut own = own_turn(steering).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    result(&mut end, &[&message], "faster");
    assert_eq!(outcome(&mut own).await.text(), Some("faster"));
    stop(session, end).await;
}

// Guards: ended-once
#[tokio::test(start_paused = true)]
async fn a_message_to_a_cli_whose_port_is_killed_is_not_sent_again() {
    let (session, mut end, mut listener, mut turn, _) = working(builder()).await;
    let (steering, _) = steer(&session, &mut end, "Faster.").await;
    settled(&mut end).await;
    // The CLI may have taken the message, and said so in lines that nobody read.
    session.inject(Fault::KillPort);
    let steered = fate(steering).await;
    assert!(matches!(steered, Steered::Unknown { .. }), "{steered:?}");
    assert!(!outcome(&mut turn).await.is_completed());
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.handshake()).await;
    exchange(&session, &mut end, "next").await;
    stop(session, end).await;
}
