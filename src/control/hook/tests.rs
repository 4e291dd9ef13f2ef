//! The answer of every event, and the announcement of hooks.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::control::CallbackContext;

/// The answer on the wire.
pub(crate) fn wire<E: EventType>(output: Output<E>) -> Value {
    HookOutput::from(output).to_wire(E::NAME).unwrap()
}

/// Checks the answers without an opinion, and returns the event.
fn check<E: EventType>() -> HookEvent {
    assert_eq!(wire(Output::<E>::pass()), json!({}), "{}", E::NAME);
    let said = wire(Output::<E>::pass().field("newField", true));
    assert_eq!(said, json!({"hookSpecificOutput": {"hookEventName": E::NAME, "newField": true}}));
    HookEvent::from(E::NAME)
}

macro_rules! each {
    ($($event:ident)*) => { vec![$(check::<$event>()),*] };
}

#[test]
fn an_answer_of_every_event_has_only_what_was_set() {
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
