//! `Turn::cancel` in each state of a turn, and against everything that may happen at the same moment.

use std::time::Duration;

use crate::common::*;
use greenroom::options::{Restart, TurnRecovery};
use greenroom::report::{ExitCause, InterruptedBy};
use greenroom::session::Steered;
use greenroom::transport::Exit;
use greenroom::{Event, Outcome, Session, SessionBuilder, Turn};
use greenroom_testkit::{CliEnd, ScriptedCli, ScriptedListener};
use serde_json::{Value, json};
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_secs(30);

fn builder() -> SessionBuilder {
    Session::builder().configure(|options| options.timeouts.control_request = LIMIT)
}

async fn outcome(turn: &mut Turn) -> Outcome {
    within(SOON, turn.outcome()).await.unwrap()
}

/// A turn that the CLI has begun with, and its prompt.
async fn begun(session: &Session, end: &mut CliEnd, text: &str) -> (Turn, Value) {
    let turn = session.prompt(text).await.unwrap();
    let prompt = said(end, text).await;
    end.begin_turn();
    settled(end).await;
    (turn, prompt)
}

/// The next prompt, which has this text.
async fn said(end: &mut CliEnd, text: &str) -> Value {
    let prompt = within(SOON, end.expect("user")).await;
    assert_eq!(prompt["message"]["content"][0]["text"], text);
    prompt
}

/// Whether the CLI was told anything but answers.
async fn is_told(end: &mut CliEnd) -> Vec<Value> {
    let frames = settled(end).await;
    frames.into_iter().filter(|frame| frame["type"] != "control_response").collect()
}

fn is_by_user(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Interrupted { by: InterruptedBy::User, .. })
}

fn came_back(outcome: &Outcome, text: &str) -> bool {
    matches!(outcome, Outcome::NotStarted { prompt } if format!("{prompt:?}").contains(text))
}

async fn answers(session: &Session, end: &mut CliEnd, mut turn: Turn, text: &str) {
    let prompt = said(end, text).await;
    end.begin_turn();
    end.finish_turn(&prompt, "fine");
    let ended = outcome(&mut turn).await;
    assert_eq!(ended.text(), Some("fine"), "{ended:?}");
    assert!(session.failure().is_none());
}

async fn next(listener: &mut ScriptedListener) -> CliEnd {
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.handshake()).await;
    end
}

// Guards: a turn is cancelled: it waits, runs, has just ended, or its CLI dies or hangs
#[tokio::test(start_paused = true)]
async fn a_waiting_prompt_is_taken_back_and_the_cli_hears_nothing() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let (mut first, prompt) = begun(&session, &mut end, "first").await;
    let mut second = session.prompt("second").await.unwrap();
    let third = session.prompt("third").await.unwrap();
    within(SOON, second.cancel()).await;
    assert!(is_told(&mut end).await.is_empty());
    let ended = outcome(&mut second).await;
    assert!(came_back(&ended, "second"), "{ended:?}");
    end.finish_turn(&prompt, "one");
    assert_eq!(outcome(&mut first).await.text(), Some("one"));
    answers(&session, &mut end, third, "third").await;
    stop(session, end).await;
}

// Guards: a turn is cancelled: it waits, runs, has just ended, or its CLI dies or hangs
#[tokio::test(start_paused = true)]
async fn a_running_turn_is_interrupted_and_the_next_prompt_waits_for_the_answer() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let (mut first, prompt) = begun(&session, &mut end, "first").await;
    let second = session.prompt("second").await.unwrap();
    let ((), interrupt) = within(SOON, async {
        tokio::join!(first.cancel(), async {
            let interrupt = end.expect_request("interrupt").await;
            end.fail_turn(&prompt, "aborted_streaming", "interrupted");
            interrupt
        })
    })
    .await;
    let ended = outcome(&mut first).await;
    assert!(is_by_user(&ended) && ended.result().is_some(), "{ended:?}");
    assert!(is_told(&mut end).await.is_empty(), "the interrupt would hit the next prompt");
    end.answer(&interrupt, json!({}));
    answers(&session, &mut end, second, "second").await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_ends_while_it_is_cancelled_keeps_its_outcome() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let (mut first, prompt) = begun(&session, &mut end, "first").await;
    let second = session.prompt("second").await.unwrap();
    let ((), (), interrupt) = within(SOON, async {
        // Twice: the CLI is asked once.
        tokio::join!(first.cancel(), first.cancel(), async {
            let interrupt = end.expect_request("interrupt").await;
            end.finish_turn(&prompt, "done");
            interrupt
        })
    })
    .await;
    assert_eq!(outcome(&mut first).await.text(), Some("done"));
    assert!(is_told(&mut end).await.is_empty());
    end.answer(&interrupt, json!({}));
    answers(&session, &mut end, second, "second").await;
    stop(session, end).await;
}

