//! The life of a session on virtual time: prompts and their outcomes, crashes and restarts, stopping, what is
//! told. The test itself plays the CLI.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in the helpers of tests, too")]

mod common;

use std::time::Duration;

use common::*;
use greenroom::actor::SessionMessage;
use greenroom::message::TerminalReason;
use greenroom::testkit::{CliEnd, ScriptedCli, ScriptedListener};
use greenroom::transport::Exit;
use greenroom::{
    Error, ErrorKind, Event, Events, ExitCause, InterruptedBy, NoArgs, Outcome, Phase, Prompt, Received,
    Restart, ServerStatus, Session, SessionBuilder, ToolContext, ToolServer, Turn,
};
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent, call_t};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

fn builder() -> SessionBuilder {
    Session::builder()
}

/// Restarts of the CLI: so many, without a wait.
fn restarts(intensity: u32) -> SessionBuilder {
    builder().configure(|options| {
        options.restarts.cli = Restart {
            intensity,
            backoff_min: Duration::ZERO,
            backoff_max: Duration::ZERO,
            ..Restart::default()
        };
    })
}

async fn outcome(turn: &mut Turn) -> Outcome {
    within(SOON, turn.outcome()).await.unwrap()
}

async fn prompt(session: &Session, text: &str) -> Turn {
    within(SOON, session.prompt(text)).await.unwrap()
}

/// The next prompt that the CLI is given.
async fn prompted(end: &mut CliEnd, text: &str) -> Value {
    let prompt = within(SOON, end.expect("user")).await;
    assert_eq!(prompt["message"]["content"][0]["text"], text, "{prompt}");
    prompt
}

/// The same, and the CLI has begun with it.
async fn begun(end: &mut CliEnd, text: &str) -> Value {
    let prompt = prompted(end, text).await;
    end.begin_turn();
    settled(end).await;
    prompt
}

/// The next incarnation, its handshake done.
async fn next(listener: &mut ScriptedListener) -> CliEnd {
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.handshake()).await;
    end
}

/// Prompts, and has the CLI answer.
async fn exchange(session: &Session, end: &mut CliEnd, text: &str) {
    let mut turn = prompt(session, text).await;
    let prompt = prompted(end, text).await;
    end.begin_turn();
    end.finish_turn(&prompt, "fine");
    assert_eq!(outcome(&mut turn).await.text(), Some("fine"));
}

/// All that is still told, until the session is gone.
async fn rest(events: &mut Events) -> Vec<Event> {
    within(SOON, async {
        let mut all = Vec::new();
        while let Some(event) = events.next().await {
            all.push(event);
        }
        all
    })
    .await
}

fn names(events: &[Event]) -> Vec<String> {
    let name = |event: &Event| serde_json::to_value(event).unwrap()["event"].as_str().unwrap().to_owned();
    events.iter().map(name).collect()
}

fn killed() -> Exit {
    Exit::Signal(9)
}

