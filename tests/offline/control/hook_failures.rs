//! Hooks that are late, fail or panic: a hook that may forbid something forbids it.

use std::time::Duration;

use crate::common::*;
use greenroom::hook::{HookOutput, OnFailure, PreToolUseOutput};
use greenroom::options::Timeouts;
use greenroom::report::Events;
use greenroom::{Event, Hook, Session, hook};
use greenroom_testkit::{CliEnd, ScriptedCli};
use serde_json::{Value, json};
use tokio::time::Instant;

/// The events whose hooks may forbid something.
const FORBIDDING: [&str; 3] = ["PreToolUse", "PermissionRequest", "UserPromptSubmit"];

const SECOND: Duration = Duration::from_secs(1);

/// Longer than the longest limit of a hook here.
const LONG: Duration = Duration::from_secs(3600);

async fn ask(end: &mut CliEnd, callback_id: &str, input: Value) -> Value {
    let body = json!({ "subtype": "hook_callback", "callback_id": callback_id, "input": input });
    let request_id = end.request(body);
    within(LONG, end.answer_to(&request_id)).await
}

/// The next event about a failed callback: the kind of callback, the hook's event, and the text or the limit.
async fn told(events: &mut Events) -> (&'static str, Option<String>, String) {
    event(events, |event| match event {
        Event::CallbackFailed { callback, hook, message, .. }
        | Event::CallbackPanicked { callback, hook, message, .. } => {
            Some((*callback, hook.clone(), message.clone()))
        }
        Event::CallbackTimedOut { callback, hook, limit, .. } => {
            Some((*callback, hook.clone(), format!("{limit:?}")))
        }
        _ => None,
    })
    .await
}

/// A hook that fails as its input says.
fn failing(event: &str) -> Hook {
    Hook::new(event, async |input, _| match input.field("prompt").as_str() {
        Some("error") => Err("the policy is lost"),
        Some("panic") => panic!("the policy burns"),
        Some("null") => Ok(HookOutput::raw(Value::Null)),
        _ => std::future::pending().await,
    })
}

/// The hook output that forbids at this event, with this reason.
fn forbids(event: &str, reason: &str) -> Value {
    match event {
        "PreToolUse" => json!({ "hookSpecificOutput": {
            "hookEventName": event, "permissionDecision": "deny", "permissionDecisionReason": reason } }),
        "PermissionRequest" => json!({ "hookSpecificOutput": {
            "hookEventName": event, "decision": { "behavior": "deny", "message": reason } } }),
        _ => json!({ "decision": "block", "reason": reason }),
    }
}

// Guards: a hook that may forbid fails: an error, a panic, its limit, an input that does not fit
#[tokio::test(start_paused = true)]
async fn a_hook_that_takes_75_seconds_denies() {
    let review = Hook::on(hook::PreToolUse, async |_, _| {
        tokio::time::sleep(Duration::from_secs(75)).await;
        PreToolUseOutput::deny("the review says no")
    });
    let (session, mut end, _listener) = start_by_hand(Session::builder().hook(review)).await;
    let asked = Instant::now();
    let input = json!({ "tool_name": "Bash", "tool_input": {}, "tool_use_id": "toolu_1" });
    let answer = ask(&mut end, "hook_0", input).await;
    assert_eq!((answer, asked.elapsed()), (forbids("PreToolUse", "the review says no"), 75 * SECOND));
    assert_eq!(counters(&session).await.timeouts, 0);
    stop(session, end).await;
}

// Guards: a hook that may forbid fails: an error, a panic, its limit, an input that does not fit
#[tokio::test(start_paused = true)]
async fn a_failed_hook_that_may_forbid_blocks_by_default() {
    let builder = FORBIDDING.into_iter().fold(Session::builder(), |all, event| all.hook(failing(event)));
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut events = session.events();
    for (index, name) in FORBIDDING.into_iter().enumerate() {
        for (how, said, message) in [
            ("error", "failed: the policy is lost", "the policy is lost"),
            ("panic", "panicked: the policy burns", "the policy burns"),
            (
                "null",
                "failed: answered with null, which is no object",
                "answered with null, which is no object",
            ),
            ("late", "did not answer within 600s", "600s"),
        ] {
            let asked = Instant::now();
            let answer = ask(&mut end, &format!("hook_{index}"), json!({ "prompt": how })).await;
            assert_eq!(answer, forbids(name, &format!("the {name} hook {said}")));
            let waited = if how == "late" { 600 * SECOND } else { Duration::ZERO };
            assert_eq!(asked.elapsed(), waited);
            assert_eq!(told(&mut events).await, ("hook", Some(name.to_owned()), message.to_owned()));
        }
    }
    stop(session, end).await;
}

// Guards: another hook fails, or one registered with `OnFailure::Continue`
#[tokio::test(start_paused = true)]
async fn a_failed_hook_lets_pass_only_if_it_was_registered_so_or_cannot_forbid() {
    let lets_pass = FORBIDDING.map(|event| failing(event).on_failure(OnFailure::Continue));
    let others = ["PostToolUse", "Stop", "SessionEnd", "OfTomorrow"].map(failing);
    let builder = lets_pass.into_iter().chain(others).fold(Session::builder(), |all, hook| all.hook(hook));
    let (session, mut end, _listener) = start_by_hand(builder).await;
    for index in 0..7 {
        for how in ["error", "panic", "null", "late"] {
            let answer = ask(&mut end, &format!("hook_{index}"), json!({ "prompt": how })).await;
            assert_eq!(answer["subtype"], "error", "{index} {how}: {answer}");
        }
    }
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn the_cli_is_told_to_block_too_and_to_wait_longer_than_our_limit() {
    let events = ["PreToolUse", "PermissionRequest", "UserPromptSubmit", "PostToolUse", "Stop"];
    let builder = events.into_iter().fold(Session::builder(), |all, event| all.hook(failing(event)));
    let passes = failing("PreToolUse").on_failure(OnFailure::Continue);
    let (transport, mut listener) = ScriptedCli::by_hand();
    let (session, (end, initialize)) =
        tokio::join!(builder.hook(passes).transport(transport).start(), async {
            let mut end = listener.accept().await;
            let initialize = end.handshake().await;
            (end, initialize)
        });
    let announced = &initialize["request"]["hooks"];
    for event in events {
        let blocks = FORBIDDING.contains(&event);
        let expected = if blocks { json!("block") } else { Value::Null };
        assert_eq!(announced[event][0]["onFailure"], expected, "{event}");
        let ours = Timeouts::default().hook.unwrap();
        assert!(announced[event][0]["timeout"].as_f64().unwrap() > ours.as_secs_f64(), "{announced}");
    }
    assert_eq!(announced["PreToolUse"][1]["onFailure"], Value::Null);
    stop(session.unwrap(), end).await;
}