// Guards: a turn is cancelled: it waits, runs, has just ended, or its CLI dies or hangs
#[tokio::test(start_paused = true)]
async fn a_late_cancel_does_nothing_to_the_next_turn() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let (mut first, prompt) = begun(&session, &mut end, "first").await;
    let mut second = session.prompt("second").await.unwrap();
    end.finish_turn(&prompt, "one");
    let prompt = said(&mut end, "second").await;
    end.begin_turn();
    // The end of the first turn was not read yet.
    within(SOON, first.cancel()).await;
    assert_eq!(outcome(&mut first).await.text(), Some("one"));
    within(SOON, first.cancel()).await;
    assert!(is_told(&mut end).await.is_empty());
    end.finish_turn(&prompt, "two");
    assert_eq!(outcome(&mut second).await.text(), Some("two"));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_the_cli_has_not_begun_with_is_dropped_by_the_cli() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    // With the lifecycle of today's CLIs, and without.
    for tells in [true, false] {
        let mut first = session.prompt("first").await.unwrap();
        let second = session.prompt("second").await.unwrap();
        let prompt = said(&mut end, "first").await;
        let ((), ()) = within(SOON, async {
            tokio::join!(first.cancel(), async {
                let request = end.expect_request("cancel_async_message").await;
                assert_eq!(request["request"]["message_uuid"], prompt["uuid"]);
                if tells {
                    end.message(json!({
                        "type": "command_lifecycle", "command_uuid": prompt["uuid"], "state": "cancelled",
                    }));
                }
                end.answer(&request, json!({ "cancelled": true }));
            })
        })
        .await;
        let ended = outcome(&mut first).await;
        assert!(came_back(&ended, "first"), "{ended:?}");
        let prompt = said(&mut end, "second").await;
        end.message(json!({
            "type": "command_lifecycle", "command_uuid": prompt["uuid"], "state": "started",
        }));
        end.finish_turn(&prompt, "fine");
        let mut second = second;
        assert_eq!(outcome(&mut second).await.text(), Some("fine"));
    }
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_the_cli_does_not_drop_is_interrupted() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    for knows in [true, false] {
        let mut turn = session.prompt("first").await.unwrap();
        let prompt = said(&mut end, "first").await;
        within(SOON, async {
            tokio::join!(turn.cancel(), async {
                let request = end.expect_request("cancel_async_message").await;
                match knows {
                    true => end.answer(&request, json!({ "cancelled": false })),
                    false => end.refuse(&request, "Unsupported control request subtype"),
                }
                let interrupt = end.expect_request("interrupt").await;
                end.answer(&interrupt, json!({}));
                end.fail_turn(&prompt, "aborted_streaming", "interrupted");
            })
        })
        .await;
        let ended = outcome(&mut turn).await;
        assert!(is_by_user(&ended), "{ended:?}");
    }
    stop(session, end).await;
}

fn recovering(backoff: Duration) -> SessionBuilder {
    builder().configure(|options| {
        options.turn_recovery = TurnRecovery::Continue { prompt: "Go on.".into() };
        options.restarts.cli = Restart { backoff_min: backoff, backoff_max: backoff, ..Restart::default() };
    })
}

