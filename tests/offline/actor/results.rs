//! The result that ends a turn, among stale results, results of other work, and turns without a result. The test
//! itself plays the CLI.

use crate::common::*;
use greenroom::transport::Exit;
use greenroom::{ErrorKind, Outcome, Session, Turn};
use greenroom_testkit::CliEnd;
use serde_json::{Value, json};

/// A message of the CLI.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Say {
    Stale(Kind),
    Own(Kind),
    State(&'static str),
    Lifecycle(&'static str),
    Init,
}

/// Kinds of results.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Names the prompt.
    Named,
    /// Names no prompt.
    Unnamed,
    /// Names no prompt and has neither turns nor a text, as after `set_cwd`.
    Empty,
    /// Tells of a background task.
    OfTask,
    /// Names a prompt of somebody else.
    OfAnother,
}

use Kind::{Empty, Named, OfAnother, OfTask, Unnamed};
use Say::{Init, Lifecycle, Own, Stale, State};

const RUNNING: Say = State("running");
const IDLE: Say = State("idle");
const QUEUED: Say = Lifecycle("queued");
const STARTED: Say = Lifecycle("started");
const DONE: Say = Lifecycle("completed");

fn say(end: &mut CliEnd, prompt: &Value, what: Say, text: &str) {
    match what {
        Stale(kind) => result(end, prompt, kind, "stale"),
        Own(kind) => result(end, prompt, kind, text),
        State(state) => end.message(json!({
            "type": "system", "subtype": "session_state_changed", "state": state, "sdk_host_only": true,
        })),
        Lifecycle(state) => end.message(json!({
            "type": "command_lifecycle", "command_uuid": prompt["uuid"], "state": state,
        })),
        Init => end.begin_turn(),
    }
}

fn result(end: &mut CliEnd, prompt: &Value, kind: Kind, text: &str) {
    let mut result = json!({
        "type": "result", "subtype": "success", "is_error": false, "result": text, "num_turns": 1,
        "duration_ms": 0, "duration_api_ms": 0,
    });
    match kind {
        Named => result["user_message_uuids"] = json!([prompt["uuid"]]),
        Unnamed => {}
        Empty => (result["num_turns"], result["result"]) = (json!(0), json!("")),
        OfTask => result["origin"] = json!({ "kind": "task-notification" }),
        OfAnother => result["user_message_uuids"] = json!(["6dcf0c1b-0000-4000-8000-000000000000"]),
    }
    end.message(result);
}

async fn outcome(turn: &mut Turn) -> Outcome {
    within(SOON, turn.outcome()).await.unwrap()
}

/// Plays a turn in which the CLI writes these messages.
async fn turn(session: &Session, end: &mut CliEnd, says: &[Say], text: &str) -> Outcome {
    let mut turn = session.prompt("Work.").await.unwrap();
    let prompt = within(SOON, end.expect("user")).await;
    for what in says {
        say(end, &prompt, *what, text);
    }
    match tokio::time::timeout(SOON, turn.outcome()).await {
        Ok(outcome) => outcome.unwrap(),
        Err(_) => panic!("the turn did not end: {says:?}"),
    }
}

/// Messages from before the prompt, in every order that the CLI can write them.
fn stale() -> Vec<Vec<Say>> {
    let kinds = [Unnamed, Empty, OfTask, OfAnother];
    let mut all = vec![vec![], vec![IDLE]];
    for first in kinds {
        all.extend([vec![Stale(first)], vec![Stale(first), IDLE], vec![IDLE, Stale(first)]]);
        all.extend(kinds.map(|second| vec![Stale(first), Stale(second), IDLE]));
    }
    all
}

