//! Permissions, hooks, elicitations and dialogs: what each answers, and what is answered for those that fail.

use std::time::Duration;

use crate::common::*;
use greenroom::callback::{CallbackContext, DialogAnswer, ElicitationAnswer};
use greenroom::hook::{HookOutput, OnFailure};
use greenroom::options::OLDEST_CLI;
use greenroom::permission::{Answers, Question};
use greenroom::report::Events;
use greenroom::{
    ErrorKind, Event, Hook, PermissionDecision, PermissionRequest, Session, SessionBuilder, hook,
};
use greenroom_testkit::{CliEnd, ScriptedCli};
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

/// The next `CallbackTimedOut`: the kind of callback, the event of a hook, and the limit.
async fn timed_out(events: &mut Events) -> (&'static str, Option<String>, Duration) {
    event(events, |event| match event {
        Event::CallbackTimedOut { callback, hook, limit, .. } => Some((*callback, hook.clone(), *limit)),
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

// Guards: a permission handler fails or is too late
#[tokio::test(start_paused = true)]
async fn a_permission_handler_that_panics_denies() {
    let (session, mut end, _listener) = start_by_hand(permissions()).await;
    let answer = ask(&mut end, may_run("Bad")).await;
    assert_eq!(answer["behavior"], "deny");
    assert_eq!(answer["message"], "the permission handler panicked: no decision");
    assert_eq!(counters(&session).await.panics, 1);
    stop(session, end).await;
}

// Guards: a permission handler fails or is too late
#[tokio::test(start_paused = true)]
async fn a_late_permission_is_denied_and_one_without_a_limit_waits() {
    let limit = Duration::from_secs(20);
    let builder = permissions().configure(|options| options.timeouts.permission = Some(limit));
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut events = session.events();
    let asked = Instant::now();
    let answer = ask(&mut end, may_run("Slow")).await;
    assert_eq!((&answer["behavior"], asked.elapsed()), (&json!("deny"), limit));
    assert!(answer["message"].as_str().unwrap().contains("did not answer within 20s"), "{answer}");
    assert_eq!(timed_out(&mut events).await, ("permission", None, limit));
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
    let mut events = session.events();
    let answer = ask(&mut end, json!({ "subtype": "can_use_tool", "input": {} })).await;
    assert!(refused(&answer).contains("tool_name"), "{answer}");
    assert!(failed(&mut events).await.2.contains("tool_name"));
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
            "PreToolUse": [{ "matcher": "Bash|Read", "hookCallbackIds": ["hook_0"], "timeout": 605.0, "onFailure": "block" }],
            "PostToolUse": [{ "hookCallbackIds": ["hook_1"], "timeout": 605.0 }],
            "Stop": [{ "hookCallbackIds": ["hook_2"], "timeout": 605.0 }],
        }),
        "the limits are the session's, with the grace time on top, so that ours passes first"
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
    let slow = move |_, cx: CallbackContext| {
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
        .hook(Hook::new("Stop", slow).timeout(Duration::from_secs(2)))
        .configure(|options| options.timeouts.hook = Some(Duration::from_secs(120)));
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut events = session.events();
    let stops = || json!({ "hook_event_name": "Stop" });
    for unknown in ["hook_3", "hook_", "callback_1", ""] {
        let answer = ask(&mut end, hook_call(unknown, stops())).await;
        assert_eq!(refused(&answer), format!("the host has no hook '{unknown}'"));
    }
    let answer = ask(&mut end, hook_call("hook_0", stops())).await;
    assert_eq!(refused(&answer), "the Stop hook panicked: off the hook");
    for (callback_id, limit) in [("hook_1", 120), ("hook_2", 2)] {
        let asked = Instant::now();
        let limit = Duration::from_secs(limit);
        let answer = ask(&mut end, hook_call(callback_id, stops())).await;
        assert_eq!(refused(&answer), format!("the Stop hook did not answer within {limit:?}"));
        assert_eq!(asked.elapsed(), limit);
        assert_eq!(timed_out(&mut events).await, ("hook", Some("Stop".into()), limit));
        within(SOON, cancelled.recv()).await.unwrap();
    }
    settled(&mut end).await;
    let counters = counters(&session).await;
    assert_eq!((counters.panics, counters.timeouts, counters.late_answers), (1, 2, 2));
    stop(session, end).await;
}

/// Starts a session with a hook that must block on a CLI that answers `initialize` like this.
async fn start_with_blocking_hook(mut answer: Value) -> greenroom::Result<(Session, CliEnd)> {
    let hook = Hook::new("PreToolUse", async |_, _| HookOutput::pass()).on_failure(OnFailure::Block);
    let (transport, mut listener) = ScriptedCli::by_hand();
    let (session, end) = within(SOON, async {
        tokio::join!(Session::builder().hook(hook).transport(transport).start(), async {
            let mut end = listener.accept().await;
            let initialize = end.expect_request("initialize").await;
            assert_eq!(initialize["request"]["hooks"]["PreToolUse"][0]["onFailure"], "block");
            let supported = answer["hook_on_failure_supported"] == true && answer["hooks_applied"] != false;
            answer["claude_code_version"] = json!(OLDEST_CLI);
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
async fn declared_dialogs_are_answered_and_others_are_left_to_the_cli() {
    let builder = Session::builder().on_dialog(["retry", "bad", "slow"], async |request, _| {
        match request.dialog_kind.as_str() {
            "retry" => DialogAnswer::Completed(request.payload.into()),
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

/// The next `CallbackFailed`: the kind of callback, the event of a hook, and the error.
async fn failed(events: &mut Events) -> (&'static str, Option<String>, String) {
    event(events, |event| match event {
        Event::CallbackFailed { callback, hook, message, .. } => {
            Some((*callback, hook.clone(), message.clone()))
        }
        _ => None,
    })
    .await
}

// Guards: another hook fails, or one registered with `OnFailure::Continue`
// Guards: a permission handler fails or is too late
#[tokio::test(start_paused = true)]
async fn an_error_of_a_handler_is_answered_and_told() {
    let builder = Session::builder()
        .can_use_tool(async |request, _| match request.tool_name.as_str() {
            "Text" => Ok(PermissionDecision::allow_with(json!("no object"))),
            _ => Err("the policy is lost"),
        })
        .on_elicitation(async |_, _| Err::<ElicitationAnswer, _>("nobody is there"))
        .on_dialog(["retry"], async |_, _| Err::<DialogAnswer, _>("nobody is there"))
        .hook(Hook::on(hook::Stop, async |_, _| Err::<hook::StopOutput, _>("the hook is off")))
        .hook(Hook::new("OfTomorrow", async |_, _| HookOutput::raw(Value::Null)));
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut events = session.events();

    let denied = |message: &str| json!({ "behavior": "deny", "message": message });
    let answer = ask(&mut end, may_run("Bash")).await;
    assert_eq!(answer, denied("the permission handler failed: the policy is lost"));
    let told = failed(&mut events).await;
    assert_eq!(told, ("permission", None, "the policy is lost".into()));

    let answer = ask(&mut end, may_run("Text")).await;
    let problem = "allowed the call with arguments that are no object";
    assert_eq!(answer, denied(&format!("the permission handler failed: {problem}")));
    assert_eq!(failed(&mut events).await.2, problem);

    assert_eq!(ask(&mut end, elicitation("files")).await, json!({ "action": "cancel" }));
    assert_eq!(failed(&mut events).await.0, "elicitation");
    assert_eq!(ask(&mut end, dialog("retry")).await, json!({ "behavior": "cancelled" }));
    assert_eq!(failed(&mut events).await.0, "dialog");

    let answer = ask(&mut end, hook_call("hook_0", json!({ "stop_hook_active": false }))).await;
    assert_eq!(refused(&answer), "the Stop hook failed: the hook is off");
    assert_eq!(failed(&mut events).await, ("hook", Some("Stop".into()), "the hook is off".into()));

    // The CLI would count null as a failure without telling anybody.
    let answer = ask(&mut end, hook_call("hook_1", json!({}))).await;
    assert_eq!(refused(&answer), "the OfTomorrow hook failed: answered with null, which is no object");
    assert_eq!(failed(&mut events).await.1.as_deref(), Some("OfTomorrow"));
    stop(session, end).await;
}

// Guards: a hook that may forbid fails: an error, a panic, its limit, an input that does not fit
#[tokio::test(start_paused = true)]
async fn input_that_does_not_fit_a_typed_hook_blocks() {
    let builder = Session::builder().hook(Hook::on(hook::PreToolUse, async |input, cx| {
        assert_eq!(cx.tool_use_id(), Some("toolu_7"));
        hook::PreToolUseOutput::deny(input.tool_name)
    }));
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut events = session.events();
    let input = json!({ "hook_event_name": "PreToolUse", "tool_input": {}, "tool_use_id": "toolu_7" });
    let answer = ask(&mut end, hook_call("hook_0", input)).await;
    let problem = "its input cannot be read: missing field `tool_name`";
    let said = &answer["hookSpecificOutput"];
    assert_eq!(said["permissionDecision"], "deny", "{answer}");
    let reason = said["permissionDecisionReason"].as_str().unwrap();
    assert!(reason.starts_with(&format!("the PreToolUse hook failed: {problem}")), "{answer}");
    assert!(failed(&mut events).await.2.starts_with(problem));

    // serde_json would read this object as the text in it: the hook would see other arguments than the tool is given.
    let disguised = json!({ "$serde_json::private::RawValue": "{}" });
    let input = json!({ "tool_name": "Bash", "tool_input": disguised, "tool_use_id": "toolu_7" });
    let answer = ask(&mut end, hook_call("hook_0", input)).await;
    let reason = answer["hookSpecificOutput"]["permissionDecisionReason"].as_str().unwrap();
    assert!(reason.contains("its input cannot be read: a field is called"), "{answer}");

    let input = json!({ "tool_name": "Bash", "tool_input": {}, "tool_use_id": "toolu_7", "of_tomorrow": 1 });
    let answer = ask(&mut end, hook_call("hook_0", input)).await;
    let specific = json!({
        "hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": "Bash",
    });
    assert_eq!(answer, json!({ "hookSpecificOutput": specific }));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn hooks_of_one_event_run_at_the_same_time() {
    let barrier = std::sync::Arc::new(tokio::sync::Barrier::new(3));
    let mut builder = Session::builder();
    for number in 0..3 {
        let barrier = barrier.clone();
        builder = builder.hook(Hook::on(hook::Stop, move |_, _| {
            let barrier = barrier.clone();
            async move {
                barrier.wait().await;
                hook::StopOutput::block(number.to_string())
            }
        }));
    }
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let input = json!({ "stop_hook_active": false });
    let ids: Vec<_> =
        (0..3).map(|number| end.request(hook_call(&format!("hook_{number}"), input.clone()))).collect();
    for (number, request_id) in ids.iter().enumerate() {
        let answer = within(SOON, end.answer_to(request_id)).await;
        assert_eq!(answer["reason"], number.to_string(), "each hook answers its own request");
    }
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_cannot_block_is_refused_before_anything_starts() {
    for event in ["Stop", "SubagentStop", "TaskCompleted", "TeammateIdle"] {
        let hook = Hook::new(event, async |_, _| HookOutput::pass()).on_failure(OnFailure::Block);
        let (transport, _listener) = ScriptedCli::by_hand();
        let error = Session::builder().hook(hook).transport(transport).start().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
        assert!(error.to_string().contains(event), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn questions_have_a_handler_of_their_own() {
    let question = || {
        let mut asked = may_run("AskUserQuestion");
        asked["input"] = json!({ "questions": [{ "question": "Why?", "header": "Why", "options": [] }] });
        asked
    };
    let handler = async |questions: Vec<Question>, _| {
        Answers::new()
            .answer(questions[0].question.as_str(), "because")
            .unanswered("Why?", greenroom::permission::Unanswered::Dismissed)
    };
    let (session, mut end, _listener) = start_by_hand(permissions().on_question(handler)).await;
    let mut expected = question()["input"].clone();
    expected["answers"] = json!({ "Why?": "because" });
    assert_eq!(ask(&mut end, question()).await["updatedInput"], expected, "it knows no `unanswered`");
    assert_eq!(ask(&mut end, may_run("Denied")).await["message"], "not today");
    // The CLI tells most of its capabilities with each turn.
    let mut messages = session.messages();
    end.message(json!({
        "type": "system", "subtype": "init", "capabilities": ["ask_user_question_unanswered_v1"],
    }));
    within(SOON, messages.next()).await.unwrap();
    expected["annotations"] = json!({ "Why?": { "unanswered": "dismissed" } });
    assert_eq!(ask(&mut end, question()).await["updatedInput"], expected);
    stop(session, end).await;

    let failing = Session::builder().on_question(async |_, _| Err::<Answers, _>("nobody is there"));
    let (session, mut end, _listener) = start_by_hand(failing).await;
    let answer = ask(&mut end, question()).await;
    assert_eq!(
        answer,
        json!({ "behavior": "deny", "message": "the question handler failed: nobody is there" })
    );
    assert_eq!(ask(&mut end, may_run("Bash")).await["behavior"], "deny", "nobody decides on anything else");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn unreadable_questions_are_denied_and_reach_no_other_handler() {
    let asked = |questions: Value| {
        let mut asked = may_run("AskUserQuestion");
        asked["input"] = json!({ "questions": questions });
        asked
    };
    let builder = Session::builder()
        .can_use_tool(async |_, _| PermissionDecision::allow())
        .on_question(async |questions, _| Answers::new().answer(questions[0].question.as_str(), "because"));
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut events = session.events();
    let odd = json!([{ "question": "Why?", "header": null, "options": [{ "description": "no label" }] }]);
    let answer = ask(&mut end, asked(odd)).await;
    assert_eq!(answer["updatedInput"]["answers"], json!({ "Why?": "because" }), "{answer}");

    for unreadable in [json!([{ "header": "no question" }]), json!("Why?"), Value::Null] {
        let answer = ask(&mut end, asked(unreadable)).await;
        assert_eq!(answer["behavior"], "deny", "{answer}");
        let message = answer["message"].as_str().unwrap();
        assert!(
            message.starts_with("the question handler failed: the questions cannot be read"),
            "{message}"
        );
        let (callback, _, told) = failed(&mut events).await;
        assert_eq!(callback, "question");
        assert!(told.starts_with("the questions cannot be read"), "{told}");
    }
    assert_eq!(ask(&mut end, may_run("Bash")).await["behavior"], "allow");
    stop(session, end).await;
}

/// Answers `initialize` with what is pending; the requests beside it are written first.
async fn start_with_pending(
    builder: SessionBuilder,
    before: &[(&str, Value)],
    pending: Value,
) -> (Session, CliEnd, greenroom_testkit::ScriptedListener) {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let (session, end) = within(SOON, async {
        tokio::join!(builder.transport(transport).start(), async {
            let mut end = listener.accept().await;
            let initialize = end.expect_request("initialize").await;
            for (request_id, body) in before {
                end.send(control_request(request_id, body));
            }
            let mut response = json!({ "subtype": "success", "request_id": initialize["request_id"],
                "response": { "claude_code_version": OLDEST_CLI } });
            for (list, requests) in pending.as_object().unwrap() {
                response[list] = requests.clone();
            }
            end.send(json!({ "type": "control_response", "response": response }));
            end
        })
    })
    .await;
    (session.unwrap(), end, listener)
}

fn control_request(request_id: &str, body: &Value) -> Value {
    json!({ "type": "control_request", "request_id": request_id, "request": body })
}

// Guards: the CLI lists a request as pending that is open or was answered
#[tokio::test(start_paused = true)]
async fn what_the_cli_lists_as_pending_is_asked_once() {
    let (told, mut asked) = mpsc::unbounded_channel();
    let (release, released) = tokio::sync::watch::channel(false);
    let permission = told.clone();
    let builder = Session::builder()
        .can_use_tool(move |request: PermissionRequest, cx: CallbackContext| {
            let (told, mut released) = (permission.clone(), released.clone());
            async move {
                told.send((cx.request_id().to_owned(), request.tool_name.clone())).unwrap();
                if request.tool_name == "Slow" {
                    released.wait_for(|released| *released).await.unwrap();
                }
                PermissionDecision::deny(request.tool_name)
            }
        })
        .on_dialog(["retry"], async |_, _| DialogAnswer::Completed(json!(1)))
        .on_elicitation(async |_, _| ElicitationAnswer::Decline);
    let pending = json!({
        "pending_permission_requests": [control_request("live", &may_run("Slow")), control_request("old", &may_run("Old"))],
        "pending_user_dialog_requests": [
            control_request("dialog", &dialog("retry")), control_request("undeclared", &dialog("other")),
        ],
        "pending_elicitation_requests": [control_request("elicitation", &elicitation("files"))],
    });
    let live = [("live", may_run("Slow"))];
    let (session, mut end, _listener) = start_with_pending(builder, &live, pending).await;
    assert_eq!(within(SOON, end.answer_to("old")).await["message"], "Old");
    assert_eq!(within(SOON, end.answer_to("dialog")).await["result"], 1);
    assert_eq!(within(SOON, end.answer_to("elicitation")).await["action"], "decline");
    release.send(true).unwrap();
    assert_eq!(within(SOON, end.answer_to("live")).await["message"], "Slow");

    // The answers cross another list: a settled request is not asked again, though its id may be reused live.
    let control = session.requests().control(json!({ "subtype": "reinitialize" }));
    let (answered, ()) = tokio::join!(control, async {
        let request = end.expect_request("reinitialize").await;
        end.send(json!({ "type": "control_response", "response": {
            "subtype": "error", "request_id": request["request_id"], "error": "no",
            "pending_permission_requests": [control_request("old", &may_run("Old")), control_request("new", &may_run("New"))],
        } }));
    });
    answered.unwrap_err();
    assert_eq!(within(SOON, end.answer_to("new")).await["message"], "New");
    let frames = settled(&mut end).await;
    for request_id in ["live", "old", "undeclared"] {
        assert_eq!(answers(&frames, request_id).len(), 0, "{frames:?}");
    }
    drop(session.snapshot().await.unwrap());
    let mut order: Vec<_> = std::iter::from_fn(|| asked.try_recv().ok()).collect();
    order.sort();
    let of = |id: &str, tool: &str| (id.to_owned(), tool.to_owned());
    assert_eq!(order, [of("live", "Slow"), of("new", "New"), of("old", "Old")]);
    assert_eq!(counters(&session).await.duplicate_requests, 0, "it is no fault of the CLI");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn an_undeclared_dialog_is_left_unanswered_at_capacity_too() {
    let builder = Session::builder()
        .can_use_tool(async |_, _| std::future::pending::<PermissionDecision>().await)
        .on_dialog(["retry"], async |_, _| DialogAnswer::Cancelled)
        .configure(|options| options.limits.calls_in_flight = 1);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    end.request(may_run("Bash"));
    let undeclared = end.request(dialog("other"));
    let declared = end.request(dialog("retry"));
    assert!(refused(&within(SOON, end.answer_to(&declared)).await).contains("at capacity"));
    let frames = end.transcript();
    assert!(!frames.contains(&format!(r#""request_id":"{undeclared}","response""#)), "{frames}");
    let counters = counters(&session).await;
    assert_eq!((counters.at_capacity, counters.orphaned), (1, 1));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn hooks_that_a_cli_did_not_take_are_told() {
    let mut builder = Session::builder().hook(Hook::on(hook::Stop, async |_, _| hook::StopOutput::pass()));
    let mut events = builder.events();
    let (transport, mut listener) = ScriptedCli::by_hand();
    let (session, end) = within(SOON, async {
        tokio::join!(builder.transport(transport).start(), async {
            let mut end = listener.accept().await;
            let initialize = end.expect_request("initialize").await;
            end.answer(&initialize, json!({ "claude_code_version": OLDEST_CLI, "hooks_applied": false }));
            end
        })
    })
    .await;
    let epoch = event(&mut events, |event| match event {
        Event::HooksNotApplied { epoch } => Some(*epoch),
        _ => None,
    });
    assert_eq!(epoch.await, 1);
    stop(session.unwrap(), end).await;
}