// ---- prompts and outcomes ---------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn prompts_are_written_one_at_a_time_and_in_order() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let mut turns = Vec::new();
    for text in ["one", "two", "three"] {
        turns.push(prompt(&session, text).await);
    }
    for (index, text) in ["one", "two", "three"].into_iter().enumerate() {
        let given = prompted(&mut end, text).await;
        assert_eq!(given["uuid"], turns[index].prompt_uuid());
        let written = settled(&mut end).await;
        assert!(!written.iter().any(|frame| frame["type"] == "user"), "more than one at a time: {written:?}");
        let conversation = session.snapshot().await.unwrap().conversation.unwrap();
        assert_eq!((conversation.turn_running, conversation.queued), (true, 2 - index));
        end.finish_turn(&given, text);
        assert_eq!(outcome(&mut turns[index]).await.text(), Some(text));
    }
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_prompt_over_the_bound_is_refused_and_the_others_are_answered() {
    let (session, mut end, _listener) =
        start_by_hand(builder().configure(|options| options.limits.prompts_queued = 1)).await;
    let mut running = prompt(&session, "running").await;
    let mut queued = prompt(&session, "queued").await;
    let refused = session.prompt("refused").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AtCapacity);
    assert!(refused.is_caller() && refused.to_string().contains("prompts_queued"), "{refused}");

    for (turn, text) in [(&mut running, "running"), (&mut queued, "queued")] {
        let given = prompted(&mut end, text).await;
        end.finish_turn(&given, text);
        assert_eq!(outcome(turn).await.text(), Some(text));
    }
    exchange(&session, &mut end, "there is room again").await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_gives_each_message_and_then_its_outcome() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let mut turn = prompt(&session, "count").await;
    let given = prompted(&mut end, "count").await;
    end.begin_turn();
    end.message(json!({ "type": "a_type_of_tomorrow", "payload": [1, { "two": null }] }));
    end.finish_turn(&given, "done");
    let mut kinds = Vec::new();
    while let Some(message) = within(SOON, turn.next()).await {
        if message.kind() == "a_type_of_tomorrow" {
            assert_eq!(message.field("payload"), Some(json!([1, { "two": null }])));
        }
        kinds.push(message.kind().to_owned());
    }
    assert_eq!(kinds, ["system", "a_type_of_tomorrow", "result"]);
    assert_eq!(outcome(&mut turn).await.text(), Some("done"));
    assert_eq!(session.session_id().as_deref(), Some(end.session_id()));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_was_dropped_is_waited_for_all_the_same() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    drop(prompt(&session, "dropped").await);
    let mut second = prompt(&session, "second").await;
    let given = prompted(&mut end, "dropped").await;
    let written = settled(&mut end).await;
    assert!(!written.iter().any(|frame| frame["type"] == "user"), "{written:?}");
    end.finish_turn(&given, "unheard");
    let given = prompted(&mut end, "second").await;
    end.finish_turn(&given, "heard");
    assert_eq!(outcome(&mut second).await.text(), Some("heard"));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_turn_says_by_whom() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let mut turn = prompt(&session, "long").await;
    let given = prompted(&mut end, "long").await;
    end.begin_turn();
    let (interrupted, ()) = within(SOON, async {
        tokio::join!(session.interrupt(), async {
            let request = end.expect_request("interrupt").await;
            end.answer(&request, json!({ "still_queued": [] }));
            end.fail_turn(&given, "aborted_tools", "interrupted");
        })
    })
    .await;
    interrupted.unwrap();
    match outcome(&mut turn).await {
        Outcome::Interrupted { by: InterruptedBy::User, result: Some(result) } => {
            assert_eq!(result.terminal_reason, Some(TerminalReason::AbortedTools));
        }
        other => panic!("{other:?}"),
    }
    exchange(&session, &mut end, "next").await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_the_cli_gave_up_fails_with_what_it_said() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let mut turn = prompt(&session, "hard").await;
    let given = prompted(&mut end, "hard").await;
    end.fail_turn(&given, "max_turns", "too many steps");
    match outcome(&mut turn).await {
        Outcome::Failed { error, result: Some(_) } => {
            assert_eq!(error.kind(), ErrorKind::TurnFailed);
            assert!(error.is_cli() && error.to_string().contains("too many steps"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    exchange(&session, &mut end, "next").await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn unread_messages_end_the_turn_at_their_bound_and_nothing_else() {
    let builder = builder().configure(|options| {
        options.limits.unread_bytes = 10_000;
        options.limits.spilled_bytes = 0;
    });
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut turn = prompt(&session, "talk").await;
    let mut after = prompt(&session, "after").await;
    let given = prompted(&mut end, "talk").await;
    for _ in 0..20 {
        end.message(json!({ "type": "chatter", "text": "x".repeat(1000) }));
    }
    match outcome(&mut turn).await {
        Outcome::Failed { error, result: None } => {
            assert_eq!(error.kind(), ErrorKind::Overflow);
            assert!(error.is_caller() && error.to_string().contains("10000 bytes"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    // The CLI still works at it.
    let written = settled(&mut end).await;
    assert!(!written.iter().any(|frame| frame["type"] == "user"), "{written:?}");
    end.finish_turn(&given, "too late");
    let given = prompted(&mut end, "after").await;
    end.finish_turn(&given, "well");
    assert_eq!(outcome(&mut after).await.text(), Some("well"));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_holds_up_no_call_and_loses_nothing() {
    let server = ToolServer::new("calc", "1").tool("ping", "Answer", async |_: NoArgs| "pong");
    let slow = builder().mcp_server(server).configure(|options| {
        options.limits.messages_kept = 4;
        options.limits.unread_bytes = 32 << 20;
    });
    let (session, mut end, _listener) = start_by_hand(slow).await;
    let mut all = session.messages();
    let mut turn = prompt(&session, "talk").await;
    let given = prompted(&mut end, "talk").await;
    for number in 0..2000 {
        end.message(json!({ "type": "chatter", "number": number, "text": "x".repeat(10_000) }));
    }
    // Nobody has read a single one of these 20 MB.
    let answer = timeout(Duration::from_secs(1), end.call("calc", "ping", json!({}))).await;
    assert_eq!(text(&answer.expect("at once")), "pong");
    end.finish_turn(&given, "over");
    within(SOON, session.run_ended()).await;

    for number in 0..2000 {
        assert_eq!(turn.next().await.unwrap().field("number"), Some(json!(number)));
    }
    assert_eq!(outcome(&mut turn).await.text(), Some("over"));
    // A subscriber is told what it lost: 2001 messages, of which four were kept.
    match within(SOON, all.next()).await {
        Some(Received::Missed(1997)) => {}
        other => panic!("{other:?}"),
    }
    stop(session, end).await;
}

// ---- crashes ----------------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_crash_ends_the_turn_and_what_waits_is_sent_once_to_the_next_cli() {
    let (session, mut end, mut listener) = start_by_hand(restarts(5)).await;
    let mut events = session.events();
    exchange(&session, &mut end, "zero").await;
    let session_id = session.session_id().expect("it was named");
    let mut one = prompt(&session, "one").await;
    let mut two = prompt(&session, "two").await;
    let mut three = prompt(&session, "three").await;
    begun(&mut end, "one").await;
    end.exit(killed());

    match outcome(&mut one).await {
        Outcome::Interrupted {
            by: InterruptedBy::CliExit { cause: ExitCause::Exited { exit, .. } },
            result: None,
        } => assert_eq!(exit, killed()),
        other => panic!("{other:?}"),
    }
    let mut end = next(&mut listener).await;
    assert!(end.launch().args.contains(&format!("--resume={session_id}")), "{:?}", end.launch().args);
    for (turn, text) in [(&mut two, "two"), (&mut three, "three")] {
        let given = prompted(&mut end, text).await;
        assert_eq!(given["uuid"], turn.prompt_uuid());
        end.finish_turn(&given, text);
        assert_eq!(outcome(turn).await.text(), Some(text));
    }
    let written = settled(&mut end).await;
    assert!(!written.iter().any(|frame| frame["type"] == "user"), "sent twice: {written:?}");
    let restarted = event(&mut events, |event| match event {
        Event::CliRestarted { epoch, session_id } => Some((*epoch, session_id.clone())),
        _ => None,
    });
    assert_eq!(restarted.await, (2, Some(session_id)));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_no_cli_began_with_is_sent_again_once() {
    let (session, mut end, mut listener) = start_by_hand(restarts(5)).await;
    let mut turn = prompt(&session, "poison").await;
    let mut after = prompt(&session, "after").await;
    let first = prompted(&mut end, "poison").await;
    end.exit(killed());
    let mut end = next(&mut listener).await;
    let second = prompted(&mut end, "poison").await;
    assert_eq!(first["uuid"], second["uuid"], "a CLI that has seen it knows it again");
    end.exit(killed());

    // It may be what the CLIs die of.
    assert!(matches!(
        outcome(&mut turn).await,
        Outcome::Interrupted { by: InterruptedBy::CliExit { .. }, .. }
    ));
    let mut end = next(&mut listener).await;
    let given = prompted(&mut end, "after").await;
    end.finish_turn(&given, "fine");
    assert_eq!(outcome(&mut after).await.text(), Some("fine"));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn the_result_of_a_command_of_the_clis_own_is_not_that_of_the_prompt() {
    let (session, mut end, _listener) = start_by_hand(restarts(5)).await;
    let mut turn = prompt(&session, "mine").await;
    let mine = prompted(&mut end, "mine").await;
    let state = |uuid: &Value, state: &str| json!({ "type": "command_lifecycle", "command_uuid": uuid, "state": state });
    let own = json!("of-its-own");
    end.message(state(&own, "started"));
    end.message(
        json!({ "type": "result", "subtype": "success", "is_error": false, "result": "", "num_turns": 0 }),
    );
    end.message(state(&own, "completed"));
    end.message(state(&mine["uuid"], "started"));
    end.finish_turn(&mine, "fine");
    assert_eq!(outcome(&mut turn).await.text(), Some("fine"));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_was_begun_is_not_sent_again() {
    let signs = [
        json!({ "type": "system", "subtype": "init", "session_id": "s" }),
        json!({ "type": "assistant", "message": { "content": [] } }),
        json!({ "type": "stream_event", "event": {} }),
        json!({ "type": "a_type_of_tomorrow", "user_message_uuids": ["THIS"] }),
        json!({ "type": "command_lifecycle", "command_uuid": "THIS", "state": "started" }),
    ];
    for sign in signs {
        let (session, mut end, mut listener) = start_by_hand(restarts(5)).await;
        let mut turn = prompt(&session, "one").await;
        prompted(&mut end, "one").await;
        end.message(serde_json::from_str(&sign.to_string().replace("THIS", turn.prompt_uuid())).unwrap());
        settled(&mut end).await;
        end.exit(killed());
        let ended = timeout(Duration::from_secs(10), turn.outcome()).await;
        assert!(matches!(ended, Ok(Ok(Outcome::Interrupted { .. }))), "{ended:?} after {sign}");
        let mut end = next(&mut listener).await;
        let written = settled(&mut end).await;
        assert!(!written.iter().any(|frame| frame["type"] == "user"), "sent twice after {sign}");
        stop(session, end).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_that_cannot_be_read_ends_the_turn_all_the_same() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let mut events = session.events();
    for line in ["{\"type\":\"result\",\"subtype\":\"success\",", r#"{"type":"result","is_error":"perhaps"}"#]
    {
        let mut turn = prompt(&session, "one").await;
        begun(&mut end, "one").await;
        end.send_bytes(format!("{line}\n"));
        state(&mut end, "idle");
        match outcome(&mut turn).await {
            Outcome::Failed { error, result: None } => {
                assert_eq!(error.kind(), ErrorKind::Malformed);
                assert!(error.is_wire(), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
    event(&mut events, |event| matches!(event, Event::LineSkipped { .. }).then_some(())).await;
    exchange(&session, &mut end, "next").await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn the_conversation_that_was_named_last_is_resumed() {
    let builder = restarts(5).configure(|options| {
        options.resume = Some("asked-for".into());
        options.fork_session = true;
    });
    let (session, end, mut listener) = start_by_hand(builder).await;
    let mut events = session.events();
    let resumes = |end: &CliEnd| {
        let mut args = end.launch().args.clone();
        args.retain(|arg| arg.starts_with("--resume") || arg.starts_with("--fork"));
        args
    };
    assert_eq!(resumes(&end), ["--resume=asked-for", "--fork-session"]);
    end.exit(killed());
    // Nothing was named yet.
    let mut end = next(&mut listener).await;
    assert_eq!(resumes(&end), ["--resume=asked-for", "--fork-session"]);
    for name in ["fork", "fork", "after-clear"] {
        end.message(json!({ "type": "system", "subtype": "init", "session_id": name }));
    }
    settled(&mut end).await;
    for name in ["fork", "after-clear"] {
        let named = event(&mut events, |event| match event {
            Event::SessionCaptured { session_id } => Some(session_id.clone()),
            _ => None,
        });
        assert_eq!(named.await, name);
    }
    assert_eq!(session.session_id().as_deref(), Some("after-clear"));
    end.exit(killed());
    let end = next(&mut listener).await;
    assert_eq!(resumes(&end), ["--resume=after-clear"], "what was forked is not forked again");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_prompt_of_the_time_between_two_clis_waits_for_the_next() {
    let (session, end, mut listener) = start_by_hand(builder()).await;
    let mut events = session.events();
    end.exit(killed());
    event(&mut events, |event| matches!(event, Event::CliRestarting { .. }).then_some(())).await;
    assert_eq!(session.snapshot().await.unwrap().phase, Phase::Recovering);
    let ask = json!({ "subtype": "mcp_status" });
    assert_eq!(session.control(ask).await.unwrap_err().kind(), ErrorKind::NotReady);
    session.interrupt().await.expect("there is nothing to interrupt");
    let mut turn = prompt(&session, "early").await;
    let mut end = next(&mut listener).await;
    assert!(
        !end.launch().args.iter().any(|arg| arg.starts_with("--resume")),
        "there is nothing to resume yet"
    );
    let given = prompted(&mut end, "early").await;
    end.finish_turn(&given, "fine");
    assert_eq!(outcome(&mut turn).await.text(), Some("fine"));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn the_wait_before_a_restart_doubles_up_to_its_bound_and_the_period_forgets() {
    let (min, max) = (Duration::from_millis(200), Duration::from_secs(1));
    let limits =
        Restart { intensity: 5, period: Duration::from_secs(60), backoff_min: min, backoff_max: max };
    let (session, mut end, mut listener) =
        start_by_hand(builder().configure(|options| options.restarts.cli = limits)).await;
    let mut events = session.events();
    let mut crash = async |end: CliEnd| {
        let begun = Instant::now();
        end.exit(killed());
        let told = event(&mut events, |event| match event {
            Event::CliRestarting { attempt, delay, .. } => Some((*attempt, *delay)),
            _ => None,
        });
        let (attempt, delay) = told.await;
        let next = next(&mut listener).await;
        let waited = begun.elapsed();
        assert!(waited >= delay && waited < delay + Duration::from_millis(20), "{waited:?} of {delay:?}");
        (next, attempt, delay)
    };
    for expected in 1..=5 {
        let (next, attempt, delay) = crash(end).await;
        end = next;
        assert_eq!(attempt, expected);
        let whole = (min * (1 << (expected - 1))).min(max);
        assert!(delay >= whole / 2 && delay <= whole, "restart {attempt} after {delay:?}");
    }
    sleep(Duration::from_secs(61)).await;
    let (mut end, attempt, _) = crash(end).await;
    assert_eq!(attempt, 1);
    exchange(&session, &mut end, "alive").await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn more_crashes_than_allowed_end_the_session_and_every_turn() {
    let (session, mut end, mut listener) = start_by_hand(restarts(1)).await;
    let mut events = session.events();
    exchange(&session, &mut end, "zero").await;
    end.exit(killed());
    let mut end = next(&mut listener).await;
    let mut running = prompt(&session, "running").await;
    let mut queued = prompt(&session, "queued").await;
    begun(&mut end, "running").await;
    end.process().launch().stderr.line("out of memory");
    end.exit(killed());

    assert!(matches!(
        outcome(&mut running).await,
        Outcome::Interrupted { by: InterruptedBy::CliExit { .. }, .. }
    ));
    match outcome(&mut queued).await {
        Outcome::NotStarted { prompt } => assert_eq!(prompt, Prompt::text("queued")),
        other => panic!("{other:?}"),
    }
    within(SOON, session.wait()).await;
    let told = rest(&mut events).await;
    assert!(matches!(told.last(), Some(Event::Failed { cause }) if cause.contains("signal 9")), "{told:?}");
    let failure = session.failure().unwrap();
    assert_eq!(failure.kind(), ErrorKind::SessionFailed);
    assert_eq!(failure.stderr(), Some("out of memory"));
    let refused = session.prompt("late").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::SessionFailed);
    assert!(refused.to_string().contains("signal 9"), "{refused}");
    assert_eq!(session.snapshot().await.unwrap_err().kind(), ErrorKind::SessionFailed);
    assert_eq!(session.interrupt().await.unwrap_err().kind(), ErrorKind::SessionFailed);
    assert_eq!(session.stop().await.unwrap_err().kind(), ErrorKind::SessionFailed);
}

#[tokio::test(start_paused = true)]
async fn an_exit_after_an_error_result_counts_as_no_crash() {
    let (session, mut end, mut listener) = start_by_hand(restarts(0)).await;
    let mut turn = prompt(&session, "one").await;
    let given = prompted(&mut end, "one").await;
    end.begin_turn();
    end.fail_turn(&given, "budget", "the budget is spent");
    assert!(matches!(outcome(&mut turn).await, Outcome::Failed { .. }));
    let session_id = session.session_id().unwrap();
    end.exit(Exit::Code(1));
    let mut end = next(&mut listener).await;
    assert!(end.launch().args.contains(&format!("--resume={session_id}")));
    exchange(&session, &mut end, "two").await;

    // A crash of the same kind, without an error result before it, is the end.
    end.exit(Exit::Code(1));
    within(SOON, session.wait()).await;
    assert_eq!(session.failure().unwrap().kind(), ErrorKind::SessionFailed);
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_cannot_be_resumed_ends_the_session_with_what_the_cli_said() {
    let (session, mut end, mut listener) = start_by_hand(restarts(1)).await;
    exchange(&session, &mut end, "zero").await;
    end.exit(killed());
    let mut turn = prompt(&session, "one").await;
    let mut end = within(SOON, listener.accept()).await;
    let text = "No conversation found with session ID";
    end.message(json!({
        "type": "result", "subtype": "error_during_execution", "is_error": true, "errors": [text],
    }));
    // It is gone once all that it said has arrived.
    settled(&mut end).await;
    end.exit(Exit::Code(1));
    within(SOON, session.wait()).await;
    let failure = session.failure().unwrap();
    assert!(failure.to_string().contains(text), "{failure}");
    assert!(matches!(outcome(&mut turn).await, Outcome::NotStarted { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_cli_that_closes_its_stdout_is_ended_and_restarted() {
    let (session, mut end, mut listener) = start_by_hand(restarts(1)).await;
    let mut turn = prompt(&session, "one").await;
    begun(&mut end, "one").await;
    end.close_stdout();
    within(SOON, end.process().killed()).await;
    match outcome(&mut turn).await {
        Outcome::Interrupted { by: InterruptedBy::CliExit { cause }, .. } => {
            assert!(matches!(cause, ExitCause::StdoutClosed { .. }), "{cause:?}");
        }
        other => panic!("{other:?}"),
    }
    let mut end = next(&mut listener).await;
    exchange(&session, &mut end, "two").await;
    stop(session, end).await;
}

// ---- starts -----------------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_is_told_at_once_and_not_tried_again() {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let begun = Instant::now();
    let (started, ()) = within(SOON, async {
        tokio::join!(builder().transport(transport).start(), async {
            let end = listener.accept().await;
            end.launch().stderr.line("no licence");
            end.exit(Exit::Code(7));
        })
    })
    .await;
    let error = started.unwrap_err();
    assert_eq!((error.kind(), error.stderr()), (ErrorKind::CliExited, Some("no licence")));
    assert!(begun.elapsed() < Duration::from_millis(50), "{:?}", begun.elapsed());
    // The session, and with it the only transport, is gone.
    assert!(within(SOON, listener.try_accept()).await.is_none(), "it was tried again");
}

#[tokio::test(start_paused = true)]
async fn a_start_takes_no_longer_than_its_limit() {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let begun = Instant::now();
    let limit = Duration::from_secs(7);
    let starting = builder().transport(transport).configure(|options| options.timeouts.start = limit).start();
    let (started, ()) = within(SOON, async {
        tokio::join!(starting, async {
            let end = listener.accept().await;
            end.process().killed().await;
        })
    })
    .await;
    assert_eq!(started.unwrap_err().kind(), ErrorKind::StartTimeout);
    assert!(begun.elapsed() >= limit && begun.elapsed() < limit * 2, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_given_up_takes_its_cli_along() {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let mut starting = Box::pin(builder().transport(transport).start());
    let end = within(SOON, async {
        tokio::select! {
            started = &mut starting => panic!("nobody has answered `initialize`: {started:?}"),
            end = listener.accept() => end,
        }
    })
    .await;
    drop(starting);
    within(SOON, end.process().killed()).await;
    assert!(within(SOON, listener.try_accept()).await.is_none());
}

// ---- stops ------------------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn stop_lets_the_turn_end_and_gives_back_what_was_not_sent() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let mut running = prompt(&session, "running").await;
    let blocks = Prompt::text("look").image("aGk=", "image/png");
    let mut queued = session.prompt(blocks.clone()).await.unwrap();
    let given = prompted(&mut end, "running").await;
    let (stopped, ()) = within(SOON, async {
        tokio::join!(session.stop(), async {
            // Given back at once, while the turn in flight goes on.
            match outcome(&mut queued).await {
                Outcome::NotStarted { prompt } => assert_eq!(prompt, blocks),
                other => panic!("{other:?}"),
            }
            assert_eq!(session.prompt("late").await.unwrap_err().kind(), ErrorKind::Stopped);
            assert_eq!(session.snapshot().await.unwrap().phase, Phase::Draining);
            end.finish_turn(&given, "just in time");
            assert_eq!(outcome(&mut running).await.text(), Some("just in time"));
            end.run_out().await;
        })
    })
    .await;
    stopped.unwrap();
    let refused = session.prompt("later").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Stopped);
    assert!(session.failure().is_none());
}

#[tokio::test(start_paused = true)]
async fn stop_ends_a_turn_that_does_not_end_in_time() {
    let (stopped_at, mut hear) = mpsc::unbounded_channel();
    let server = ToolServer::new("calc", "1").tool("hang", "Hang", move |_: NoArgs, cx: ToolContext| {
        let stopped_at = stopped_at.clone();
        async move {
            cx.cancelled().await;
            stopped_at.send(Instant::now()).unwrap();
        }
    });
    let (session, mut end, _listener) = start_by_hand(builder().mcp_server(server)).await;
    let mut turn = prompt(&session, "long").await;
    prompted(&mut end, "long").await;
    end.call_tool("calc", "hang", json!({}));
    settled(&mut end).await;
    let begun = Instant::now();
    let (stopped, ()) = within(SOON, async { tokio::join!(session.stop(), end.run_out()) }).await;
    stopped.unwrap();
    let (drain, took) = (Duration::from_secs(5), begun.elapsed());
    assert!(took >= drain && took < drain + Duration::from_millis(100), "{took:?}");
    assert!(hear.recv().await.unwrap() - begun >= drain, "the handler was cancelled too early");
    assert!(matches!(
        outcome(&mut turn).await,
        Outcome::Interrupted { by: InterruptedBy::Stop, result: None }
    ));
}

#[tokio::test(start_paused = true)]
async fn a_cli_that_ignores_everything_is_asked_then_killed_within_the_bound() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let bound = session.shutdown_bound();
    let begun = Instant::now();
    let after = |least, most| {
        let passed = begun.elapsed();
        let (least, most) =
            (Duration::from_secs(least), Duration::from_secs(most) + Duration::from_millis(50));
        assert!(passed >= least && passed <= most, "{passed:?}");
    };
    let (stopped, ()) = within(bound, async {
        tokio::join!(session.stop(), async {
            assert!(end.recv().await.is_none(), "the end of its stdin comes first");
            after(0, 0);
            end.process().terminated().await;
            after(5, 5);
            end.process().killed().await;
            after(10, 11);
        })
    })
    .await;
    stopped.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cli_that_the_system_cannot_kill_holds_up_nobody_for_longer_than_the_bound() {
    let hang = ToolServer::new("calc", "1")
        .tool("hang", "Never ends", async |_: NoArgs| -> () { std::future::pending().await });
    let (session, mut end, _listener) = start_by_hand(builder().mcp_server(hang)).await;
    let _turn = prompt(&session, "long").await;
    end.call_tool("calc", "hang", json!({}));
    settled(&mut end).await;
    end.process().survive_kill();
    within(session.shutdown_bound(), session.stop()).await.unwrap();
    drop(end);
}

#[tokio::test(start_paused = true)]
async fn stop_may_be_called_by_many_again_and_be_given_up() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let mut events = session.events();
    exchange(&session, &mut end, "zero").await;
    let other = session.clone();
    // Given up at once; the stopping goes on.
    assert!(timeout(Duration::ZERO, session.stop()).await.is_err());
    let (first, second, ()) =
        within(SOON, async { tokio::join!(session.stop(), other.stop(), end.run_out()) }).await;
    first.unwrap();
    second.unwrap();
    within(SOON, session.stop()).await.unwrap();
    let told = rest(&mut events).await;
    assert_eq!(names(&told), ["session_captured", "stopping", "stopped"], "once");
}

#[tokio::test(start_paused = true)]
async fn stop_while_a_restart_is_waited_for_starts_nothing_any_more() {
    let (session, end, mut listener) = start_by_hand(builder()).await;
    let mut events = session.events();
    end.exit(killed());
    let delay = event(&mut events, |event| match event {
        Event::CliRestarting { delay, .. } => Some(*delay),
        _ => None,
    });
    assert!(delay.await > Duration::ZERO);
    let mut turn = prompt(&session, "waiting").await;
    let begun = Instant::now();
    within(SOON, session.stop()).await.unwrap();
    assert!(begun.elapsed() < Duration::from_millis(50), "{:?}", begun.elapsed());
    assert!(matches!(outcome(&mut turn).await, Outcome::NotStarted { .. }));
    drop(session);
    assert!(within(SOON, listener.try_accept()).await.is_none(), "a CLI was started after the stop");
}

#[tokio::test(start_paused = true)]
async fn stop_during_the_handshake_of_a_restart_ends_that_cli() {
    let (session, end, mut listener) = start_by_hand(restarts(5)).await;
    end.exit(killed());
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.expect_request("initialize")).await;
    within(SOON, session.stop()).await.unwrap();
    within(SOON, end.process().killed()).await;
    assert!(session.failure().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_last_handle_ends_the_session() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let mut events = session.events();
    let other = session.clone();
    drop(session);
    exchange(&other, &mut end, "still here").await;
    drop(other);
    within(SOON, end.run_out()).await;
    let told = rest(&mut events).await;
    assert_eq!(names(&told), ["session_captured", "stopping", "stopped"]);
}

#[tokio::test(start_paused = true)]
async fn a_turn_outlives_the_handles_and_says_how_it_ended() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let mut turn = prompt(&session, "long").await;
    prompted(&mut end, "long").await;
    drop(session);
    let (ended, ()) = within(SOON, async { tokio::join!(turn.outcome(), end.run_out()) }).await;
    assert!(matches!(ended.unwrap(), Outcome::Interrupted { by: InterruptedBy::Stop, .. }));
}

// ---- what is told -----------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn events_come_in_the_order_of_what_happened() {
    let (session, mut end, mut listener) = start_by_hand(restarts(5)).await;
    let mut events = session.events();
    exchange(&session, &mut end, "one").await;
    end.exit(killed());
    let mut end = next(&mut listener).await;
    exchange(&session, &mut end, "two").await;
    stop(session, end).await;
    let told = rest(&mut events).await;
    let expected = [
        "session_captured",
        "cli_exited",
        "cli_restarting",
        "cli_started",
        "cli_ready",
        "cli_restarted",
        "stopping",
        "stopped",
    ];
    assert_eq!(names(&told), expected);
    let epochs: Vec<_> =
        told.iter().map(|event| serde_json::to_value(event).unwrap()["epoch"].as_u64()).collect();
    assert_eq!(epochs, [None, Some(1), Some(2), Some(2), Some(2), Some(2), None, None]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_subscriber_to_events_is_told_how_many_it_missed() {
    let (session, mut end, mut listener) =
        start_by_hand(restarts(100).configure(|options| options.limits.events_kept = 4)).await;
    let mut events = session.events();
    for _ in 0..4 {
        end.exit(killed());
        end = next(&mut listener).await;
        exchange(&session, &mut end, "still here").await;
    }
    stop(session, end).await;
    let told = rest(&mut events).await;
    assert!(matches!(told[0], Event::Missed { count } if count > 10), "{told:?}");
    assert_eq!(names(&told[3..]), ["stopping", "stopped"], "the newest are there");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_shows_the_tree_and_what_is_in_flight() {
    let hang = ToolServer::new("calc", "1")
        .tool("hang", "Hang", async |_: NoArgs, cx: ToolContext| cx.cancelled().await);
    let idle = ToolServer::new("idle", "1").tool("rest", "Rest", async |_: NoArgs| ());
    let (session, mut end, _listener) = start_by_hand(builder().mcp_server(hang).mcp_server(idle)).await;
    exchange(&session, &mut end, "zero").await;
    let _running = prompt(&session, "running").await;
    let _queued = prompt(&session, "queued").await;
    let given = prompted(&mut end, "running").await;
    end.message(json!({ "type": "chatter", "text": "x".repeat(100) }));
    let request_id = end.call_tool("calc", "hang", json!({}));
    settled(&mut end).await;
    sleep(Duration::from_secs(3)).await;

    let snapshot = session.snapshot().await.unwrap();
    assert_eq!((snapshot.phase, snapshot.session_id.as_deref()), (Phase::Ready, Some(end.session_id())));
    assert!((3000..3100).contains(&snapshot.age_ms), "{}", snapshot.age_ms);
    let cli = snapshot.cli.as_ref().unwrap();
    assert_eq!((cli.epoch, cli.pid, cli.ready, cli.lines_queued), (1, None, true, 0));
    assert_eq!(cli.version.as_deref(), Some("0.0.0-scripted"));
    let conversation = snapshot.conversation.as_ref().unwrap();
    assert_eq!((conversation.turn_running, conversation.queued, conversation.run_ended), (true, 1, false));
    assert!(conversation.unread_bytes > 100, "{conversation:?}");
    let call = snapshot.calls().next().unwrap();
    assert_eq!((call.tool.as_str(), &call.request_id, call.cancelled), ("hang", &request_id, false));
    assert_eq!(call.tool_use_id.as_deref(), Some("toolu_2"));
    assert!((3000..3100).contains(&call.age_ms), "{call:?}");
    let owed = &snapshot.router.as_ref().unwrap().owed;
    assert_eq!(
        (owed.len(), owed[0].kind, &owed[0].request_id, owed[0].epoch),
        (1, "mcp_message", &request_id, 1)
    );
    let servers: Vec<_> =
        snapshot.servers.iter().map(|server| (server.name.as_str(), server.calls.len())).collect();
    assert_eq!(servers, [("calc", 1), ("idle", 0)]);
    assert!(
        snapshot.servers.iter().all(|server| server.status == ServerStatus::Up && server.generation == 1)
    );
    assert_eq!(snapshot.callbacks.as_ref().unwrap().in_flight, 0);
    let json = serde_json::to_value(&snapshot).unwrap();
    assert_eq!((&json["phase"], &json["servers"][0]["calls"][0]["tool"]), (&json!("ready"), &json!("hang")));

    end.cancel_call("calc", end.last_rpc_id());
    end.answer_to(&request_id).await;
    end.finish_turn(&given, "");
    let given = prompted(&mut end, "queued").await;
    end.finish_turn(&given, "");
    within(SOON, session.run_ended()).await;
    let snapshot = session.snapshot().await.unwrap();
    assert_eq!((snapshot.calls().count(), snapshot.counters.cancelled), (0, 1));
    stop(session, end).await;
}

// ---- the end of a run -------------------------------------------------------------------------------------

fn state(end: &mut CliEnd, state: &str) {
    end.message(json!({
        "type": "system", "subtype": "session_state_changed", "state": state, "sdk_host_only": true,
    }));
}

fn task(end: &mut CliEnd, id: &str, kind: &str) {
    end.message(json!({ "type": "system", "subtype": "task_started", "task_id": id, "task_type": kind }));
}

/// Whether the run is over, and how many background tasks keep it from that, once all was taken in.
async fn run(session: &Session, end: &mut CliEnd) -> (bool, usize) {
    settled(end).await;
    let conversation = session.snapshot().await.unwrap().conversation.unwrap();
    (conversation.run_ended, conversation.background_tasks)
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_when_the_cli_is_idle_and_no_agent_works_in_the_background() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    assert_eq!(run(&session, &mut end).await, (true, 0), "there is none yet");
    let mut turn = prompt(&session, "go").await;
    let given = prompted(&mut end, "go").await;
    end.begin_turn();
    state(&mut end, "running");
    task(&mut end, "agent", "local_agent");
    task(&mut end, "shell", "local_bash");
    assert_eq!(run(&session, &mut end).await, (false, 1), "a shell may never end, and does not count");
    end.finish_turn(&given, "the agent is at it");
    assert!(outcome(&mut turn).await.is_completed());
    assert_eq!(run(&session, &mut end).await, (false, 1), "the turn is over, the run is not");
    state(&mut end, "idle");
    assert_eq!(run(&session, &mut end).await, (false, 1));
    end.message(json!({
        "type": "system", "subtype": "task_notification", "task_id": "agent", "status": "completed",
    }));
    assert_eq!(run(&session, &mut end).await, (true, 0));
    // The agent's news set off a turn of their own, which no prompt of ours waits for.
    state(&mut end, "running");
    assert_eq!(run(&session, &mut end).await, (false, 0));
    state(&mut end, "idle");
    within(SOON, session.run_ended()).await;
    // What is meant for the host alone is not in the turn.
    exchange(&session, &mut end, "next").await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_cli_never_says_that_it_is_idle_ends_at_the_ceiling() {
    let ceiling = Duration::from_secs(40);
    let (session, mut end, _listener) =
        start_by_hand(builder().configure(|options| options.timeouts.run_ceiling = Some(ceiling))).await;
    let mut turn = prompt(&session, "go").await;
    let given = prompted(&mut end, "go").await;
    state(&mut end, "running");
    sleep(ceiling * 2).await;
    assert_eq!(run(&session, &mut end).await, (false, 0), "before the result nothing is over");
    end.finish_turn(&given, "done");
    assert!(outcome(&mut turn).await.is_completed());
    let begun = Instant::now();
    within(SOON, session.run_ended()).await;
    let waited = begun.elapsed();
    assert!(
        waited > ceiling - Duration::from_millis(100) && waited < ceiling + Duration::from_millis(100),
        "{waited:?}"
    );
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_query_waits_for_the_run_and_stops_its_session() {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let (ended, ()) = within(SOON, async {
        let asking = async {
            let mut turn = greenroom::query("go", builder().transport(transport)).await?;
            turn.outcome().await
        };
        tokio::join!(asking, async {
            let mut end = next(&mut listener).await;
            let given = prompted(&mut end, "go").await;
            state(&mut end, "running");
            task(&mut end, "agent", "local_agent");
            end.finish_turn(&given, "first");
            state(&mut end, "idle");
            // Its stdin stays open for as long as the agent may want tools.
            settled(&mut end).await;
            assert!(timeout(Duration::from_secs(30), end.recv()).await.is_err());
            end.message(json!({
                "type": "system", "subtype": "task_notification", "task_id": "agent", "status": "failed",
            }));
            end.run_out().await;
        })
    })
    .await;
    assert_eq!(ended.unwrap().text(), Some("first"));
}

// ---- for actor programs -----------------------------------------------------------------------------------

/// An application's own actor.
struct Desk;

/// What it was told of its child.
#[derive(Debug, PartialEq)]
enum Told {
    Stopped,
    Failed(Option<ErrorKind>),
}

#[cfg_attr(feature = "async-trait", ractor::async_trait)]
impl Actor for Desk {
    type Msg = ();
    type State = mpsc::UnboundedSender<Told>;
    type Arguments = mpsc::UnboundedSender<Told>;

    async fn pre_start(
        &self,
        _: ActorRef<()>,
        told: mpsc::UnboundedSender<Told>,
    ) -> Result<mpsc::UnboundedSender<Told>, ActorProcessingErr> {
        Ok(told)
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<()>,
        event: SupervisionEvent,
        told: &mut mpsc::UnboundedSender<Told>,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorTerminated(..) => told.send(Told::Stopped)?,
            SupervisionEvent::ActorFailed(_, error) => {
                told.send(Told::Failed(error.downcast_ref::<Error>().map(Error::kind)))?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// A session linked under a desk, and what the desk is told.
async fn linked(
    builder: SessionBuilder,
) -> (Session, CliEnd, ScriptedListener, ActorRef<()>, mpsc::UnboundedReceiver<Told>) {
    let (told, hear) = mpsc::unbounded_channel();
    let (desk, _) = Actor::spawn(None, Desk, told).await.unwrap();
    let (transport, mut listener) = ScriptedCli::by_hand();
    let starting = builder.transport(transport).spawn_linked(desk.get_cell());
    let (session, end) = within(SOON, async { tokio::join!(starting, next(&mut listener)) }).await;
    (session.unwrap(), end, listener, desk, hear)
}

#[tokio::test(start_paused = true)]
async fn a_parent_sees_its_session_stop() {
    let (session, end, _listener, desk, mut hear) = linked(builder()).await;
    stop(session, end).await;
    assert_eq!(within(SOON, hear.recv()).await, Some(Told::Stopped));
    desk.stop(None);
}

#[tokio::test(start_paused = true)]
async fn a_parent_sees_its_session_fail_with_the_error() {
    let (session, end, _listener, desk, mut hear) = linked(restarts(0)).await;
    end.exit(killed());
    assert_eq!(within(SOON, hear.recv()).await, Some(Told::Failed(Some(ErrorKind::SessionFailed))));
    assert_eq!(session.failure().unwrap().kind(), ErrorKind::SessionFailed);
    desk.stop(None);
}

#[tokio::test(start_paused = true)]
async fn a_session_dies_with_its_parent() {
    let (session, mut end, _listener, desk, _hear) = linked(builder()).await;
    let mut events = session.events();
    let mut turn = prompt(&session, "long").await;
    prompted(&mut end, "long").await;
    desk.stop(None);
    within(SOON, end.process().killed()).await;
    within(SOON, session.wait()).await;
    rest(&mut events).await;
    let torn = within(SOON, turn.outcome()).await.unwrap_err();
    assert_eq!(torn.kind(), ErrorKind::SessionFailed);
    assert!(session.prompt("anybody?").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_session_is_an_actor_with_messages() {
    let (session, mut end, _listener, desk, mut hear) = linked(builder()).await;
    let actor = session.actor().clone();
    let mut events = call_t!(actor, SessionMessage::Events, 1000).unwrap();
    let mut turn = call_t!(actor, SessionMessage::Prompt, 1000, "hello".into()).unwrap().unwrap();
    let given = prompted(&mut end, "hello").await;
    end.begin_turn();
    let snapshot = call_t!(actor, SessionMessage::Snapshot, 1000).unwrap().unwrap();
    assert_eq!(snapshot.phase, Phase::Ready);
    let (interrupted, ()) = within(SOON, async {
        tokio::join!(async { call_t!(actor, SessionMessage::Interrupt, 1000) }, async {
            let request = end.expect_request("interrupt").await;
            end.fail_turn(&given, "aborted_streaming", "interrupted");
            end.answer(&request, json!({ "still_queued": [] }));
        })
    })
    .await;
    interrupted.unwrap().unwrap();
    assert!(matches!(outcome(&mut turn).await, Outcome::Interrupted { by: InterruptedBy::User, .. }));
    let (stopped, ()) = within(SOON, async {
        tokio::join!(async { call_t!(actor, SessionMessage::Stop, 10_000) }, end.run_out())
    })
    .await;
    stopped.unwrap().unwrap();
    assert_eq!(names(&rest(&mut events).await), ["session_captured", "stopping", "stopped"]);
    assert_eq!(within(SOON, hear.recv()).await, Some(Told::Stopped));
    assert!(call_t!(actor, SessionMessage::Snapshot, 1000).is_err(), "it is no more");
    desk.stop(None);
}

#[tokio::test(start_paused = true)]
async fn events_can_be_had_from_before_the_start() {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let mut builder = Session::builder().transport(transport);
    let mut events = builder.events();
    let (session, end) = tokio::join!(builder.start(), async {
        let mut end = listener.accept().await;
        end.handshake().await;
        end
    });
    let session = session.unwrap();
    assert!(matches!(events.next().await, Some(Event::CliStarted { epoch: 1, pid: None, resumes: None })));
    assert!(matches!(events.next().await, Some(Event::CliReady { epoch: 1, .. })));
    let (stopped, ()) = tokio::join!(session.stop(), end.run_out());
    stopped.unwrap();
    let rest: Vec<Event> =
        std::iter::from_fn(|| futures_util::FutureExt::now_or_never(events.next()).flatten()).collect();
    assert!(matches!(rest[..], [Event::Stopping, Event::Stopped]), "{rest:?}");
}
