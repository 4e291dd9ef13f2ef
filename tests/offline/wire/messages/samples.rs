//! A sample of each message of the protocol, and what all of them have in common.

use greenroom::Message;
use greenroom::message::{ResultMessage, SystemDetail, SystemMessage};
use serde_json::{Value, json};

use super::parse;

/// A message of each type and subtype, each with `uuid` and `session_id`.
fn samples() -> Vec<Value> {
    let mut samples = vec![
        json!({"type": "assistant", "message": {"content": []}, "parent_tool_use_id": null}),
        json!({"type": "user", "message": {"role": "user", "content": "x"}, "isReplay": true}),
        json!({"type": "stream_event", "event": {"type": "message_stop"}, "parent_tool_use_id": null}),
        json!({"type": "result", "subtype": "success", "is_error": false, "result": "8", "num_turns": 1}),
        json!({"type": "result", "subtype": "error_during_execution", "is_error": true, "errors": ["no"]}),
        json!({"type": "result", "subtype": "error_max_turns", "errors": []}),
        json!({"type": "result", "subtype": "error_max_budget_usd"}),
        json!({"type": "result", "subtype": "error_max_structured_output_retries"}),
        json!({"type": "result", "subtype": "error_of_next_year", "is_error": true}),
        json!({"type": "tool_progress", "tool_use_id": "t", "elapsed_time_seconds": 2.5}),
        json!({"type": "tool_use_summary", "summary": "read two files", "preceding_tool_use_ids": ["t"]}),
        json!({"type": "auth_status", "isAuthenticating": true, "output": []}),
        json!({"type": "rate_limit_event", "rate_limit_info": {"status": "allowed_warning"}}),
        json!({"type": "prompt_suggestion", "suggestion": "run the tests"}),
        json!({"type": "conversation_reset", "new_conversation_id": "s2", "trigger": "clear"}),
        json!({"type": "active_goal", "value": null}),
        json!({"type": "command_lifecycle", "command_uuid": "u9", "state": "queued"}),
        json!({"type": "keep_alive"}),
        json!({"type": "control_request", "request_id": "r1", "request": {"subtype": "mcp_message"}}),
        json!({"type": "transcript_mirror", "filePath": "/srv/a.jsonl", "entries": [{"type": "user"}]}),
        json!({"type": "from_the_future", "subtype": "x", "payload": {"type": "assistant"}}),
    ];
    let subtypes = [
        ("init", json!({"cwd": "/srv", "tools": ["Bash"]})),
        ("session_state_changed", json!({"state": "running", "sdk_host_only": true})),
        ("status", json!({"status": "compacting", "permissionMode": "plan"})),
        ("status", json!({"status": null})),
        ("compact_boundary", json!({"compact_metadata": {"trigger": "manual", "pre_tokens": 19}})),
        ("api_retry", json!({"attempt": 1, "max_retries": 10, "error_status": null, "error": "overloaded"})),
        ("control_request_progress", json!({"request_id": "r1", "status": "started"})),
        ("model_refusal_fallback", json!({"original_model": "a", "fallback_model": "b", "content": "c"})),
        ("model_refusal_no_fallback", json!({"original_model": "a", "content": "c"})),
        ("local_command_output", json!({"content": "done"})),
        ("informational", json!({"content": "hm", "level": "notice"})),
        ("notification", json!({"key": "k", "text": "t", "priority": "low"})),
        ("hook_started", json!({"hook_id": "h", "hook_name": "n", "hook_event": "PreToolUse"})),
        ("hook_progress", json!({"hook_id": "h", "stdout": "a", "stderr": "", "output": "a"})),
        ("hook_response", json!({"hook_id": "h", "exit_code": 0, "outcome": "success"})),
        ("plugin_install", json!({"status": "installed", "name": "p"})),
        ("task_started", json!({"task_id": "t1", "task_type": "local_agent", "description": "count"})),
        ("task_progress", json!({"task_id": "t1", "usage": {"total_tokens": 3, "tool_uses": 0}})),
        ("task_updated", json!({"task_id": "t1", "patch": {"status": "completed", "end_time": 1}})),
        ("task_notification", json!({"task_id": "t1", "status": "stopped", "summary": "s"})),
        ("background_tasks_changed", json!({"tasks": [{"task_id": "t1", "task_type": "local_agent"}]})),
        ("thinking_tokens", json!({"estimated_tokens": 5, "estimated_tokens_delta": 2})),
        ("commands_changed", json!({"commands": [{"name": "compact"}]})),
        ("files_persisted", json!({"files": [{"filename": "a", "file_id": "f"}], "failed": []})),
        ("memory_recall", json!({"mode": "select", "memories": [{"path": "m", "scope": "user"}]})),
        ("elicitation_complete", json!({"mcp_server_name": "calc", "elicitation_id": "e"})),
        ("permission_denied", json!({"tool_name": "Bash", "tool_use_id": "t", "message": "no"})),
        ("worker_shutting_down", json!({"reason": "drain"})),
        ("session_writes_lost", json!({"error_code": "ENOSPC", "lost": ["transcript"]})),
        ("mirror_error", json!({"error": "e", "key": {"projectKey": "p"}})),
        ("from_the_future", json!({"x": [1, {"y": null}]})),
    ];
    for (subtype, mut sample) in subtypes {
        sample["type"] = "system".into();
        sample["subtype"] = subtype.into();
        samples.push(sample);
    }
    for sample in &mut samples {
        sample["uuid"] = "u1".into();
        sample["session_id"] = "s1".into();
    }
    samples
}

// Guards: lossless
#[test]
fn every_message_of_the_protocol_is_typed_and_round_trips() {
    for sample in samples() {
        let message = parse(&sample);
        let kind = sample["type"].as_str().unwrap();
        match &message {
            Message::Other(other) => {
                assert!(!Message::TYPES.contains(&kind), "{message:?}");
                assert_eq!(other.problem(), None, "{message:?}");
            }
            Message::System(system) => {
                let unknown = matches!(system.detail(), SystemDetail::Unknown);
                assert_eq!(unknown, !SystemMessage::SUBTYPES.contains(&&*system.subtype), "{message:?}");
                assert_eq!(unknown, system.subtype == "from_the_future");
            }
            _ => assert!(Message::TYPES.contains(&kind), "{message:?}"),
        }
        assert_eq!((message.kind(), message.subtype()), (kind, sample["subtype"].as_str()));
        assert_eq!((message.uuid(), message.session_id()), (Some("u1"), Some("s1")));
        assert_eq!((message.parent_tool_use_id(), message.text().filter(|t| t.is_empty())), (None, None));
        assert!(message.is_main_thread());
        assert_eq!(message.value(), sample);
        assert_eq!(serde_json::to_string(&message).unwrap(), sample.to_string());
        let again: Message = serde_json::from_str(&message.to_string()).unwrap();
        assert_eq!(again.raw().get(), message.raw().get());
    }
}

#[test]
fn there_is_a_sample_of_every_known_type_and_subtype() {
    let samples = samples();
    let has = |kind: &str, subtype: Option<&str>| {
        samples.iter().any(|sample| {
            sample["type"] == kind && subtype.is_none_or(|subtype| sample["subtype"] == subtype)
        })
    };
    for kind in Message::TYPES {
        assert!(has(kind, None), "{kind}");
    }
    for subtype in SystemMessage::SUBTYPES {
        assert!(has("system", Some(subtype)), "{subtype}");
    }
    for subtype in ResultMessage::SUBTYPES {
        assert!(has("result", Some(subtype)), "{subtype}");
    }
}
