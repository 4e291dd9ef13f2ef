//! Hooks that are late, fail or panic on the real CLI: what they were asked about does not happen.

use std::time::Duration;

use greenroom::callback::CallbackContext;
use greenroom::hook::{HookOutput, OnFailure, PreToolUseOutput};
use greenroom::{Event, Hook, PermissionDecision, hook};
use greenroom_testkit::{Fault, Script};

use super::callbacks::{add, bash};
use crate::stage::{SOON, Stage, answers, event, in_time, outcome, start, stop, text};

/// A hook that fails in this way.
fn failing(event: &str, how: &'static str) -> Hook {
    let hook = Hook::new(event, move |_, _| async move {
        match how {
            "error" => Err("the policy is lost"),
            "null" => Ok(HookOutput::raw(serde_json::Value::Null)),
            "panic" => panic!("the policy burns"),
            _ => std::future::pending().await,
        }
    });
    // No other kind of failure takes time.
    hook.timeout(if how == "late" { Duration::from_millis(300) } else { SOON })
}

/// Each way to fail, and what the reason contains then.
const FAILURES: [(&str, &str); 4] = [
    ("error", "the policy is lost"),
    ("null", "answered with null"),
    ("panic", "the policy burns"),
    ("late", "did not answer within 300ms"),
];

// Guards: a hook that may forbid fails: an error, a panic, its limit, an input that does not fit
#[tokio::test]
async fn a_failed_pre_tool_use_hook_keeps_the_call_from_running() {
    let script = FAILURES.iter().fold(Script::new(), |all, _| all.turn(add()).turn(text("fine")));
    let Some(stage) = Stage::new(script.turn(add()).turn(text("fine"))).await else { return };
    for (how, reason) in FAILURES {
        let session = start(stage.adding().hook(failing("PreToolUse", how))).await;
        let mut events = session.events();
        answers(&session, "add", "fine").await;
        let read = stage.read();
        assert!(read.is_error && read.text.contains(reason), "{how}: {read:?}");
        let named = event(&mut events, "the failure", |event| match event {
            Event::CallbackFailed { hook, .. }
            | Event::CallbackPanicked { hook, .. }
            | Event::CallbackTimedOut { hook, .. } => hook.clone(),
            _ => None,
        });
        assert_eq!(named.await, "PreToolUse");
        stop(&session).await;
    }

    let passing = failing("PreToolUse", "error").on_failure(OnFailure::Continue);
    let session = start(stage.adding().hook(passing)).await;
    answers(&session, "add", "fine").await;
    assert_eq!(stage.read().text, "5");
    stop(&session).await;
}

// Guards: a hook that may forbid fails: an error, a panic, its limit, an input that does not fit
#[tokio::test]
async fn a_failed_permission_request_hook_denies() {
    let script = FAILURES
        .iter()
        .fold(Script::new(), |all, (how, _)| all.turn(bash(&format!("touch {how}"))).turn(text("well")));
    let Some(stage) = Stage::new(script).await else { return };
    for (how, reason) in FAILURES {
        // The permission handler would allow, but the hook is faster.
        let builder = stage.builder().can_use_tool(async |_, cx: CallbackContext| {
            cx.cancelled().await;
            PermissionDecision::allow()
        });
        let session = start(builder.hook(failing("PermissionRequest", how))).await;
        answers(&session, "touch it", "well").await;
        let read = stage.read();
        assert!(read.is_error && read.text.contains(reason), "{how}: {read:?}");
        assert!(!stage.cwd.path().join(how).exists(), "{how}: the command ran");
        stop(&session).await;
    }
}

// Guards: a hook that may forbid fails: an error, a panic, its limit, an input that does not fit
#[tokio::test]
async fn a_failed_user_prompt_submit_hook_keeps_the_prompt_from_the_model() {
    let Some(stage) = Stage::new(Script::new().otherwise(text("I know now."))).await else { return };
    for (how, _) in FAILURES {
        let session = start(stage.builder().hook(failing("UserPromptSubmit", how))).await;
        outcome(&session, "the secret is 42").await;
        stop(&session).await;
        let asked = stage.model.requests();
        assert!(asked.is_empty(), "{how}: the model was asked {asked:?}");
    }
}

