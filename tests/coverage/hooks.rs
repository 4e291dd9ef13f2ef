//! Every event at which a hook runs is known, and what the hook is told is typed.

use std::collections::BTreeSet;

use greenroom::hook;
use greenroom::hook::HookEvent;
use serde_json::Value;

use crate::table::{file, mapped};

/// Inputs of hooks as the CLI writes them, a line for each event.
fn lines() -> Vec<Value> {
    let text = std::fs::read_to_string(file("tests/coverage/hooks.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Reads what a hook is told at this event, and writes it again.
fn read<E: hook::EventType>(told: &Value) -> (&'static str, Value)
where
    E::Input: serde::Serialize,
{
    let input: E::Input = serde_json::from_value(told.clone()).unwrap();
    (E::NAME, serde_json::to_value(input).unwrap())
}

macro_rules! events {
    ($($event:ident),* $(,)?) => {
        [$((stringify!($event), read::<hook::$event> as fn(&Value) -> (&'static str, Value))),*]
    };
}

#[test]
fn every_event_is_known_and_typed() {
    let typed = events![
        PreToolUse,
        PostToolUse,
        PostToolUseFailure,
        PostToolBatch,
        PermissionRequest,
        PermissionDenied,
        UserPromptSubmit,
        UserPromptExpansion,
        SessionStart,
        SessionEnd,
        Setup,
        Stop,
        StopFailure,
        SubagentStart,
        SubagentStop,
        PreCompact,
        PostCompact,
        PreModelSwitch,
        PostModelSwitch,
        Notification,
        Elicitation,
        ElicitationResult,
        TaskCreated,
        TaskCompleted,
        TeammateIdle,
        ConfigChange,
        InstructionsLoaded,
        WorktreeCreate,
        WorktreeRemove,
        CwdChanged,
        FileChanged,
        DirectoryAdded,
        MessageDisplay,
    ];
    let lines = lines();
    for row in mapped("hook") {
        let event = row.wire.clone().unwrap();
        assert_eq!(row.ours, [format!("hook::HookEvent::{event}"), format!("hook::{event}")]);
        assert!(HookEvent::ALL.contains(&HookEvent::from(event.as_str())), "{event} is not known");
        let (_, read) = typed.iter().find(|(name, _)| *name == event).unwrap_or_else(|| panic!("{event}"));
        let told = lines.iter().find(|line| line["hook_event_name"] == event.as_str());
        let told = told.unwrap_or_else(|| panic!("no line for {event}"));
        let (name, written) = read(told);
        assert_eq!(name, event);
        assert_eq!(&written, told, "nothing is lost");
    }
    let known: BTreeSet<&str> = HookEvent::ALL.iter().map(HookEvent::as_str).collect();
    assert_eq!(known.len(), mapped("hook").len(), "an event without a row");
}
