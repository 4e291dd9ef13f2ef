//! Every event: its input is read without loss, and a missing required field is an error.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::definition::read;
use super::*;
use crate::control::CallbackContext;

/// An event with a sample of its input, without the common fields.
pub(crate) trait Sampled: EventType {
    const SAMPLE: &'static str;
    const NEEDS: &'static [&'static str];
}

/// The answer on the wire.
pub(crate) fn wire<E: EventType>(output: Output<E>) -> Value {
    HookOutput::from(output).to_wire(E::NAME).unwrap()
}

fn common(event: &str) -> Map<String, Value> {
    let common = json!({
        "hook_event_name": event, "session_id": "s1", "transcript_path": "/t.jsonl", "cwd": "/w", "prompt_id": "p1",
        "permission_mode": "acceptEdits", "agent_id": "a9", "agent_type": "Plan", "effort": {"level": "high", "new": 1},
    });
    common.as_object().unwrap().clone()
}

/// Reads an event's sample whole, with only the required fields, without each field and with misfits; returns the event.
fn check<E: Sampled>() -> HookEvent
where
    E::Input: Serialize + DeserializeOwned + std::fmt::Debug,
{
    let mut full = common(E::NAME);
    let sample: Map<String, Value> = serde_json::from_str(E::SAMPLE).unwrap();
    full.extend(sample.clone());
    full.insert("of_tomorrow".into(), json!([1]));
    let raw = Value::Object(full);
    let text = RawValue::from_string(raw.to_string()).unwrap();
    let input: E::Input = read(&text).unwrap();
    assert_eq!(serde_json::to_value(&input).unwrap(), raw, "{}", E::NAME);

    let needed: Map<String, Value> =
        sample.iter().filter(|(name, _)| is_needed::<E>(name)).map(|(k, v)| (k.clone(), v.clone())).collect();
    assert_eq!(needed.len(), E::NEEDS.len(), "{}: the sample has all that is needed", E::NAME);
    let bare: E::Input = serde_json::from_value(Value::Object(needed.clone())).unwrap();
    drop(bare);
    for name in needed.keys() {
        let mut without = needed.clone();
        without.remove(name);
        let error = serde_json::from_value::<E::Input>(Value::Object(without)).unwrap_err();
        assert!(error.to_string().contains(name), "{}: {error}", E::NAME);
    }
    // An optional field of another shape is kept in `extra`.
    for name in sample.keys().filter(|name| !is_needed::<E>(name)) {
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
    for name in samples.keys().filter(|name| !is_needed::<E>(name)) {
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
    if samples.contains_key("agent_id") && is_needed::<E>("agent_id") {
        let input: E::Input = serde_json::from_value(all).unwrap();
        let told = format!("{input:?}");
        assert!(told.contains(r#"agent_id: Some("a1"), agent_type: Some("Explore")"#), "{told}");
    }
    assert_eq!(wire(Output::<E>::pass()), json!({}), "{}", E::NAME);
    let said = wire(Output::<E>::pass().field("newField", true));
    assert_eq!(said, json!({"hookSpecificOutput": {"hookEventName": E::NAME, "newField": true}}));
    let event = HookEvent::from(E::NAME);
    assert!(!matches!(event, HookEvent::Other(_)), "{} is no known event", E::NAME);
    event
}

/// Reads and writes an input: the JSON is the same, without duplicate keys.
fn comes_back<E: Sampled>(raw: &Value)
where
    E::Input: Serialize + DeserializeOwned,
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

fn is_needed<E: Sampled>(name: &str) -> bool {
    E::NEEDS.iter().any(|needed| needed.trim_start_matches("r#") == name)
}

macro_rules! each {
    ($($event:ident)*) => { vec![$(check::<$event>()),*] };
}

#[test]
fn every_event_is_read_without_loss() {
    let checked = each!(
        PreToolUse PostToolUse PostToolUseFailure PostToolBatch PermissionRequest PermissionDenied UserPromptSubmit
        UserPromptExpansion SessionStart SessionEnd Setup Stop StopFailure SubagentStart SubagentStop PreCompact
        PostCompact PreModelSwitch PostModelSwitch Notification Elicitation ElicitationResult TaskCreated TaskCompleted
        TeammateIdle ConfigChange InstructionsLoaded WorktreeCreate WorktreeRemove CwdChanged FileChanged
        DirectoryAdded MessageDisplay
    );
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

#[test]
fn every_answer_field_has_the_name_of_the_wire() {
    let names = |output: Value| {
        let specific = output["hookSpecificOutput"].as_object().unwrap().clone();
        specific.keys().cloned().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        names(wire(
            SessionStartOutput::pass()
                .additional_context("a")
                .initial_user_message("b")
                .session_title("c")
                .watch_paths(vec!["/d".into()])
                .reload_skills(true)
        )),
        "additionalContext hookEventName initialUserMessage reloadSkills sessionTitle watchPaths"
    );
    assert_eq!(
        names(wire(
            UserPromptSubmitOutput::block("no")
                .additional_context("a")
                .session_title("b")
                .suppress_original_prompt(true)
        )),
        "additionalContext hookEventName sessionTitle suppressOriginalPrompt"
    );
    assert_eq!(names(wire(WorktreeCreateOutput::made("/w"))), "hookEventName worktreePath");
    assert_eq!(
        names(wire(MessageDisplayOutput::pass().display_content("x"))),
        "displayContent hookEventName"
    );
    assert_eq!(names(wire(PermissionDeniedOutput::pass().retry(true))), "hookEventName retry");
    assert_eq!(
        names(wire(
            PreModelSwitchOutput::pass()
                .permission_decision(HookPermission::Deny)
                .permission_decision_reason("no")
        )),
        "hookEventName permissionDecision permissionDecisionReason"
    );
}

#[test]
fn hooks_are_announced_under_their_event() {
    let pass = |_: HookInput, _: CallbackContext| async { HookOutput::pass() };
    let hooks = [
        Hook::new("PreToolUse", pass)
            .matcher("Bash")
            .timeout(Duration::from_secs(5))
            .on_failure(OnFailure::Block),
        Hook::on(Stop, async |_, _| StopOutput::pass()),
        Hook::new(HookEvent::PreToolUse, pass),
    ];
    assert_eq!(
        Hook::to_wire(&hooks, Some(Duration::from_secs(60)), Duration::from_secs(1)),
        json!({
            "PreToolUse": [
                {"matcher": "Bash", "hookCallbackIds": ["hook_0"], "timeout": 6.0, "onFailure": "block"},
                {"hookCallbackIds": ["hook_2"], "timeout": 61.0, "onFailure": "block"},
            ],
            "Stop": [{"hookCallbackIds": ["hook_1"], "timeout": 61.0}],
        })
    );
    // The CLI's limit is always later than ours, and within the bound of its timers.
    let day = Duration::from_secs(86_400);
    for (limit, grace, ours, told) in [
        (None, Duration::MAX, day, 172_800.0),
        (None, Duration::ZERO, day, 86_401.0),
        (Some(day * 2), Duration::from_secs(5), day, 86_405.0),
        (Some(Duration::from_secs(60)), Duration::ZERO, Duration::from_secs(60), 61.0),
    ] {
        assert_eq!(hooks[1].limit(limit), ours);
        assert_eq!(Hook::to_wire(&hooks[1..2], limit, grace)["Stop"][0]["timeout"], told);
    }
    assert_eq!(Hook::new("Stop", pass).timeout(day * 2).limit(None), day);
    assert_eq!(Hook::index("hook_2"), Some(2));
    assert_eq!(Hook::index("other"), None);
}

#[test]
fn on_failure_block_is_refused_where_the_cli_ignores_it() {
    for event in HookEvent::ALL {
        let hook = Hook::new(event.clone(), async |_, _| HookOutput::pass()).on_failure(OnFailure::Block);
        let ignored = ["Stop", "SubagentStop", "TaskCompleted", "TeammateIdle"].contains(&event.as_str());
        assert_eq!(hook.validate().is_err(), ignored, "{event}");
        assert!(Hook { on_failure: OnFailure::Continue, ..hook }.validate().is_ok());
    }
}
