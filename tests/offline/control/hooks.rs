//! Every hook event: its input is read without loss, and a missing required field is an error.

use greenroom::hook::*;
use serde::Serialize;
use serde_json::{Map, Value, json};

fn common(event: &str) -> Map<String, Value> {
    let common = json!({
        "hook_event_name": event, "session_id": "s1", "transcript_path": "/t.jsonl", "cwd": "/w", "prompt_id": "p1",
        "permission_mode": "acceptEdits", "agent_id": "a9", "agent_type": "Plan", "effort": {"level": "high", "new": 1},
    });
    common.as_object().unwrap().clone()
}

/// Reads an event's sample whole, with only the required fields, without each field and with misfits; returns the
/// event. `needs` are the names of the required fields.
fn check<E: EventType>(needs: &str, sample: &str) -> HookEvent
where
    E::Input: Serialize + std::fmt::Debug,
{
    let is_needed = |name: &str| needs.split(' ').any(|needed| needed == name);
    let mut full = common(E::NAME);
    let sample: Map<String, Value> = serde_json::from_str(sample).unwrap();
    full.extend(sample.clone());
    full.insert("of_tomorrow".into(), json!([1]));
    let raw = Value::Object(full);
    let input: E::Input = serde_json::from_str(&raw.to_string()).unwrap();
    assert_eq!(serde_json::to_value(&input).unwrap(), raw, "{}", E::NAME);

    let needed: Map<String, Value> =
        sample.iter().filter(|(name, _)| is_needed(name)).map(|(k, v)| (k.clone(), v.clone())).collect();
    assert_eq!(needed.len(), needs.split(' ').count(), "{}: the sample has all that is needed", E::NAME);
    let bare: E::Input = serde_json::from_value(Value::Object(needed.clone())).unwrap();
    drop(bare);
    for name in needed.keys() {
        let mut without = needed.clone();
        without.remove(name);
        let error = serde_json::from_value::<E::Input>(Value::Object(without)).unwrap_err();
        assert!(error.to_string().contains(name), "{}: {error}", E::NAME);
    }
    // An optional field of another shape is kept in `extra`.
    for name in sample.keys().filter(|name| !is_needed(name)) {
        let mut odd = needed.clone();
        odd.insert(name.clone(), json!({"odd": [null]}));
        let odd = Value::Object(odd);
        let input: E::Input = serde_json::from_value(odd.clone()).unwrap();
        let again = serde_json::to_value(&input).unwrap();
        assert_eq!(again[name], odd[name], "{}", E::NAME);
    }
    let mut samples: Map<String, Value> = common(E::NAME);
    samples.extend(sample.clone());
    let all = Value::Object(samples.clone());
    comes_back::<E>(&all);
    comes_back::<E>(&Value::Object(needed.clone()));
    for name in samples.keys().filter(|name| !is_needed(name)) {
        let mut without = samples.clone();
        without.remove(name);
        comes_back::<E>(&Value::Object(without));
        for odd in [json!(null), json!(""), json!(0), json!(-1.5), json!(7), json!([]), json!({"a": [null]})]
        {
            let mut with = samples.clone();
            with.insert(name.clone(), odd);
            comes_back::<E>(&Value::Object(with));
        }
    }
    if samples.contains_key("agent_id") && is_needed("agent_id") {
        let input: E::Input = serde_json::from_value(all).unwrap();
        let told = format!("{input:?}");
        assert!(told.contains(r#"agent_id: Some("a1"), agent_type: Some("Explore")"#), "{told}");
    }
    let event = HookEvent::from(E::NAME);
    assert!(!matches!(event, HookEvent::Other(_)), "{} is no known event", E::NAME);
    event
}

/// Reads and writes an input: the JSON is the same, without duplicate keys.
fn comes_back<E: EventType>(raw: &Value)
where
    E::Input: Serialize,
{
    let input: E::Input = serde_json::from_value(raw.clone()).unwrap();
    assert_eq!(serde_json::to_value(&input).unwrap(), *raw, "{}", E::NAME);
    let text = serde_json::to_string(&input).unwrap();
    assert_eq!(text.len(), raw.to_string().len(), "{}: {text}", E::NAME);
}

#[test]
fn list_items_are_written_as_they_came() {
    comes_back::<PostToolBatch>(&json!({"tool_calls": [
        {"tool_name": "Bash", "tool_input": null, "tool_use_id": "t", "tool_response": null, "new": null},
    ]}));
    comes_back::<Stop>(&json!({"stop_hook_active": false, "background_tasks": [
        {"id": "b", "type": "shell", "status": "s", "description": "d", "command": null, "tool": 1, "name": "n"},
    ]}));
    comes_back::<SessionStart>(
        &json!({"source": "resume", "seconds_since_last_response": 4, "context_tokens": null}),
    );
}

macro_rules! each {
    ($($event:ident($needs:literal): $sample:literal,)*) => { vec![$(check::<$event>($needs, $sample)),*] };
}

#[test]
fn every_event_is_read_without_loss() {
    let checked = each! {
        PreToolUse("tool_name tool_input tool_use_id"): r#"{"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "toolu_1", "mcp_server": {"name": "calc", "source": "sdk"}}"#,
        PostToolUse("tool_name tool_input tool_response tool_use_id"): r#"{"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_response": {"stdout": "a"}, "tool_use_id": "toolu_1", "duration_ms": 12}"#,
        PostToolUseFailure("tool_name tool_input tool_use_id error"): r#"{"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "toolu_1", "error": "exit code 1", "is_interrupt": false, "duration_ms": 12}"#,
        PostToolBatch("tool_calls"): r#"{"tool_calls": [{"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "toolu_1", "tool_response": "a"}]}"#,
        PermissionRequest("tool_name tool_input"): r#"{"tool_name": "Bash", "tool_input": {"command": "ls"}, "permission_suggestions": [{"type": "setMode", "mode": "acceptEdits", "destination": "session"}]}"#,
        PermissionDenied("tool_name tool_input tool_use_id reason"): r#"{"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "toolu_1", "reason": "not asked for"}"#,
        UserPromptSubmit("prompt"): r#"{"prompt": "hello", "source": "sdk", "session_title": "Greetings"}"#,
        UserPromptExpansion("expansion_type command_name command_args prompt"): r#"{"expansion_type": "slash_command", "command_name": "review", "command_args": "all", "command_source": "project", "prompt": "/review all"}"#,
        SessionStart("source"): r#"{"source": "resume", "model": "haiku", "session_title": "T", "seconds_since_last_response": 4.5, "context_tokens": 100, "prompt_cache_likely_expired": false, "estimated_cache_write_usd": 0.25}"#,
        SessionEnd("reason"): r#"{"reason": "prompt_input_exit"}"#,
        Setup("trigger"): r#"{"trigger": "init"}"#,
        Stop("stop_hook_active"): r#"{"stop_hook_active": false, "last_assistant_message": "Done.", "background_tasks": [{"id": "b1", "type": "shell", "status": "running", "description": "d", "command": "sleep 9"}], "session_crons": [{"id": "c1", "schedule": "0 9 * * *", "recurring": true, "prompt": "p"}]}"#,
        StopFailure("error"): r#"{"error": "rate_limit", "error_details": "429", "last_assistant_message": "Let me see."}"#,
        SubagentStart("agent_id agent_type"): r#"{"agent_id": "a1", "agent_type": "Explore"}"#,
        SubagentStop("stop_hook_active agent_id agent_transcript_path agent_type"): r#"{"stop_hook_active": false, "agent_id": "a1", "agent_transcript_path": "/t/a1.jsonl", "agent_type": "Explore", "last_assistant_message": "Done.", "background_tasks": [], "session_crons": []}"#,
        PreCompact("trigger"): r#"{"trigger": "manual", "custom_instructions": "keep the names"}"#,
        PostCompact("trigger compact_summary"): r#"{"trigger": "auto", "compact_summary": "They spoke of numbers."}"#,
        PreModelSwitch("from_model to_model source"): r#"{"from_model": "a", "to_model": "b", "requested_model": "opus", "source": "sdk", "context_tokens": 10, "prompt_cache_warm": true, "cache_ttl": "5m", "estimated_cache_write_usd": 0.5, "pricing": "catalog"}"#,
        PostModelSwitch("from_model to_model source"): r#"{"from_model": "a", "to_model": "b", "requested_model": "opus", "source": "auto", "context_tokens": 10, "prompt_cache_warm": false, "cache_ttl": "1h", "estimated_cache_write_usd": 0.5, "pricing": "default"}"#,
        Notification("message notification_type"): r#"{"message": "Claude needs your permission", "title": "Claude Code", "notification_type": "permission_prompt"}"#,
        Elicitation("mcp_server_name message"): r#"{"mcp_server_name": "files", "message": "Which folder?", "mode": "form", "requested_schema": {"type": "object"}}"#,
        ElicitationResult("mcp_server_name action"): r#"{"mcp_server_name": "files", "elicitation_id": "e1", "mode": "form", "action": "accept", "content": {"folder": "/w"}}"#,
        TaskCreated("task_id task_subject"): r#"{"task_id": "1", "task_subject": "Write tests", "task_description": "All of them", "teammate_name": "ada", "team_name": "t"}"#,
        TaskCompleted("task_id task_subject"): r#"{"task_id": "1", "task_subject": "Write tests", "task_description": "All of them", "teammate_name": "ada", "team_name": "t"}"#,
        TeammateIdle("teammate_name"): r#"{"teammate_name": "ada", "team_name": "t"}"#,
        ConfigChange("source"): r#"{"source": "user_settings", "file_path": "/h/.claude/settings.json"}"#,
        InstructionsLoaded("file_path memory_type load_reason"): r#"{"file_path": "/w/CLAUDE.md", "memory_type": "Project", "load_reason": "include", "globs": ["*.rs"], "trigger_file_path": "/w/a.rs", "parent_file_path": "/w/B.md"}"#,
        WorktreeCreate("name"): r#"{"name": "feature"}"#,
        WorktreeRemove("worktree_path"): r#"{"worktree_path": "/w/feature"}"#,
        CwdChanged("old_cwd new_cwd"): r#"{"old_cwd": "/a", "new_cwd": "/b"}"#,
        FileChanged("file_path event"): r#"{"file_path": "/w/a.rs", "event": "change"}"#,
        DirectoryAdded("directory source"): r#"{"directory": "/srv", "source": "slash_command"}"#,
        MessageDisplay("turn_id message_id index final delta"): r#"{"turn_id": "u1", "message_id": "u2", "index": 0, "final": true, "delta": "Hello."}"#,
    };
    assert_eq!(checked, HookEvent::ALL, "each event has its types");
}

#[test]
fn event_names_are_those_of_the_cli() {
    for event in HookEvent::ALL {
        assert_eq!(format!("{event:?}"), event.as_str());
        assert_eq!(&HookEvent::from(event.as_str()), event);
        assert_eq!(serde_json::from_value::<HookEvent>(json!(event)).unwrap(), *event);
    }
    assert_eq!(HookEvent::from("New").to_string(), "New");
}