// Guards: ended-once
// Guards: a result that was written before the prompt, or belongs to work of the CLI's own
#[tokio::test(start_paused = true)]
async fn a_stale_result_never_ends_a_turn_and_a_misjudged_one_does_at_idle() {
    let (session, mut end, _listener) = start_by_hand(Session::builder()).await;
    let orders: [fn(Say) -> [Say; 3]; 5] = [
        |own| [own, DONE, IDLE],
        |own| [own, IDLE, DONE],
        |own| [DONE, own, IDLE],
        |own| [IDLE, own, DONE],
        |own| [IDLE, DONE, own],
    ];
    let mut turns = 0;
    for before in stale() {
        for own in [Named, Unnamed, OfTask, OfAnother] {
            for order in orders {
                let says = [&before[..], &[RUNNING, QUEUED, STARTED, Init], &order(Own(own))].concat();
                turns += 1;
                let text = format!("answer {turns}");
                let ended = turn(&session, &mut end, &says, &text).await;
                assert_eq!(ended.text(), Some(&*text), "{says:?}: {ended:?}");
            }
        }
    }
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn without_lifecycle_the_result_after_the_first_message_ends_a_turn() {
    let (session, mut end, _listener) = start_by_hand(Session::builder()).await;
    let mut turns = 0;
    for before in stale() {
        for own in [Named, Unnamed, OfTask, OfAnother] {
            for order in [|own| [own, IDLE], |own| [IDLE, own]] {
                let says = [&before[..], &[RUNNING, Init], &order(Own(own))].concat();
                turns += 1;
                let text = format!("answer {turns}");
                let ended = turn(&session, &mut end, &says, &text).await;
                assert_eq!(ended.text(), Some(&*text), "{says:?}: {ended:?}");
            }
        }
    }
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn without_states_and_lifecycle_results_end_turns() {
    let (session, mut end, _listener) = start_by_hand(Session::builder()).await;
    for own in [Named, Unnamed] {
        for before in [&[][..], &[Stale(Unnamed)], &[Stale(OfTask)]] {
            let says = [before, &[Init, Own(own)]].concat();
            let ended = turn(&session, &mut end, &says, "answer").await;
            assert_eq!(ended.text(), Some("answer"), "{says:?}: {ended:?}");
        }
    }
    stop(session, end).await;
}

// Guards: a result that was written before the prompt, or belongs to work of the CLI's own
#[tokio::test(start_paused = true)]
async fn a_turn_without_a_result_ends_when_the_cli_is_idle() {
    let (session, mut end, _listener) = start_by_hand(Session::builder()).await;
    for says in [&[RUNNING, QUEUED, STARTED, DONE, IDLE][..], &[RUNNING, QUEUED, IDLE]] {
        let ended = turn(&session, &mut end, says, "").await;
        let error = ended.into_result().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Malformed, "{says:?}");
        assert!(error.to_string().contains("the CLI is idle and gave the turn no result"), "{error}");
    }
    within(SOON, session.wait_idle()).await;
    stop(session, end).await;
}

// Guards: the CLI takes a prompt out of its queue
#[tokio::test(start_paused = true)]
async fn a_prompt_that_the_cli_drops_from_its_queue_comes_back() {
    let (session, mut end, _listener) = start_by_hand(Session::builder()).await;
    let says = [RUNNING, QUEUED, Lifecycle("cancelled")];
    let ended = turn(&session, &mut end, &says, "").await;
    assert!(matches!(ended, Outcome::NotStarted { .. }), "{ended:?}");
    let says = [QUEUED, STARTED, Own(Named), DONE, IDLE];
    assert_eq!(turn(&session, &mut end, &says, "next").await.text(), Some("next"));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn an_error_result_without_a_prompt_id_and_an_exit_end_the_turn() {
    let (session, mut end, mut listener) = start_by_hand(Session::builder()).await;
    let mut turn = session.prompt("Work.").await.unwrap();
    within(SOON, end.expect("user")).await;
    end.message(json!({
        "type": "result", "subtype": "error_during_execution", "is_error": true, "errors": ["no credit"],
    }));
    settled(&mut end).await;
    end.exit(Exit::Code(1));
    let error = outcome(&mut turn).await.into_result().unwrap_err();
    assert!(error.kind() == ErrorKind::TurnFailed && error.to_string().contains("no credit"), "{error}");
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.handshake()).await;
    stop(session, end).await;
}

// Guards: a result that was written before the prompt, or belongs to work of the CLI's own
#[tokio::test(start_paused = true)]
async fn the_result_of_a_set_cwd_before_any_lifecycle_ends_no_turn() {
    let moved = json!({
        "type": "result", "subtype": "success", "is_error": false, "result": "", "num_turns": 0, "queued_turn_count": 0,
    });
    for (says, text) in [(&[QUEUED, STARTED, Own(Named), DONE, IDLE][..], "done"), (&[IDLE], "")] {
        let (session, mut end, _listener) = start_by_hand(Session::builder()).await;
        let mut turn = session.prompt("Work.").await.unwrap();
        let prompt = within(SOON, end.expect("user")).await;
        say(&mut end, &prompt, Init, "");
        end.message(moved.clone());
        says.iter().for_each(|what| say(&mut end, &prompt, *what, "done"));
        // A CLI that tells no lifecycle and no other result has given this one, which counts when the CLI is idle.
        assert_eq!(outcome(&mut turn).await.text(), Some(text));
        stop(session, end).await;
    }
}
