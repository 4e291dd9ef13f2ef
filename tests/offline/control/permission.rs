//! Permission requests, and changes of the permission rules, as JSON.

use greenroom::PermissionRequest;
use greenroom::permission::{PermissionBehavior, PermissionDestination, PermissionUpdate};
use serde::Deserialize;
use serde_json::{Value, json};

#[test]
fn a_permission_request_is_written_as_it_came() {
    let raw = json!({
        "tool_name": "mcp__calc__wipe", "input": {"a": 1}, "tool_use_id": "t", "blocked_path": "/etc",
        "permission_suggestions": [
            {"type": "addRules", "rules": [{"toolName": "Bash", "ruleContent": "ls:*"}], "behavior": "allow", "destination": "localSettings"},
            {"type": "of_tomorrow", "a": 1},
        ],
        "decision_reason": "\u{1b}[31mno\u{1b}[0m", "decision_reason_type": "safetyCheck",
        "classifier_approvable": false, "suppress_always_allow_rule": true, "default_to_no": true,
        "matched_ask_rule": {"source": "userSettings", "tool_name": "Bash", "rule_content": "ls", "x": 1},
        "requires_user_interaction": true, "title": "T", "display_name": "D", "description": "S",
        "agent_id": "a1", "mcp_server": {"name": "calc", "source": "sdk"}, "plugin": {"name": "p"},
        "decision_reason_code": 7,
    });
    let request = PermissionRequest::deserialize(&raw).unwrap();
    assert_eq!(request.decision_reason_type.as_deref(), Some("safetyCheck"));
    assert_eq!(request.reason_text().as_deref(), Some("no"));
    let [rule, unknown] = &request.permission_suggestions[..] else { panic!("{request:?}") };
    assert_eq!((rule.kind.as_str(), rule.behavior.as_ref()), ("addRules", Some(&PermissionBehavior::Allow)));
    assert_eq!((unknown.kind.as_str(), &unknown.extra["a"]), ("of_tomorrow", &json!(1)));
    assert!(request.mcp_server.as_ref().unwrap().is_in_process());
    assert_eq!(request.extra.keys().collect::<Vec<_>>(), ["decision_reason_code", "plugin"]);
    assert_eq!(serde_json::to_value(&request).unwrap(), raw);
}

#[test]
fn a_misfit_is_kept_and_harms_no_other_field() {
    let raw = json!({"tool_name": "Bash", "input": {}, "title": 7, "decision_reason_type": "of_tomorrow"});
    let request = PermissionRequest::deserialize(&raw).unwrap();
    assert_eq!((request.title.as_deref(), &request.extra["title"]), (None, &json!(7)));
    assert_eq!(request.decision_reason_type.as_deref(), Some("of_tomorrow"));
    let error = PermissionRequest::deserialize(json!({"input": {}})).unwrap_err();
    assert_eq!(error.to_string(), "missing field `tool_name`");
}

#[test]
fn every_known_update_is_written_as_it_came() {
    let rules = json!([{"toolName": "Bash", "ruleContent": "ls:*"}, {"toolName": "Read", "new": 1}]);
    let of = |kind: &str| json!({"type": kind, "rules": rules, "behavior": "allow", "destination": "cliArg", "new": 1});
    let dirs = |kind: &str| json!({"type": kind, "directories": ["/a"], "destination": "of_tomorrow"});
    let all = [
        of("addRules"),
        of("replaceRules"),
        of("removeRules"),
        json!({"type": "setMode", "mode": "acceptEdits", "destination": "session"}),
        json!({"type": "setMode", "mode": "of_tomorrow", "destination": "session"}),
        dirs("addDirectories"),
        dirs("removeDirectories"),
    ];
    for raw in all {
        let update = PermissionUpdate::deserialize(&raw).unwrap();
        assert!(update.extra.keys().all(|name| name == "new"), "{update:?}");
        assert_eq!(serde_json::to_value(&update).unwrap(), raw);
    }
}

#[test]
fn unknown_updates_are_kept() {
    for raw in [
        json!({"type": "of_tomorrow", "x": [1]}),
        json!({"type": "setMode", "mode": 7, "destination": "session"}),
        json!({"type": "addRules", "rules": [{"toolName": "Bash"}, 1]}),
        json!({"type": 7}),
    ] {
        let update = PermissionUpdate::deserialize(&raw).unwrap();
        assert_eq!(
            (update.mode.as_ref(), update.rules.as_ref()),
            (None, None),
            "half a list would look like a whole one"
        );
        assert_eq!(serde_json::to_value(&update).unwrap(), raw);
    }
    let raw = json!({"tool_name": "Bash", "permission_suggestions": [{"type": "setMode", "mode": "plan"}, "no object"]});
    let request = PermissionRequest::deserialize(&raw).unwrap();
    assert!(request.permission_suggestions.is_empty());
    assert_eq!(serde_json::to_value(&request).unwrap(), raw);
}

#[test]
fn a_null_content_is_dropped() {
    let raw = json!({
        "type": "addRules", "rules": [{"toolName": "Bash", "ruleContent": null}], "behavior": "deny",
        "destination": "session",
    });
    let update = PermissionUpdate::deserialize(raw).unwrap();
    assert_eq!(
        serde_json::to_value(update).unwrap(),
        json!({"type": "addRules", "rules": [{"toolName": "Bash"}], "behavior": "deny", "destination": "session"})
    );
}

#[test]
fn the_destination_of_a_change_can_be_set() {
    let mut update = PermissionUpdate::add_rules(PermissionBehavior::Allow, ["Bash"]);
    update.destination = Some(PermissionDestination::UserSettings);
    assert_eq!(serde_json::to_value(update).unwrap()["destination"], "userSettings");
}

fn request(input: Value) -> PermissionRequest {
    serde_json::from_value(json!({"tool_name": "AskUserQuestion", "input": input})).unwrap()
}

#[test]
fn only_the_question_tool_has_questions() {
    let mut request = request(json!({"questions": [
        {"question": "A?", "header": "A", "options": [{"label": "a", "description": "", "preview": "p"}], "multiSelect": true},
        {"question": "B?", "new": 1},
    ]}));
    let questions = request.questions().unwrap();
    assert!(questions[0].multi_select && questions[1].options.is_empty());
    assert_eq!(questions[0].options[0].preview.as_deref(), Some("p"));
    assert_eq!(questions[1].extra["new"], 1);
    request.tool_name = "Bash".into();
    assert_eq!(request.questions(), None);
}

#[test]
fn a_question_with_misfits_is_written_as_it_came() {
    let asked = json!([
        {"question": "A?", "header": null, "options": [{"label": "a", "description": null, "preview": null}], "multiSelect": false},
        {"question": "B?", "header": "B", "options": [{"label": "b"}, {"description": "no name"}], "multiSelect": 1},
    ]);
    let questions = request(json!({"questions": asked})).questions().unwrap();
    assert_eq!((questions[0].header.as_str(), questions[0].options[0].label.as_str()), ("", "a"));
    assert!(questions[1].options.is_empty() && !questions[1].multi_select);
    assert_eq!(questions[1].extra["options"], asked[1]["options"], "half a list would look like a whole one");
    assert_eq!(serde_json::to_value(&questions).unwrap(), asked);
    let text = serde_json::to_string(&questions[1]).unwrap();
    assert_eq!(text.matches("\"options\"").count(), 1, "{text}");

    for unreadable in [json!({}), json!({"questions": null}), json!({"questions": [{"header": "A"}]})] {
        assert_eq!(request(unreadable).questions(), None);
    }
}