/// A session with one turn behind it, so that its turns are continued.
async fn started(builder: SessionBuilder) -> (Session, CliEnd, ScriptedListener) {
    let (session, mut end, listener) = start_by_hand(builder).await;
    let turn = session.prompt("hello").await.unwrap();
    answers(&session, &mut end, turn, "hello").await;
    (session, end, listener)
}

#[tokio::test(start_paused = true)]
async fn turns_that_wait_for_the_next_cli_end_at_once_and_are_not_continued() {
    let (session, mut end, mut listener) = started(recovering(Duration::from_secs(200))).await;
    let (mut first, _) = begun(&session, &mut end, "first").await;
    let mut second = session.prompt("second").await.unwrap();
    let third = session.prompt("third").await.unwrap();
    let mut events = session.events();
    end.exit(Exit::Signal(9));
    event(&mut events, |event| matches!(event, Event::CliRestarting { .. }).then_some(())).await;
    let since = Instant::now();
    within(SOON, async { tokio::join!(first.cancel(), second.cancel()) }).await;
    let (cut_off, unsent) = (outcome(&mut first).await, outcome(&mut second).await);
    assert!(is_by_user(&cut_off) && came_back(&unsent, "second"), "{cut_off:?}, {unsent:?}");
    assert_eq!(since.elapsed(), Duration::ZERO);
    let mut end = next(&mut listener).await;
    answers(&session, &mut end, third, "third").await;
    stop(session, end).await;
}

// Guards: a turn is cancelled: it waits, runs, has just ended, or its CLI dies or hangs
#[tokio::test(start_paused = true)]
async fn a_cancelled_turn_whose_cli_dies_is_not_continued() {
    let (session, mut end, mut listener) = started(recovering(Duration::ZERO)).await;
    for progress in [false, true] {
        let mut turn = session.prompt("first").await.unwrap();
        let second = session.prompt("second").await.unwrap();
        said(&mut end, "first").await;
        if progress {
            end.begin_turn();
            settled(&mut end).await;
        }
        within(SOON, async {
            tokio::join!(turn.cancel(), async {
                end.expect_where("a request", |frame| frame["type"] == "control_request").await;
                end.exit(Exit::Signal(9));
            })
        })
        .await;
        let ended = outcome(&mut turn).await;
        assert!(is_by_user(&ended), "{ended:?}");
        end = next(&mut listener).await;
        answers(&session, &mut end, second, "second").await;
    }
    stop(session, end).await;
}

// Guards: a turn is cancelled: it waits, runs, has just ended, or its CLI dies or hangs
#[tokio::test(start_paused = true)]
async fn a_cli_that_does_not_answer_a_cancel_is_replaced_before_the_next_prompt() {
    // It hangs altogether, ends the turn without an answer, or answers without an end of the turn.
    for (ends, answers_it) in [(false, false), (true, false), (false, true)] {
        let (session, mut end, mut listener) = started(recovering(Duration::ZERO)).await;
        let (mut turn, prompt) = begun(&session, &mut end, "first").await;
        let second = session.prompt("second").await.unwrap();
        let mut events = session.events();
        let since = Instant::now();
        within(SOON, async {
            tokio::join!(turn.cancel(), async {
                let interrupt = end.expect_request("interrupt").await;
                if ends {
                    end.fail_turn(&prompt, "aborted_streaming", "interrupted");
                }
                if answers_it {
                    end.answer(&interrupt, json!({}));
                }
            })
        })
        .await;
        let ended = outcome(&mut turn).await;
        assert!(is_by_user(&ended), "{ended:?}");
        let cause = event(&mut events, |event| match event {
            Event::CliExited { cause, .. } => Some(cause.clone()),
            _ => None,
        });
        assert!(matches!(cause.await, ExitCause::Unresponsive { .. }));
        assert!(since.elapsed() >= LIMIT && since.elapsed() < LIMIT * 2, "{:?}", since.elapsed());
        drop(end);
        let mut end = next(&mut listener).await;
        answers(&session, &mut end, second, "second").await;
        stop(session, end).await;
    }
}