/// A hook that never ran cannot forbid anything by an answer of its own; the CLI blocks because of `onFailure`.
// Guards: a hook that may forbid fails: an error, a panic, its limit, an input that does not fit
// Guards: the callbacks' actor ends while a hook or a permission is open
#[tokio::test]
async fn a_hook_that_is_refused_at_capacity_keeps_the_call_from_running() {
    let Some(stage) = Stage::new(Script::new().turn(add()).turn(text("fine"))).await else { return };
    let (open, opened) = tokio::sync::watch::channel(false);
    let pass = move |_, _| {
        let mut opened = opened.clone();
        async move {
            opened.wait_for(|open| *open).await.unwrap();
            PreToolUseOutput::pass()
        }
    };
    let builder = stage.adding().configure(|options| options.limits.calls_in_flight = 1);
    let session =
        start(builder.hook(Hook::on(hook::PreToolUse, pass.clone())).hook(Hook::on(hook::PreToolUse, pass)))
            .await;
    let mut events = session.events();
    let turn = answers(&session, "add", "fine");
    let full = async {
        event(&mut events, "the refusal", |event| matches!(event, Event::AtCapacity { .. }).then_some(()))
            .await;
        open.send_replace(true);
    };
    tokio::join!(turn, full);
    let read = stage.read();
    assert!(read.is_error && read.text.contains("onFailure"), "{read:?}");
    stop(&session).await;
}

/// Every open request of the callbacks is answered with an error then.
// Guards: the callbacks' actor ends while a hook or a permission is open
#[tokio::test]
async fn callbacks_that_end_let_nothing_through() {
    for what in ["PreToolUse", "PermissionRequest", "UserPromptSubmit", "permission"] {
        let script = Script::new().turn(bash("touch ran")).otherwise(text("well"));
        let Some(stage) = Stage::new(script).await else { return };
        let (asked, mut asking) = tokio::sync::mpsc::unbounded_channel();
        let decides = asked.clone();
        let mut builder = stage.builder().can_use_tool(move |_, cx: CallbackContext| {
            let decides = decides.clone();
            async move {
                if what == "permission" {
                    decides.send(()).unwrap();
                }
                if what != "PreToolUse" {
                    cx.cancelled().await;
                }
                PermissionDecision::allow()
            }
        });
        if what != "permission" {
            builder = builder.hook(Hook::new(what, move |_, _| {
                let asked = asked.clone();
                async move {
                    asked.send(()).unwrap();
                    std::future::pending::<HookOutput>().await
                }
            }));
        }
        let session = start(builder).await;
        let mut turn = session.prompt("touch it").await.unwrap();
        in_time("the request", asking.recv()).await.unwrap();
        session.inject(Fault::PanicCallbacks);
        in_time("the turn", turn.outcome()).await.unwrap();
        assert!(!stage.cwd.path().join("ran").exists(), "{what}: the command ran");
        let asked = stage.model.requests();
        assert_eq!(asked.len(), if what == "UserPromptSubmit" { 0 } else { 2 }, "{what}: {asked:?}");
        stop(&session).await;
    }
}

/// Longer than the 60 s that hooks of some hosts have by default.
const REVIEW: Duration = Duration::from_secs(75);

// Guards: a hook that may forbid fails: an error, a panic, its limit, an input that does not fit
#[tokio::test]
async fn a_hook_that_takes_75_seconds_denies() {
    let Some(stage) = Stage::new(Script::new().turn(add()).turn(text("fine"))).await else { return };
    let review = Hook::on(hook::PreToolUse, async |_, _| {
        tokio::time::sleep(REVIEW).await;
        PreToolUseOutput::deny("the review says no")
    });
    let session = start(stage.adding().hook(review)).await;
    let mut turn = session.prompt("add").await.unwrap();
    let outcome = in_time("the turn", turn.outcome()).await.unwrap();
    assert_eq!(outcome.text(), Some("fine"), "{outcome:?}");
    let read = stage.read();
    assert!(read.is_error && read.text.contains("the review says no"), "{read:?}");
    stop(&session).await;
}
