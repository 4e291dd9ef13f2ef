//! Settings that are restored after a crash, and the steps by which a session gets its conversation back.

use std::time::Duration;

use crate::common::{SOON, event, start_by_hand, stop, within};
use greenroom::options::{ResumeLadder, TurnRecovery};
use greenroom::report::{ExitCause, InterruptedBy};
use greenroom::transport::Exit;
use greenroom::{ErrorKind, Event, Outcome, PermissionMode, Session, SessionBuilder, Turn};
use greenroom_testkit::{CliEnd, ScriptedListener};
use serde_json::{Value, json};

fn builder() -> SessionBuilder {
    Session::builder().configure(|options| options.restarts.cli.intensity = 20)
}

/// A session with one turn behind it, so that its conversation has a name.
async fn started(builder: SessionBuilder) -> (Session, CliEnd, ScriptedListener) {
    let (session, mut end, listener) = start_by_hand(builder).await;
    let mut turn = session.prompt("hello").await.unwrap();
    let prompt = within(SOON, end.expect("user")).await;
    end.begin_turn();
    end.finish_turn(&prompt, "hi");
    assert!(outcome(&mut turn).await.is_completed());
    (session, end, listener)
}

async fn outcome(turn: &mut Turn) -> Outcome {
    within(SOON, turn.outcome()).await.unwrap()
}

async fn prompted(end: &mut CliEnd) -> Value {
    within(SOON, end.expect("user")).await
}

/// The next incarnation, after its handshake.
async fn next(listener: &mut ScriptedListener) -> CliEnd {
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.handshake()).await;
    end
}

fn has(end: &CliEnd, arg: &str) -> bool {
    end.launch().args.iter().any(|given| given == arg)
}

