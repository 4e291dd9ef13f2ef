//! The typed views.

use greenroom::Message;
use greenroom::message::{
    ApiErrorKind, ContentBlock, InitMessage, SessionState, SystemDetail, TaskEvent, TaskStatus,
    TerminalReason,
};
use serde_json::{Value, json};

use super::view;

#[test]
fn an_assistant_message_has_text_and_tool_calls() {
    let said = view!(
        Assistant,
        json!({
            "type": "assistant", "parent_tool_use_id": "toolu_0", "agent_id": "a1", "aborted": true,
            "supersedes": ["u0"], "user_message_uuid": "p1", "user_message_uuids": ["p1", "p2"],
            "timestamp": "2026-01-02T03:04:05Z", "subagent_type": "general-purpose",
            "task_description": "count",
            "message": {
                "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": null,
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "text", "text": "Let me "}, {"type": "text", "text": "add."},
                    {"type": "tool_use", "id": "toolu_1", "name": "mcp__calc__add", "input": {"a": 5}},
                    {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
                ],
                "usage": {"input_tokens": 10, "output_tokens": 1, "service_tier": "standard"}
            }
        })
    );
    assert_eq!(said.text(), "Let me add.");
    let calls: Vec<_> = said.tool_uses().map(|call| (call.id, call.name, &call.input["a"])).collect();
    assert_eq!(calls, [("toolu_1", "mcp__calc__add", &json!(5))]);
    assert_eq!(said.message.content.iter().map(ContentBlock::kind).next_back(), Some("server_tool_use"));
    assert_eq!(said.message.usage.as_ref().unwrap().output_tokens, 1);
    assert_eq!((said.message.stop_reason.as_ref(), said.aborted, said.error.as_ref()), (None, true, None));
    assert_eq!((said.parent_tool_use_id(), said.agent_id.as_deref()), (Some("toolu_0"), Some("a1")));
    assert_eq!((said.supersedes.as_slice(), said.user_message_uuids().len()), (&["u0".to_owned()][..], 2));

    let message = Message::Assistant(said);
    assert_eq!(message.text().as_deref(), Some("Let me add."));
    assert_eq!((message.tool_uses().count(), message.tool_results().count()), (1, 0));
}

#[test]
fn a_user_message_has_tool_results() {
    let told = view!(
        User,
        json!({
            "type": "user", "isSynthetic": true, "origin": {"kind": "auto-continuation"},
            "tool_use_result": "Error: no",
            "message": {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": true, "content": "no"},
                {"type": "text", "text": "one"}, {"type": "text", "text": "two"}
            ]}
        })
    );
    let results: Vec<_> = told.tool_results().collect();
    assert_eq!((results.len(), results[0].tool_use_id, results[0].is_error), (1, "toolu_1", true));
    assert_eq!((told.text().as_str(), told.is_synthetic, told.is_replay), ("one\ntwo", true, false));
    assert_eq!(told.tool_use_result(), Some(json!("Error: no")));
    assert_eq!(told.origin.as_ref().unwrap().kind, "auto-continuation");
    assert_eq!(Message::User(told).text(), None);
}

