//! Permissions, hooks, elicitations and dialogs: what each answers, and what is answered for those that fail.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::*;
use greenroom::testkit::{CliEnd, ScriptedCli};
use greenroom::{
    DialogAnswer, ElicitationAnswer, ErrorKind, Event, Events, Hook, HookOutput, OnFailure,
    PermissionDecision, Session, SessionBuilder,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Asks something and waits for the answer: the body, or the whole inner object if it is an error.
async fn ask(end: &mut CliEnd, body: Value) -> Value {
    let request_id = end.request(body);
    within(SOON, end.answer_to(&request_id)).await
}

fn may_run(tool: &str) -> Value {
    json!({
        "subtype": "can_use_tool", "tool_name": tool, "input": { "command": "ls" }, "tool_use_id": "toolu_7",
        "permission_suggestions": [{ "type": "addRules" }], "title": "List files?",
    })
}

/// The text of an error reply.
fn refused(answer: &Value) -> &str {
    assert_eq!(answer["subtype"], "error", "{answer}");
    answer["error"].as_str().unwrap()
}

async fn timed_out(events: &mut Events) -> (String, String, Duration) {
    event(events, |event| match event {
        Event::CallTimedOut { server, tool, limit, .. } => Some((server.clone(), tool.clone(), *limit)),
        _ => None,
    })
    .await
}

fn permissions() -> SessionBuilder {
    Session::builder().can_use_tool(async |request, cx| {
        assert_eq!(request.input, json!({ "command": "ls" }));
        assert_eq!(
            (request.tool_use_id.as_deref(), request.title.as_deref()),
            (Some("toolu_7"), Some("List files?"))
        );
        assert!(cx.request_id().starts_with("cli_1_"));
        match request.tool_name.as_str() {
            "Allowed" => PermissionDecision::allow(),
            "Changed" => PermissionDecision::allow_with(json!({ "command": "ls -l" }))
                .update(request.permission_suggestions[0].clone()),
            "Denied" => PermissionDecision::deny("not today"),
            "Ended" => PermissionDecision::deny_and_interrupt("enough"),
            "Bad" => panic!("no decision"),
            _ => std::future::pending().await,
        }
    })
}

#[tokio::test(start_paused = true)]
async fn permissions_are_answered_as_the_handler_decides() {
    let (session, mut end, _listener) = start_by_hand(permissions()).await;
    for (tool, answer) in [
        ("Allowed", json!({ "behavior": "allow", "updatedInput": { "command": "ls" } })),
        (
            "Changed",
            json!({
                "behavior": "allow", "updatedInput": { "command": "ls -l" },
                "updatedPermissions": [{ "type": "addRules" }],
            }),
        ),
        ("Denied", json!({ "behavior": "deny", "message": "not today" })),
        ("Ended", json!({ "behavior": "deny", "message": "enough", "interrupt": true })),
    ] {
        let mut expected = answer;
        expected["toolUseID"] = json!("toolu_7");
        assert_eq!(ask(&mut end, may_run(tool)).await, expected);
    }
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_permission_handler_that_panics_denies() {
    let (session, mut end, _listener) = start_by_hand(permissions()).await;
    let answer = ask(&mut end, may_run("Bad")).await;
    assert_eq!(answer["behavior"], "deny");
    assert_eq!(answer["message"], "the permission handler panicked: no decision");
    assert_eq!(counters(&session).await.panics, 1);
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_permission_that_is_decided_too_late_is_denied_and_one_without_a_limit_waits() {
    let limit = Duration::from_secs(20);
    let builder = permissions().configure(|options| options.timeouts.permission = Some(limit));
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut events = session.events();
    let asked = Instant::now();
    let answer = ask(&mut end, may_run("Slow")).await;
    assert_eq!((&answer["behavior"], asked.elapsed()), (&json!("deny"), limit));
    assert!(answer["message"].as_str().unwrap().contains("did not answer within 20s"), "{answer}");
    assert_eq!(timed_out(&mut events).await, ("callbacks".into(), "permission".into(), limit));
    stop(session, end).await;

    // A person may be thinking.
    let (decide, decided) = tokio::sync::watch::channel(false);
    let builder = Session::builder().can_use_tool(move |_, _| {
        let mut decided = decided.clone();
        async move {
            decided.wait_for(|decided| *decided).await.ok();
            PermissionDecision::allow()
        }
    });
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let request_id = end.request(may_run("Slow"));
    tokio::time::sleep(Duration::from_secs(24 * 60 * 60)).await;
    assert_eq!(answers(&settled(&mut end).await, &request_id).len(), 0);
    decide.send(true).unwrap();
    assert_eq!(within(SOON, end.answer_to(&request_id)).await["behavior"], "allow");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_handler_a_permission_is_an_error_and_never_an_allowance() {
    let (session, mut end, _listener) = start_by_hand(Session::builder()).await;
    assert!(refused(&ask(&mut end, may_run("Bash")).await).contains("no permission handler"));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_permission_request_that_cannot_be_read_is_an_error() {
    let (session, mut end, _listener) = start_by_hand(permissions()).await;
    let answer = ask(&mut end, json!({ "subtype": "can_use_tool", "input": {} })).await;
    assert!(refused(&answer).contains("tool_name"), "{answer}");
    stop(session, end).await;
}

fn hook_call(callback_id: &str, input: Value) -> Value {
    json!({ "subtype": "hook_callback", "callback_id": callback_id, "input": input, "tool_use_id": "toolu_7" })
}

#[tokio::test(start_paused = true)]
async fn hooks_are_announced_and_answer_what_they_say() {
    let builder = Session::builder()
        .hook(
            Hook::new("PreToolUse", async |input, _| {
                assert_eq!(input.event(), "PreToolUse");
                match input.field("tool_name").as_str() {
                    Some("Bash") => HookOutput::permission("deny", "no shell here"),
                    _ => HookOutput::pass(),
                }
            })
            .matcher("Bash|Read"),
        )
        .hook(Hook::new("PostToolUse", async |input, _| {
            HookOutput::specific(json!({ "additionalContext": input.field("tool_response") }))
        }))
        .hook(Hook::new("Stop", async |_, _| {
            HookOutput::raw(json!({ "decision": "block", "reason": "go on" }))
        }));
    let (transport, mut listener) = ScriptedCli::by_hand();
    let (session, (mut end, initialize)) = within(SOON, async {
        tokio::join!(builder.transport(transport).start(), async {
            let mut end = listener.accept().await;
            let initialize = end.handshake().await;
            (end, initialize)
        })
    })
    .await;
    let session = session.unwrap();
    assert_eq!(
        initialize["request"]["hooks"],
        json!({
            "PreToolUse": [{ "matcher": "Bash|Read", "hookCallbackIds": ["hook_0"], "timeout": 60.0 }],
            "PostToolUse": [{ "hookCallbackIds": ["hook_1"], "timeout": 60.0 }],
            "Stop": [{ "hookCallbackIds": ["hook_2"], "timeout": 60.0 }],
        }),
        "the limits are the session's, for the CLI as well"
    );
    let input = |tool: &str| json!({ "hook_event_name": "PreToolUse", "tool_name": tool });
    let denied = ask(&mut end, hook_call("hook_0", input("Bash"))).await;
    let specific = json!({
        "hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": "no shell here",
    });
    assert_eq!(denied, json!({ "hookSpecificOutput": specific }));
    assert_eq!(ask(&mut end, hook_call("hook_0", input("Read"))).await, json!({}));
    let input = json!({ "hook_event_name": "PostToolUse", "tool_response": "42" });
    let specific = json!({ "hookEventName": "PostToolUse", "additionalContext": "42" });
    assert_eq!(ask(&mut end, hook_call("hook_1", input)).await, json!({ "hookSpecificOutput": specific }));
    let blocked = ask(&mut end, hook_call("hook_2", json!({ "hook_event_name": "Stop" }))).await;
    assert_eq!(blocked, json!({ "decision": "block", "reason": "go on" }));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_is_not_there_panics_or_is_too_late_is_an_error() {
    let (told, mut cancelled) = mpsc::unbounded_channel();
    let slow = move |_, cx: greenroom::CallbackContext| {
        let told = told.clone();
        async move {
            cx.cancelled().await;
            told.send(()).ok();
            HookOutput::pass()
        }
    };
    let builder = Session::builder()
        .hook(Hook::new("Stop", async |_, _| -> HookOutput { panic!("off the hook") }))
        .hook(Hook::new("Stop", slow.clone()))
        .hook(Hook::new("Stop", slow).timeout(Duration::from_secs(2)));
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut events = session.events();
    let stops = || json!({ "hook_event_name": "Stop" });
    for unknown in ["hook_3", "hook_", "callback_1", ""] {
        let answer = ask(&mut end, hook_call(unknown, stops())).await;
        assert_eq!(refused(&answer), format!("the host has no hook '{unknown}'"));
    }
    let answer = ask(&mut end, hook_call("hook_0", stops())).await;
    assert_eq!(refused(&answer), "the Stop hook panicked: off the hook");
    for (callback_id, limit) in [("hook_1", 60), ("hook_2", 2)] {
        let asked = Instant::now();
        let limit = Duration::from_secs(limit);
        let answer = ask(&mut end, hook_call(callback_id, stops())).await;
        assert_eq!(refused(&answer), format!("the Stop hook did not answer within {limit:?}"));
        assert_eq!(asked.elapsed(), limit);
        assert_eq!(timed_out(&mut events).await, ("callbacks".into(), "hook".into(), limit));
        within(SOON, cancelled.recv()).await.unwrap();
    }
    settled(&mut end).await;
    let counters = counters(&session).await;
    assert_eq!((counters.panics, counters.timeouts, counters.late_answers), (1, 2, 2));
    stop(session, end).await;
}

/// Starts a session with a hook that must block on a CLI that answers `initialize` like this.
async fn start_with_blocking_hook(answer: Value) -> greenroom::Result<(Session, CliEnd)> {
    let hook = Hook::new("PreToolUse", async |_, _| HookOutput::pass()).on_failure(OnFailure::Block);
    let (transport, mut listener) = ScriptedCli::by_hand();
    let (session, end) = within(SOON, async {
        tokio::join!(Session::builder().hook(hook).transport(transport).start(), async {
            let mut end = listener.accept().await;
            let initialize = end.expect_request("initialize").await;
            assert_eq!(initialize["request"]["hooks"]["PreToolUse"][0]["onFailure"], "block");
            let supported = answer["hook_on_failure_supported"] == true && answer["hooks_applied"] != false;
            end.answer(&initialize, answer);
            if supported {
                return Some(end);
            }
            end.run_out().await;
            None
        })
    })
    .await;
    Ok((session?, end.unwrap()))
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_must_block_is_refused_on_a_cli_that_would_not() {
    for answer in [
        json!({ "commands": [] }),
        json!({ "hook_on_failure_supported": false }),
        json!({ "hook_on_failure_supported": true, "hooks_applied": false }),
    ] {
        let error = start_with_blocking_hook(answer.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InitializeRefused, "{answer}: {error}");
        assert!(error.to_string().contains("hook"), "{error}");
    }
    let answer = json!({ "hook_on_failure_supported": true, "hooks_applied": true });
    let (session, end) = start_with_blocking_hook(answer).await.unwrap();
    stop(session, end).await;
}

fn elicitation(name: &str) -> Value {
    json!({ "subtype": "elicitation", "mcp_server_name": name, "message": "Your name?", "requested_schema": {} })
}

#[tokio::test(start_paused = true)]
async fn elicitations_are_declined_without_a_handler() {
    let (session, mut end, _listener) = start_by_hand(Session::builder()).await;
    assert_eq!(ask(&mut end, elicitation("files")).await, json!({ "action": "decline" }));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn elicitations_are_answered_by_their_handler_and_cancelled_when_it_fails() {
    let builder =
        Session::builder().on_elicitation(async |request, _| match request.mcp_server_name.as_str() {
            "accepts" => ElicitationAnswer::Accept(json!({ "name": "ada" })),
            "declines" => ElicitationAnswer::Decline,
            "panics" => panic!("no answer"),
            _ => std::future::pending().await,
        });
    let limit = Duration::from_secs(9);
    let builder = builder.configure(|options| options.timeouts.permission = Some(limit));
    let (session, mut end, _listener) = start_by_hand(builder).await;
    for (server, answer) in [
        ("accepts", json!({ "action": "accept", "content": { "name": "ada" } })),
        ("declines", json!({ "action": "decline" })),
        ("panics", json!({ "action": "cancel" })),
    ] {
        assert_eq!(ask(&mut end, elicitation(server)).await, answer);
    }
    let asked = Instant::now();
    assert_eq!(ask(&mut end, elicitation("hangs")).await, json!({ "action": "cancel" }));
    assert_eq!(asked.elapsed(), limit);
    stop(session, end).await;
}

fn dialog(kind: &str) -> Value {
    json!({ "subtype": "request_user_dialog", "dialog_kind": kind, "payload": { "n": 1 } })
}

#[tokio::test(start_paused = true)]
async fn dialogs_of_declared_kinds_are_answered_and_all_others_are_left_to_the_cli() {
    let builder = Session::builder().on_dialog(["retry", "bad", "slow"], async |request, _| {
        match request.dialog_kind.as_str() {
            "retry" => DialogAnswer::Completed(request.payload),
            "bad" => panic!("no answer"),
            "slow" => std::future::pending().await,
            other => unreachable!("{other:?} was not declared"),
        }
    });
    let limit = Duration::from_secs(9);
    let builder = builder.configure(|options| options.timeouts.permission = Some(limit));
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let answer = ask(&mut end, dialog("retry")).await;
    assert_eq!(answer, json!({ "behavior": "completed", "result": { "n": 1 } }));
    assert_eq!(ask(&mut end, dialog("bad")).await, json!({ "behavior": "cancelled" }));
    let asked = Instant::now();
    assert_eq!(ask(&mut end, dialog("slow")).await, json!({ "behavior": "cancelled" }));
    assert_eq!(asked.elapsed(), limit);

    let undeclared = [end.request(dialog("other")), end.request(json!({ "subtype": "request_user_dialog" }))];
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let frames = settled(&mut end).await;
    for request_id in &undeclared {
        assert_eq!(answers(&frames, request_id).len(), 0, "{frames:?}");
    }
    assert!(session.snapshot().await.unwrap().router.unwrap().owed.is_empty());
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_handler_no_dialog_is_answered() {
    let (session, mut end, _listener) = start_by_hand(Session::builder()).await;
    let request_id = end.request(dialog("retry"));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(answers(&settled(&mut end).await, &request_id).len(), 0);
    stop(session, end).await;
}
