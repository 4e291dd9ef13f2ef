use super::*;
use crate::hook::{PreToolUse, PreToolUseOutput, SessionEndOutput};

fn wire(output: impl Into<HookOutput>) -> Value {
    output.into().to_wire("PreToolUse").unwrap()
}

#[test]
fn hook_specific_output_names_the_event() {
    assert_eq!(
        wire(HookOutput::permission("deny", "no")),
        json!({"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": "no"}})
    );
    assert_eq!(wire(HookOutput::pass()), json!({}));
}

#[test]
fn an_answer_that_is_no_object_is_never_sent() {
    for value in [Value::Null, json!([]), json!("x"), json!(true), json!(1)] {
        let raw = HookOutput::raw(value.clone()).to_wire("Stop").unwrap_err();
        assert!(raw.starts_with("answered with") && raw.ends_with("no object"), "{raw}");
        assert!(HookOutput::specific(value.clone()).to_wire("Stop").is_err());
        let input = HookOutput::from(PreToolUseOutput::allow().updated_input(value));
        assert_eq!(input.to_wire("PreToolUse").unwrap_err(), "answered with arguments that are no object");
    }
}

#[test]
fn an_answer_that_the_cli_would_not_read_is_never_sent() {
    use crate::PermissionDecision;
    use crate::callback::ElicitationAnswer;
    use crate::hook::{ElicitationOutput, ElicitationResultOutput, PermissionRequestOutput};
    use crate::permission::Answers;

    let problem = |output: HookOutput, event: &str| output.to_wire(event).unwrap_err();
    let arguments = "answered with arguments that are no object";
    let decided = PermissionRequestOutput::decide(PermissionDecision::allow_with(json!("ls")));
    assert_eq!(problem(decided.into(), "PermissionRequest"), arguments);
    let raw = json!({"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": "ls"}});
    assert_eq!(problem(HookOutput::raw(raw), "PreToolUse"), arguments);
    let decided = PermissionRequestOutput::pass().permission("allow");
    assert_eq!(problem(decided.into(), "PermissionRequest"), "answered with a decision that is no object");
    let answers = PermissionDecision::answer_questions(Answers::new().answer("Why?", "because"));
    let decided = problem(PermissionRequestOutput::decide(answers).into(), "PermissionRequest");
    assert!(decided.contains("`on_question`"), "{decided}");

    let content = "answered with a content that is no object";
    let said = ElicitationOutput::answer(ElicitationAnswer::Accept(json!("x")));
    assert_eq!(problem(said.into(), "Elicitation"), content);
    let said = ElicitationResultOutput::answer(ElicitationAnswer::Accept(json!(["x"])));
    assert_eq!(problem(said.into(), "ElicitationResult"), content);
}

#[test]
fn an_asynchronous_answer_with_other_fields_is_never_sent() {
    let asynchronous = || PreToolUseOutput::asynchronous(None);
    let mut ends = asynchronous();
    ends.common.goes_on = Some(false);
    for (output, said) in [
        (asynchronous().permission_decision("deny"), "permissionDecision"),
        (asynchronous().decision(HookDecision::Block).reason("no"), "decision, reason"),
        (asynchronous().field("new", 1), "new"),
        (ends, "continue"),
    ] {
        let problem = HookOutput::from(output).to_wire("PreToolUse").unwrap_err();
        assert!(problem.ends_with(&format!("and with {said}")), "{problem}");
    }
}

#[test]
fn common_fields_of_an_answer_are_on_the_wire() {
    let mut output = Output::<PreToolUse>::block("b").system_message("m").field("newField", 1);
    output.common.suppress_output = Some(true);
    output.common.terminal_sequence = Some("\u{7}".into());
    output.common.goes_on = Some(false);
    output.common.stop_reason = Some("s".into());
    output.common.extra.insert("new".into(), json!(2));
    assert_eq!(
        wire(output),
        json!({
            "continue": false, "stopReason": "s", "suppressOutput": true, "decision": "block", "reason": "b",
            "systemMessage": "m", "terminalSequence": "\u{7}", "new": 2,
            "hookSpecificOutput": {"hookEventName": "PreToolUse", "newField": 1},
        })
    );
    assert_eq!(wire(SessionEndOutput::pass()), json!({}));
    assert_eq!(
        wire(SessionEndOutput::end_turn("enough")),
        json!({"continue": false, "stopReason": "enough"})
    );
    let limit = Duration::from_millis(1500);
    assert_eq!(
        wire(PreToolUseOutput::asynchronous(Some(limit))),
        json!({"async": true, "asyncTimeout": 1500})
    );
    assert_eq!(wire(PreToolUseOutput::asynchronous(None)), json!({"async": true}));
}