fn lifecycle(end: &mut CliEnd, prompt: &Value, state: &str) {
    end.message(json!({ "type": "command_lifecycle", "command_uuid": prompt["uuid"], "state": state }));
}

#[tokio::test(start_paused = true)]
async fn work_of_the_cli_before_a_queued_prompt_is_not_interrupted() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let mut turn = session.prompt("first").await.unwrap();
    let second = session.prompt("second").await.unwrap();
    let prompt = said(&mut end, "first").await;
    lifecycle(&mut end, &prompt, "queued");
    // Work at something else, such as the report of a background task.
    end.begin_turn();
    settled(&mut end).await;
    within(SOON, async {
        tokio::join!(turn.cancel(), async {
            let request = end.expect_where("a request", |frame| frame["type"] == "control_request").await;
            assert_eq!(request["request"]["subtype"], "cancel_async_message");
            end.answer(&request, json!({ "cancelled": true }));
        })
    })
    .await;
    let ended = outcome(&mut turn).await;
    assert!(came_back(&ended, "first"), "{ended:?}");
    answers(&session, &mut end, second, "second").await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_that_fails_beside_a_cancel_changes_no_outcome() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let (mut turn, prompt) = begun(&session, &mut end, "first").await;
    within(SOON, async {
        tokio::join!(turn.cancel(), async {
            let cancel = end.expect_request("interrupt").await;
            let (refused, ()) = tokio::join!(session.interrupt(), async {
                let interrupt = end.expect_request("interrupt").await;
                end.refuse(&interrupt, "no");
            });
            assert!(refused.is_err());
            end.answer(&cancel, json!({}));
            end.fail_turn(&prompt, "completed", "interrupted");
        })
    })
    .await;
    let ended = outcome(&mut turn).await;
    assert!(is_by_user(&ended), "{ended:?}");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_turn_without_a_result_was_interrupted() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let mut turn = session.prompt("first").await.unwrap();
    let prompt = said(&mut end, "first").await;
    ["queued", "started"].iter().for_each(|state| lifecycle(&mut end, &prompt, state));
    end.begin_turn();
    settled(&mut end).await;
    within(SOON, async {
        tokio::join!(turn.cancel(), async {
            let interrupt = end.expect_request("interrupt").await;
            end.answer(&interrupt, json!({}));
            lifecycle(&mut end, &prompt, "cancelled");
            end.message(json!({
                "type": "system", "subtype": "session_state_changed", "state": "idle", "sdk_host_only": true,
            }));
        })
    })
    .await;
    let ended = outcome(&mut turn).await;
    assert!(is_by_user(&ended), "{ended:?}");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_the_cli_knows_as_done_does_not_come_back() {
    let (session, mut end, mut listener) = started(recovering(Duration::ZERO)).await;
    let mut turn = session.prompt("first").await.unwrap();
    said(&mut end, "first").await;
    end.exit(Exit::Signal(9));
    let mut end = next(&mut listener).await;
    let prompt = said(&mut end, "first").await;
    within(SOON, async {
        tokio::join!(turn.cancel(), async {
            let request = end.expect_request("cancel_async_message").await;
            lifecycle(&mut end, &prompt, "completed");
            end.answer(&request, json!({ "cancelled": false }));
            let interrupt = end.expect_request("interrupt").await;
            end.answer(&interrupt, json!({}));
        })
    })
    .await;
    let ended = outcome(&mut turn).await;
    assert!(
        matches!(&ended, Outcome::Interrupted { by: InterruptedBy::CliExit { .. }, result: None, .. }),
        "{ended:?}"
    );
    let after = session.prompt("second").await.unwrap();
    answers(&session, &mut end, after, "second").await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_into_a_turn_that_is_being_cancelled_waits_like_a_prompt() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let mut turn = session.prompt("first").await.unwrap();
    let prompt = said(&mut end, "first").await;
    ["queued", "started"].iter().for_each(|state| lifecycle(&mut end, &prompt, state));
    end.begin_turn();
    settled(&mut end).await;
    let ((), steering) = within(SOON, async {
        tokio::join!(turn.cancel(), async {
            // Before the interrupt is written.
            let steering = session.steer("Do that instead.").await.unwrap();
            let interrupt = end.expect_request("interrupt").await;
            end.fail_turn(&prompt, "aborted_streaming", "interrupted");
            let told = is_told(&mut end).await;
            assert!(told.is_empty(), "the interrupt would hit the message: {told:?}");
            end.answer(&interrupt, json!({}));
            steering
        })
    })
    .await;
    assert!(is_by_user(&outcome(&mut turn).await));
    let Steered::Turn(turn) = within(SOON, steering.outcome()).await.unwrap() else { panic!("no turn") };
    answers(&session, &mut end, turn, "Do that instead.").await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn the_turn_of_a_query_is_cancelled_and_its_session_stops() {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let asking = greenroom::query("first", builder().transport(transport));
    let (turn, mut end) = within(SOON, async { tokio::join!(asking, next(&mut listener)) }).await;
    let mut turn = turn.unwrap();
    let prompt = said(&mut end, "first").await;
    end.begin_turn();
    settled(&mut end).await;
    within(SOON, async {
        tokio::join!(turn.cancel(), async {
            let interrupt = end.expect_request("interrupt").await;
            end.answer(&interrupt, json!({}));
            end.fail_turn(&prompt, "aborted_streaming", "interrupted");
        })
    })
    .await;
    let (ended, ()) = within(SOON, async { tokio::join!(turn.outcome(), end.run_out()) }).await;
    assert!(is_by_user(&ended.unwrap()));
}

// Guards: a turn with `cancel_on_drop`, or the future of `Session::prompt`, is dropped
#[tokio::test(start_paused = true)]
async fn a_turn_that_is_dropped_goes_on_or_is_cancelled_as_asked() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let (first, prompt) = begun(&session, &mut end, "first").await;
    let second = session.prompt("second").await.unwrap().cancel_on_drop();
    let third = session.prompt("third").await.unwrap();
    drop(first);
    drop(second);
    assert!(is_told(&mut end).await.is_empty(), "the running turn goes on, the second has not been sent");
    end.finish_turn(&prompt, "one");

    let prompt = said(&mut end, "third").await;
    end.begin_turn();
    settled(&mut end).await;
    drop(third.cancel_on_drop());
    let interrupt = within(SOON, end.expect_request("interrupt")).await;
    end.fail_turn(&prompt, "aborted_streaming", "interrupted");
    end.answer(&interrupt, json!({}));
    let fourth = session.prompt("fourth").await.unwrap();
    answers(&session, &mut end, fourth, "fourth").await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_dropped_after_its_end_cancels_nothing() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let (first, prompt) = begun(&session, &mut end, "first").await;
    let mut first = first.cancel_on_drop();
    let second = session.prompt("second").await.unwrap();
    end.finish_turn(&prompt, "one");
    assert_eq!(outcome(&mut first).await.text(), Some("one"));
    drop(first);
    answers(&session, &mut end, second, "second").await;
    assert!(is_told(&mut end).await.is_empty());
    stop(session, end).await;
}

// Guards: a turn with `cancel_on_drop`, or the future of `Session::prompt`, is dropped
#[tokio::test(start_paused = true)]
async fn a_prompt_whose_future_is_dropped_is_taken_back() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let (mut first, prompt) = begun(&session, &mut end, "first").await;
    // Before the session has taken the prompt, and when the turn is on its way to the caller.
    for waits in [false, true] {
        let mut asking = Box::pin(session.prompt("lost"));
        assert!(futures_util::poll!(&mut asking).is_pending());
        if waits {
            settled(&mut end).await;
            assert_eq!(session.snapshot().await.unwrap().conversation.unwrap().queued, 1);
        }
        drop(asking);
        settled(&mut end).await;
        assert_eq!(session.snapshot().await.unwrap().conversation.unwrap().queued, 0);
    }
    let next = session.prompt("next").await.unwrap();
    end.finish_turn(&prompt, "one");
    assert_eq!(outcome(&mut first).await.text(), Some("one"));
    answers(&session, &mut end, next, "next").await;
    stop(session, end).await;
}