#[test]
fn a_result_has_answer_cost_and_usage() {
    let end = view!(
        Result,
        json!({
            "subtype": "success", "result": "8", "is_error": false, "num_turns": 2, "duration_ms": 99.6,
            "duration_api_ms": 20, "total_cost_usd": 0, "stop_reason": "end_turn",
            "terminal_reason": "completed",
            "usage": {"input_tokens": 10, "cache_read_input_tokens": 4, "iterations": []},
            "api_error_status": null,
            "modelUsage": {"m": {"inputTokens": 10, "costUSD": 0.5, "costBasis": "list"}, "odd": 3},
            "permission_denials": [7, {"tool_name": "Bash", "tool_use_id": "t", "tool_input": {"command": 1}}],
            "structured_output": {"answer": 8}, "queued_turn_count": 0, "result_index": 3, "type": "result",
            "user_message_uuid": "p1", "origin": {"kind": "task-notification"}, "local_command": "compact"
        })
    );
    assert!(end.is_success() && end.error_text().is_none());
    assert_eq!((end.num_turns, end.duration_ms, end.duration_api_ms), (2, 100, 20));
    assert_eq!((end.total_cost_usd, end.queued_turn_count, end.result_index), (Some(0.0), Some(0), Some(3)));
    assert_eq!(end.usage.as_ref().unwrap().cache_read_input_tokens, 4);
    assert_eq!(end.usage.as_ref().unwrap().extra["iterations"], json!([]));
    assert_eq!((end.model_usage.len(), end.model_usage["m"].cost_usd), (1, Some(0.5)));
    assert_eq!(
        (end.permission_denials.len(), &end.permission_denials[0].tool_input["command"]),
        (1, &json!(1))
    );
    assert_eq!(end.structured_output, Some(json!({"answer": 8})));
    assert_eq!(
        (end.terminal_reason.as_ref().map(TerminalReason::as_str), end.stop_reason.as_deref()),
        (Some("completed"), Some("end_turn"))
    );
    assert_eq!(
        (end.user_message_uuids(), end.local_command.as_deref()),
        (&["p1".to_owned()][..], Some("compact"))
    );
}