// Guards: ended-once
#[tokio::test(start_paused = true)]
async fn a_turn_goes_on_with_the_applications_prompt_when_that_is_the_policy() {
    let policy = TurnRecovery::Continue { prompt: "Go on.".into() };
    let (session, mut end, mut listener) =
        started(builder().configure(|options| options.turn_recovery = policy)).await;
    let mut events = session.events();
    let mut turn = session.prompt("Work.").await.unwrap();
    let mut waiting = session.prompt("And then?").await.unwrap();
    let first = prompted(&mut end).await;
    end.begin_turn();
    crate::common::settled(&mut end).await;
    end.exit(Exit::Signal(9));

    let mut end = next(&mut listener).await;
    let continuation = prompted(&mut end).await;
    assert_eq!(continuation["message"]["content"][0]["text"], "Go on.");
    assert_ne!(continuation["uuid"], first["uuid"], "it is another prompt");
    event(&mut events, |event| matches!(event, Event::TurnContinued { epoch: 2 }).then_some(())).await;
    end.begin_turn();
    end.finish_turn(&continuation, "done after all");
    assert_eq!(outcome(&mut turn).await.text(), Some("done after all"));
    let then = prompted(&mut end).await;
    end.finish_turn(&then, "nothing");
    assert_eq!(outcome(&mut waiting).await.text(), Some("nothing"));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_the_user_is_ending_is_not_continued() {
    let policy = TurnRecovery::Continue { prompt: "Go on.".into() };
    let (session, mut end, mut listener) =
        started(builder().configure(|options| options.turn_recovery = policy)).await;
    let mut turn = session.prompt("Work.").await.unwrap();
    prompted(&mut end).await;
    end.begin_turn();
    crate::common::settled(&mut end).await;
    let (interrupted, ()) = tokio::join!(session.interrupt(), async {
        end.expect_request("interrupt").await;
        end.exit(Exit::Signal(9));
    });
    assert_eq!(interrupted.unwrap_err().kind(), ErrorKind::CliExited);
    assert!(matches!(outcome(&mut turn).await, Outcome::Interrupted { .. }));
    let end = next(&mut listener).await;
    stop(session, end).await;
}

// Guards: resumed
#[tokio::test(start_paused = true)]
async fn what_was_set_at_run_time_is_set_again_before_the_next_prompt() {
    let (session, mut end, mut listener) = started(builder()).await;
    let set = async {
        session.set_model(Some("opus")).await?;
        session.set_model(Some("haiku")).await?;
        session.set_permission_mode(PermissionMode::Plan).await?;
        session.requests().control(json!({"subtype": "get_context_usage"})).await?;
        greenroom::Result::<()>::Ok(())
    };
    let answer = async {
        for subtype in ["set_model", "set_model", "set_permission_mode", "get_context_usage"] {
            let request = end.expect_request(subtype).await;
            end.answer(&request, json!({}));
        }
    };
    let (set, ()) = within(SOON, async { tokio::join!(set, answer) }).await;
    set.unwrap();
    end.exit(Exit::Signal(9));

    let mut end = next(&mut listener).await;
    let mut turn = session.prompt("hello again").await.unwrap();
    let model = within(SOON, end.expect_request("set_model")).await;
    assert_eq!(model["request"]["model"], "haiku", "the last one counts, once");
    end.answer(&model, json!({}));
    let mode = within(SOON, end.expect_request("set_permission_mode")).await;
    assert_eq!(mode["request"]["mode"], "plan");
    assert!(!end.transcript().contains("hello again"), "nothing is asked before all is in force again");
    end.answer(&mode, json!({}));
    let prompt = prompted(&mut end).await;
    assert!(!end.transcript().contains("get_context_usage"), "a question sets nothing");
    end.finish_turn(&prompt, "fine");
    assert!(outcome(&mut turn).await.is_completed());
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_title_is_given_to_a_new_conversation_and_not_to_a_resumed_one() {
    let titled = builder().configure(|options| options.title = Some("Sums".into()));
    let (session, end, mut listener) = started(titled).await;
    assert!(end.transcript().contains(r#""title":"Sums""#), "{}", end.transcript());
    end.exit(Exit::Signal(9));
    let mut end = within(SOON, listener.accept()).await;
    assert!(end.launch().args.iter().any(|arg| arg.starts_with("--resume=")));
    let initialize = within(SOON, end.handshake()).await;
    assert_eq!(initialize["request"].get("title"), None, "it may have another by now");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_gone_is_told_and_a_permission_mode_is_not_gone_without() {
    let (session, mut end, mut listener) = started(builder()).await;
    let (set, ()) = within(SOON, async {
        tokio::join!(session.set_model(Some("old")), async {
            let request = end.expect_request("set_model").await;
            end.answer(&request, json!({}));
        })
    })
    .await;
    set.unwrap();
    let mut events = session.events();
    end.exit(Exit::Signal(9));
    let mut end = next(&mut listener).await;
    let request = within(SOON, end.expect_request("set_model")).await;
    end.refuse(&request, "no such model");
    let lost = event(&mut events, |event| match event {
        Event::SettingLost { subtype, reason, .. } => Some((subtype.clone(), reason.clone())),
        _ => None,
    });
    let (subtype, reason) = lost.await;
    assert!(subtype == "set_model" && reason.contains("no such model"), "{subtype} {reason}");

    let (set, ()) = within(SOON, async {
        tokio::join!(session.set_permission_mode(PermissionMode::Plan), async {
            let request = end.expect_request("set_permission_mode").await;
            end.answer(&request, json!({}));
        })
    })
    .await;
    set.unwrap();
    end.exit(Exit::Signal(9));
    let mut end = next(&mut listener).await;
    let request = within(SOON, end.expect_request("set_model")).await;
    end.answer(&request, json!({}));
    let request = within(SOON, end.expect_request("set_permission_mode")).await;
    end.refuse(&request, "not today");
    let cause = event(&mut events, |event| match event {
        Event::CliExited { epoch: 3, cause } => Some(cause.to_string()),
        _ => None,
    });
    assert!(cause.await.contains("not today"));
    drop(end);
    let mut end = next(&mut listener).await;
    for subtype in ["set_model", "set_permission_mode"] {
        let request = within(SOON, end.expect_request(subtype)).await;
        end.answer(&request, json!({}));
    }
    stop(session, end).await;
}

/// A CLI that says that it cannot resume, and exits.
async fn refuses(listener: &mut ScriptedListener) -> Vec<String> {
    let mut end = within(SOON, listener.accept()).await;
    end.expect_request("initialize").await;
    let args = end.launch().args.clone();
    end.message(json!({
        "type": "result", "subtype": "error_during_execution", "is_error": true, "num_turns": 0,
        "errors": ["No conversation found with session ID: x"],
    }));
    // The result is read before the exit is noticed.
    tokio::task::yield_now().await;
    end.exit(Exit::Code(1));
    args
}

// Guards: the CLI refuses to resume
#[tokio::test(start_paused = true)]
async fn a_conversation_that_cannot_be_resumed_is_never_replaced_in_silence() {
    let (session, end, mut listener) = started(builder()).await;
    let mut events = session.events();
    let mut waiting = session.prompt("still there?").await.unwrap();
    end.exit(Exit::Signal(9));
    refuses(&mut listener).await;
    within(SOON, session.wait()).await;
    let cause = event(&mut events, |event| match event {
        Event::CliExited { epoch: 2, cause } => Some(cause.clone()),
        _ => None,
    });
    assert!(matches!(cause.await, ExitCause::ResumeRefused { transcript_missing: true, .. }));
    let failure = session.failure().unwrap();
    assert!(failure.to_string().contains("No conversation found"), "{failure}");
    assert!(failure.help().is_some_and(|help| help.contains("resume_ladder")), "{failure}");
    assert!(matches!(outcome(&mut waiting).await, Outcome::NotStarted { .. }));
}

// Guards: the CLI refuses to resume
#[tokio::test(start_paused = true)]
async fn the_resume_ladder_tells_each_step_from_resume_to_fork_to_fresh() {
    let ladder = |step| builder().configure(move |options| options.resume_ladder = step);
    let (session, end, mut listener) = started(ladder(ResumeLadder::Fresh)).await;
    let session_id = session.session_id().unwrap();
    let mut events = session.events();
    end.exit(Exit::Signal(9));
    let resume = format!("--resume={session_id}");
    let same = refuses(&mut listener).await;
    assert!(same.contains(&resume) && !same.contains(&"--fork-session".to_owned()), "{same:?}");
    let fork = refuses(&mut listener).await;
    assert!(fork.contains(&resume) && fork.contains(&"--fork-session".to_owned()), "{fork:?}");
    let mut end = next(&mut listener).await;
    assert!(!end.launch().args.iter().any(|arg| arg.starts_with("--resume")), "{:?}", end.launch().args);
    for expected in [ResumeLadder::Fork, ResumeLadder::Fresh] {
        let step = event(&mut events, |event| match event {
            Event::ResumeStep { step, refused, .. } if refused.contains("No conversation") => Some(*step),
            _ => None,
        });
        assert_eq!(step.await, expected);
    }
    let mut turn = session.prompt("who are you?").await.unwrap();
    let prompt = prompted(&mut end).await;
    end.begin_turn();
    end.finish_turn(&prompt, "new here");
    assert!(outcome(&mut turn).await.is_completed());
    assert_ne!(session.session_id().unwrap(), session_id);
    stop(session, end).await;

    let (session, end, mut listener) = started(ladder(ResumeLadder::Fork)).await;
    end.exit(Exit::Signal(9));
    refuses(&mut listener).await;
    refuses(&mut listener).await;
    within(SOON, session.wait()).await;
    assert!(session.failure().is_some(), "a fork was allowed, a fresh conversation was not");
}

// Guards: resumed
#[tokio::test(start_paused = true)]
async fn a_conversation_without_a_transcript_restarts_with_the_same_id() {
    let (session, mut end, mut listener) = start_by_hand(builder()).await;
    let mut events = session.events();
    let mut turn = session.prompt("hello").await.unwrap();
    prompted(&mut end).await;
    end.begin_turn();
    crate::common::settled(&mut end).await;
    let session_id = session.session_id().unwrap();
    end.exit(Exit::Signal(9));
    assert!(refuses(&mut listener).await.contains(&format!("--resume={session_id}")));
    let mut end = next(&mut listener).await;
    let args = end.launch().args.clone();
    assert!(args.contains(&format!("--session-id={session_id}")), "{args:?}");
    assert!(!args.iter().any(|arg| arg.starts_with("--resume")), "{args:?}");
    assert!(matches!(outcome(&mut turn).await, Outcome::Interrupted { .. }));
    let step = event(&mut events, |event| match event {
        Event::ResumeStep { step, .. } => Some(*step),
        _ => None,
    });
    assert_eq!(step.await, ResumeLadder::SameId);

    // The conversation has a transcript now, so it is not replaced in silence.
    let mut turn = session.prompt("hello?").await.unwrap();
    let prompt = prompted(&mut end).await;
    end.begin_turn();
    end.finish_turn(&prompt, "hi");
    assert!(outcome(&mut turn).await.is_completed());
    end.exit(Exit::Signal(9));
    refuses(&mut listener).await;
    within(SOON, session.wait()).await;
    assert!(session.failure().is_some());
}

fn limited(change: impl FnOnce(&mut greenroom::options::Timeouts)) -> SessionBuilder {
    builder().configure(|options| {
        options.timeouts.control_request = Duration::from_secs(30);
        change(&mut options.timeouts);
    })
}

fn is_limit(outcome: &Outcome, name: &str) -> bool {
    matches!(outcome, Outcome::Interrupted { by: InterruptedBy::Limit { limit, .. }, .. } if limit == name)
}

// Guards: a turn outlives its limit, or the CLI says nothing for too long
#[tokio::test(start_paused = true)]
async fn a_turn_over_its_limit_is_interrupted_and_the_session_goes_on() {
    let limit = Duration::from_secs(100);
    let (session, mut end, _listener) = started(limited(|timeouts| timeouts.turn = Some(limit))).await;
    let mut events = session.events();
    let began = tokio::time::Instant::now();
    let mut turn = session.prompt("Think.").await.unwrap();
    let prompt = prompted(&mut end).await;
    end.begin_turn();
    let interrupt = within(SOON, end.expect_request("interrupt")).await;
    assert_eq!(began.elapsed(), limit);
    event(&mut events, |event| matches!(event, Event::TurnTimedOut { limit: "turn", .. }).then_some(()))
        .await;
    end.answer(&interrupt, json!({}));
    end.fail_turn(&prompt, "aborted_streaming", "interrupted");
    let ended = outcome(&mut turn).await;
    assert!(is_limit(&ended, "turn"), "{ended:?}");
    assert_eq!(ended.into_result().unwrap_err().kind(), ErrorKind::Timeout);

    let mut turn = session.prompt("Quick.").await.unwrap();
    let prompt = prompted(&mut end).await;
    end.finish_turn(&prompt, "ok");
    assert!(outcome(&mut turn).await.is_completed());
    stop(session, end).await;
}

// Guards: a turn outlives its limit, or the CLI says nothing for too long
#[tokio::test(start_paused = true)]
async fn a_cli_that_does_not_end_a_turn_over_its_limit_is_given_up() {
    let limit = Duration::from_secs(100);
    let (session, mut end, mut listener) = started(limited(|timeouts| timeouts.turn = Some(limit))).await;
    let mut events = session.events();
    let mut turn = session.prompt("Think.").await.unwrap();
    prompted(&mut end).await;
    end.begin_turn();
    within(SOON, end.expect_request("interrupt")).await;
    let ended = outcome(&mut turn).await;
    assert!(is_limit(&ended, "turn"), "{ended:?}");
    let cause = event(&mut events, |event| match event {
        Event::CliExited { cause, .. } => Some(cause.clone()),
        _ => None,
    });
    assert!(matches!(cause.await, ExitCause::Unresponsive { .. }));
    drop(end);
    let mut end = next(&mut listener).await;
    assert!(has(&end, &format!("--resume={}", session.session_id().unwrap())));
    let mut turn = session.prompt("Quick.").await.unwrap();
    let prompt = prompted(&mut end).await;
    end.finish_turn(&prompt, "ok");
    assert!(outcome(&mut turn).await.is_completed());
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn silence_is_counted_from_the_last_message() {
    let limit = Duration::from_secs(100);
    let (session, mut end, _listener) = started(limited(|timeouts| timeouts.silence = Some(limit))).await;
    let mut turn = session.prompt("Think aloud.").await.unwrap();
    let prompt = prompted(&mut end).await;
    end.begin_turn();
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_secs(90)).await;
        end.message(json!({"type": "tool_progress", "tool_name": "t", "elapsed_time_seconds": 90}));
    }
    // The last message is read before the clock runs on.
    crate::common::settled(&mut end).await;
    let last = tokio::time::Instant::now();
    let interrupt = within(SOON, end.expect_request("interrupt")).await;
    assert_eq!(last.elapsed(), limit);
    end.answer(&interrupt, json!({}));
    end.fail_turn(&prompt, "aborted_streaming", "interrupted");
    let ended = outcome(&mut turn).await;
    assert!(is_limit(&ended, "silence"), "{ended:?}");

    // Between turns the CLI may be silent.
    tokio::time::sleep(10 * limit).await;
    assert!(crate::common::settled(&mut end).await.is_empty());
    stop(session, end).await;
}

/// The CLI reports this lifecycle state of a prompt.
fn lifecycle(end: &mut CliEnd, prompt: &Value, state: &str) {
    end.message(json!({"type": "command_lifecycle", "command_uuid": prompt["uuid"], "state": state}));
}

#[tokio::test(start_paused = true)]
async fn a_continuation_that_was_never_sent_is_no_prompt_to_give_back() {
    let policy = TurnRecovery::Continue { prompt: "Go on.".into() };
    let builder = Session::builder().configure(|options| {
        options.turn_recovery = policy;
        options.restarts.cli.intensity = 0;
    });
    let (session, mut end, _listener) = started(builder).await;
    let mut turn = session.prompt("Work.").await.unwrap();
    let prompt = prompted(&mut end).await;
    lifecycle(&mut end, &prompt, "started");
    crate::common::settled(&mut end).await;
    end.exit(Exit::Signal(9));
    let ended = outcome(&mut turn).await;
    assert!(matches!(ended, Outcome::Interrupted { by: InterruptedBy::CliExit { .. }, .. }), "{ended:?}");
    within(SOON, session.wait()).await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_continued_only_when_the_cli_worked_at_it() {
    let policy = TurnRecovery::Continue { prompt: "Go on.".into() };
    let (session, mut end, mut listener) =
        started(builder().configure(|options| options.turn_recovery = policy)).await;
    let mut turn = session.prompt("Work.").await.unwrap();
    let prompt = prompted(&mut end).await;
    lifecycle(&mut end, &prompt, "queued");
    // A background task's turn, with messages that name another prompt or none.
    end.begin_turn();
    crate::common::settled(&mut end).await;
    end.exit(Exit::Signal(9));
    let ended = outcome(&mut turn).await;
    assert!(matches!(ended, Outcome::Interrupted { by: InterruptedBy::CliExit { .. }, .. }), "{ended:?}");
    let end = next(&mut listener).await;
    assert!(!end.transcript().contains("Go on."));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_the_next_cli_knows_as_done_ends_as_interrupted() {
    let (session, mut end, mut listener) = started(builder()).await;
    let mut turn = session.prompt("Work.").await.unwrap();
    let mut after = session.prompt("And then?").await.unwrap();
    let first = prompted(&mut end).await;
    end.exit(Exit::Signal(9));
    let mut end = next(&mut listener).await;
    let again = prompted(&mut end).await;
    assert_eq!(again["uuid"], first["uuid"]);
    lifecycle(&mut end, &again, "completed");
    let ended = outcome(&mut turn).await;
    assert!(matches!(ended, Outcome::Interrupted { by: InterruptedBy::CliExit { .. }, .. }), "{ended:?}");
    let then = prompted(&mut end).await;
    end.finish_turn(&then, "nothing");
    assert!(outcome(&mut after).await.is_completed());
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn the_steps_of_the_ladder_are_no_crashes() {
    let builder = Session::builder().configure(|options| {
        options.restarts.cli.intensity = 1;
        options.resume_ladder = ResumeLadder::Fresh;
    });
    let (session, end, mut listener) = started(builder).await;
    end.exit(Exit::Signal(9));
    refuses(&mut listener).await;
    refuses(&mut listener).await;
    let end = next(&mut listener).await;
    assert!(session.failure().is_none());
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn trouble_of_the_start_is_no_refusal_to_resume() {
    let (session, end, mut listener) =
        started(builder().configure(|options| options.resume_ladder = ResumeLadder::Fresh)).await;
    let mut events = session.events();
    end.exit(Exit::Signal(9));
    let mut end = within(SOON, listener.accept()).await;
    end.expect_request("initialize").await;
    end.message(json!({
        "type": "result", "subtype": "error_during_execution", "is_error": true, "num_turns": 0,
        "errors": ["no sandbox"], "startup_failure_reason": "sandbox_required_unavailable",
    }));
    tokio::task::yield_now().await;
    end.exit(Exit::Code(1));
    let end = next(&mut listener).await;
    assert!(end.launch().args.iter().any(|arg| arg.starts_with("--resume=")), "{:?}", end.launch().args);
    let cause = event(&mut events, |event| match event {
        Event::CliExited { epoch: 2, cause } => Some(cause.clone()),
        _ => None,
    });
    assert!(matches!(cause.await, ExitCause::ExitedAtStart { said: Some(_), .. }));
    stop(session, end).await;
}

// Guards: a line that begins like a frame and is none, or is over the bound
#[tokio::test(start_paused = true)]
async fn a_result_that_is_lost_ends_the_turn_and_the_run() {
    let (session, mut end, _listener) =
        started(builder().configure(|options| options.limits.line_bytes = 4000)).await;
    let state = |state: &str| json!({"type": "system", "subtype": "session_state_changed", "state": state, "sdk_host_only": true});
    let mut turn = session.prompt("A long answer, please.").await.unwrap();
    let prompt = prompted(&mut end).await;
    end.message(state("running"));
    end.begin_turn();
    end.finish_turn(&prompt, &"x".repeat(5000));
    end.message(state("idle"));
    let ended = outcome(&mut turn).await;
    assert_eq!(ended.into_result().unwrap_err().kind(), ErrorKind::Malformed);
    within(SOON, session.wait_idle()).await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn the_ends_of_subscriptions_may_be_asked_for_again() {
    let (session, end, _listener) = started(builder()).await;
    let (mut events, mut messages) = (session.events(), session.messages());
    stop(session, end).await;
    while events.next().await.is_some() {}
    while messages.next().await.is_some() {}
    assert!(events.next().await.is_none() && messages.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_session_that_loses_its_last_handle_begins_nothing_new() {
    let (session, mut end, _listener) = started(builder()).await;
    let mut running = session.prompt("one").await.unwrap();
    let mut waiting = session.prompt("two").await.unwrap();
    let prompt = prompted(&mut end).await;
    drop(session);
    assert!(matches!(outcome(&mut waiting).await, Outcome::NotStarted { .. }));
    end.finish_turn(&prompt, "one");
    assert!(!matches!(outcome(&mut running).await, Outcome::NotStarted { .. }));
    end.run_out().await;
}

#[tokio::test(start_paused = true)]
async fn a_first_turn_is_not_continued_for_nothing_of_it_may_be_written_down() {
    let policy = TurnRecovery::Continue { prompt: "Go on.".into() };
    let builder = builder().configure(|options| options.turn_recovery = policy);
    let (session, mut end, mut listener) = start_by_hand(builder).await;
    let mut turn = session.prompt("Work.").await.unwrap();
    let prompt = prompted(&mut end).await;
    lifecycle(&mut end, &prompt, "started");
    end.begin_turn();
    crate::common::settled(&mut end).await;
    end.exit(Exit::Signal(9));
    let ended = outcome(&mut turn).await;
    assert!(matches!(ended, Outcome::Interrupted { by: InterruptedBy::CliExit { .. }, .. }), "{ended:?}");
    let end = next(&mut listener).await;
    assert!(!end.transcript().contains("Go on."));
    stop(session, end).await;
}

// Guards: resumed
#[tokio::test(start_paused = true)]
async fn a_fork_after_a_refusal_is_resumed_by_its_own_id_and_not_forked() {
    const FORK: &str = "aa9f0c5e-1f8c-4d39-9d0e-6a2f7f0b3c01";
    let (session, end, mut listener) =
        started(builder().configure(|options| options.resume_ladder = ResumeLadder::Fork)).await;
    end.exit(Exit::Signal(9));
    refuses(&mut listener).await;
    let mut end = next(&mut listener).await;
    assert!(has(&end, "--fork-session"), "{:?}", end.launch().args);
    end.message(json!({ "type": "system", "subtype": "init", "session_id": FORK }));
    crate::common::settled(&mut end).await;
    end.exit(Exit::Signal(9));
    let end = next(&mut listener).await;
    let args = &end.launch().args;
    assert!(has(&end, &format!("--resume={FORK}")) && !has(&end, "--fork-session"), "{args:?}");
    stop(session, end).await;
}

// Guards: ended-once
#[tokio::test(start_paused = true)]
async fn a_turn_over_its_limit_is_not_continued_with_the_next_cli() {
    let limit = Duration::from_secs(100);
    let builder = limited(|timeouts| timeouts.turn = Some(limit))
        .configure(|options| options.turn_recovery = TurnRecovery::Continue { prompt: "Go on.".into() });
    let (session, mut end, mut listener) = started(builder).await;
    let mut turn = session.prompt("Think.").await.unwrap();
    let prompt = prompted(&mut end).await;
    lifecycle(&mut end, &prompt, "started");
    within(SOON, end.expect_request("interrupt")).await;
    let ended = outcome(&mut turn).await;
    assert!(is_limit(&ended, "turn"), "{ended:?}");
    drop(end);
    let mut end = next(&mut listener).await;
    let written = crate::common::settled(&mut end).await;
    assert!(!written.iter().any(|frame| frame["type"] == "user"), "{written:?}");
    stop(session, end).await;
}

// Guards: resumed
#[tokio::test(start_paused = true)]
async fn a_recreated_conversation_is_resumed_if_its_first_cli_dies_at_once() {
    let (session, mut end, mut listener) = start_by_hand(builder()).await;
    let mut turn = session.prompt("hello").await.unwrap();
    prompted(&mut end).await;
    end.begin_turn();
    crate::common::settled(&mut end).await;
    let session_id = session.session_id().unwrap();
    end.exit(Exit::Signal(9));
    refuses(&mut listener).await;
    assert!(matches!(outcome(&mut turn).await, Outcome::Interrupted { .. }));
    let mut end = within(SOON, listener.accept()).await;
    assert!(has(&end, &format!("--session-id={session_id}")), "{:?}", end.launch().args);
    within(SOON, end.expect_request("initialize")).await;
    // The CLI may have written the conversation down.
    end.exit(Exit::Signal(9));
    let end = next(&mut listener).await;
    assert!(has(&end, &format!("--resume={session_id}")), "{:?}", end.launch().args);
    stop(session, end).await;
}