#[test]
fn a_failed_result_has_an_error_text() {
    let why = |fields: Value| {
        let mut frame = json!({"type": "result"});
        frame.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        view!(Result, frame).error_text()
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(why(json!({"subtype": "success"})), None);
    assert_eq!(
        why(json!({"subtype": "success", "is_error": true, "result": "API Error: 400"})),
        some("API Error: 400")
    );
    let status = json!({"subtype": "success", "is_error": true, "result": "", "api_error_status": 529});
    assert_eq!(why(status), some("the API answered with status 529"));
    let silent = json!({"subtype": "success", "is_error": true});
    assert_eq!(why(silent), some("the turn failed; the CLI gave no reason"));
    let several = json!({"subtype": "error_during_execution", "errors": [" a ", "", 3, "b"], "result": "c"});
    assert_eq!(why(several), some("a; b"));
    assert_eq!(why(json!({"subtype": "error_max_turns", "is_error": false})), some("error_max_turns"));
    assert!(!view!(Result, json!({"type": "result", "subtype": "error_max_turns"})).is_success());
}

#[test]
fn init_describes_the_session() {
    let notice = view!(
        System,
        json!({
            "type": "system", "subtype": "init", "cwd": "/srv", "session_id": "s1",
            "tools": ["Bash", "mcp__calc__add"],
            "mcp_servers": [{"name": "calc", "status": "connected", "source": "sdk"}, 3],
            "model": "m", "permissionMode": "acceptEdits", "slash_commands": ["compact"],
            "apiKeySource": "none",
            "claude_code_version": "2.1.328", "output_style": "default", "agents": ["Explore", {"odd": 1}],
            "skills": [], "plugins": [{"name": "p", "path": "builtin"}], "capabilities": ["a_v1"],
            "betas": null,
            "user_message_uuids": ["p1"], "uuid": "u1"
        })
    );
    let init = notice.init().unwrap();
    assert_eq!((init.session_id.as_deref(), init.cwd.as_deref()), (Some("s1"), Some("/srv")));
    assert_eq!((init.tools.len(), init.agents.as_slice()), (2, &["Explore".to_owned()][..]));
    assert_eq!(init.mcp_servers.len(), 1);
    assert_eq!(init.mcp_server("calc").unwrap().source.as_deref(), Some("sdk"));
    assert_eq!(
        (init.permission_mode.as_deref(), init.api_key_source.as_deref()),
        (Some("acceptEdits"), Some("none"))
    );
    assert!(init.capabilities.iter().any(|name| name == "a_v1"));
    assert_eq!((notice.session_state(), notice.task(), notice.user_message_uuids().len()), (None, None, 1));

    let bare = view!(System, json!({"type": "system", "subtype": "init", "session_id": 3, "tools": {}}));
    assert_eq!(bare.init(), Some(&InitMessage::default()));
}

#[test]
fn unknown_states_are_kept() {
    let notice = |fields: Value| {
        let mut frame = json!({"type": "system", "subtype": "session_state_changed"});
        frame.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let notice = view!(System, frame);
        (notice.session_state(), notice.sdk_host_only())
    };
    assert_eq!(notice(json!({"state": "idle", "sdk_host_only": true})), (Some(SessionState::Idle), true));
    assert_eq!(notice(json!({"state": "running"})), (Some(SessionState::Running), false));
    assert_eq!(notice(json!({"state": "requires_action"})), (Some(SessionState::RequiresAction), false));
    assert_eq!(notice(json!({"state": "asleep"})), (Some(SessionState::Other("asleep".into())), false));
    assert_eq!(notice(json!({"state": 3, "sdk_host_only": true})), (None, true));
}

#[test]
fn tasks_start_and_end() {
    let task = |subtype: &str, fields: Value| {
        let mut frame = json!({"type": "system", "subtype": subtype, "task_id": "t1"});
        frame.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        view!(System, frame).task()
    };
    let ended = |event: Option<TaskEvent>| match event {
        Some(TaskEvent::Ended { task_id, status, .. }) if task_id == "t1" => status,
        other => panic!("{other:?}"),
    };
    let started = task("task_started", json!({"task_type": "local_agent"}));
    assert!(
        matches!(&started, Some(TaskEvent::Started { task_id, task_type: Some(kind), .. }) if task_id == "t1" && kind == "local_agent"),
        "{started:?}"
    );
    assert_eq!(ended(task("task_notification", json!({"status": "stopped"}))), TaskStatus::Stopped);
    assert_eq!(ended(task("task_notification", json!({"status": "lost"}))), TaskStatus::Other("lost".into()));
    assert_eq!(ended(task("task_notification", json!({}))), TaskStatus::Other(String::new()));
    for (word, status) in [
        ("completed", TaskStatus::Completed),
        ("failed", TaskStatus::Failed),
        ("stopped", TaskStatus::Stopped),
        ("killed", TaskStatus::Killed),
    ] {
        assert_eq!(ended(task("task_updated", json!({"patch": {"status": word, "error": "e"}}))), status);
    }
    for patch in [
        json!({"status": "running"}),
        json!({"status": "paused"}),
        json!({"is_backgrounded": true}),
        json!(3),
    ] {
        assert_eq!(task("task_updated", json!({"patch": patch})), None);
    }
    assert_eq!(task("task_progress", json!({"status": "completed"})), None);
    assert_eq!(task("task_started", json!({"task_id": null})), None);
}

/// In the shapes of CLI 2.1.328: an interrupted tool call, a failed API call, a failed start, a turn without a prompt.
#[test]
fn turns_end_as_cli_2_1_328_ends_them() {
    let told = view!(
        User,
        json!({
            "type": "user", "parent_tool_use_id": null, "timestamp": "2026-01-02T03:04:05.678Z",
            "tool_use_result": "refused",
            "message": {"role": "user", "content": [
                {"type": "tool_result", "content": "not run", "is_error": true, "tool_use_id": "toolu_1"}
            ]}
        })
    );
    assert!(told.tool_results().next().unwrap().is_error);
    let interrupted = view!(
        Result,
        json!({
            "stop_reason": "tool_use", "terminal_reason": "aborted_tools", "is_error": true, "num_turns": 3,
            "subtype": "error_during_execution", "errors": ["diagnostic"], "type": "result",
            "queued_turn_count": 0,
            "user_message_uuid": "p1", "user_message_uuids": ["p1"], "subagent_stats": {"spawned": 0}
        })
    );
    assert_eq!(interrupted.error_text().as_deref(), Some("diagnostic"));
    assert_eq!(
        (interrupted.terminal_reason.clone(), interrupted.result.as_ref()),
        (Some(TerminalReason::AbortedTools), None)
    );

    let said = view!(
        Assistant,
        json!({
            "type": "assistant", "parent_tool_use_id": null, "error": "model_not_found",
            "api_error_status": 404,
            "is_api_error_message": true, "api_error_type": "not_found_error",
            "message": {
                "id": "a1", "model": "<synthetic>", "role": "assistant", "stop_reason": "stop_sequence",
                "container": null, "context_management": null,
                "usage": {"input_tokens": 0, "output_tokens": 0},
                "content": [{"type": "text", "text": "no such model"}]
            }
        })
    );
    assert_eq!((said.error.clone(), said.api_error_status), (Some(ApiErrorKind::ModelNotFound), Some(404)));
    assert_eq!(said.message.model.as_deref(), Some("<synthetic>"));

    let no_start = view!(
        Result,
        json!({
            "type": "result", "subtype": "error_during_execution", "duration_ms": 0, "duration_api_ms": 0,
            "is_error": true, "num_turns": 0, "stop_reason": null, "total_cost_usd": 0, "usage": {},
            "modelUsage": {},
            "permission_denials": [], "errors": ["no such conversation"], "result_index": 0
        })
    );
    assert_eq!((no_start.queued_turn_count, no_start.user_message_uuids().len()), (None, 0));
    assert_eq!(no_start.error_text().as_deref(), Some("no such conversation"));

    let unprompted = view!(
        Result,
        json!({
            "origin": {"kind": "task-notification", "producer": "session-task", "runId": "r1"},
            "is_error": false,
            "subtype": "success", "result": "counted", "type": "result", "result_index": 1,
            "queued_turn_count": 0
        })
    );
    assert!(
        unprompted.is_success() && unprompted.user_message_uuids().is_empty() && unprompted.origin.is_some()
    );
}

#[test]
fn a_view_keeps_unknown_fields_and_drops_only_misfits() {
    let frame = json!({
        "type": "system", "subtype": "task_updated", "uuid": "u1", "session_id": "s1", "task_id": "t1",
        "run_id": 7, "mood": {"good": [1]},
        "patch": {"status": "sleeping", "end_time": 2.6, "error": null, "new": true}
    });
    let notice = view!(System, frame);
    let SystemDetail::TaskUpdated(task) = notice.detail() else { panic!("{notice:?}") };
    assert_eq!((task.task_id.as_str(), &task.run_id), ("t1", &None));
    assert_eq!(Value::Object(task.extra.clone()), json!({"mood": {"good": [1]}}));
    assert_eq!(task.patch.status, Some(TaskStatus::Other("sleeping".into())));
    assert_eq!((task.patch.end_time, &task.patch.error), (Some(3), &None));
    assert_eq!(task.patch.extra["new"], true);
    assert_eq!(notice.task(), None);
}

#[test]
fn the_last_duplicate_key_wins() {
    let line = r#"{"type":"tool_use_summary","summary":"a","x":1,"summary":"b","x":2}"#;
    let Message::ToolUseSummary(summary) = Message::parse(line).unwrap() else { panic!() };
    assert_eq!((summary.summary.as_str(), &summary.extra["x"]), ("b", &json!(2)));
}

#[test]
fn only_one_kind_of_origin_is_human() {
    let of = |json: Value| {
        view!(Result, json!({"type": "result", "subtype": "success", "origin": json})).origin.clone()
    };
    for (kind, is_human) in [("human", true), ("peer", false), ("task-notification", false), ("ghost", false)]
    {
        let origin = of(json!({"kind": kind, "from": "s2", "fromMode": "bypass", "new": 1})).unwrap();
        assert_eq!((origin.kind.as_str(), origin.is_human()), (kind, is_human));
        assert_eq!((origin.from_mode.as_deref(), &origin.extra["new"]), (Some("bypass"), &json!(1)));
    }
    for odd in [json!({"kind": 3}), json!({}), json!("human"), json!(["human"])] {
        assert!(!of(odd).is_some_and(|origin| origin.is_human()));
    }
}
