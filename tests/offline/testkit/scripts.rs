//! Scripts as data: ids of calls, the turn of each request, JSON.

use std::time::Duration;

use greenroom_testkit::{Item, ModelTurn, Script, Usage};
use serde_json::json;

fn call() -> ModelTurn {
    ModelTurn::new().call("mcp__calc__add", json!({"a": 1}))
}

fn call_ids(turn: &ModelTurn) -> Vec<&str> {
    turn.calls()
        .filter_map(|item| if let Item::Call { id, .. } = item { id.as_deref() } else { None })
        .collect()
}

#[test]
fn call_ids_are_unique_over_the_script_and_the_same_each_time() {
    let build = || {
        Script::new()
            .turn(ModelTurn::new().call_with_id("toolu_mine", "t", json!({})))
            .turn(call().text("and").call("u", json!({})))
            .agent_turn(call())
            .repeat(2, call())
    };
    let script = build();
    let turns: Vec<ModelTurn> =
        (0..4).map(|at| script.turn_at(at)).chain([script.agent_turn_at(0)]).collect();
    let mut ids: Vec<&str> = turns.iter().flat_map(call_ids).collect();
    assert_eq!(ids.len(), 6);
    assert_eq!(ids[..3], ["toolu_mine", "toolu_script_1_0", "toolu_script_1_1"]);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 6, "{ids:?}");
    assert_eq!(script, build());
}

#[test]
fn requests_after_the_last_turn_get_the_otherwise_turn_with_fresh_ids() {
    let script = Script::new().turn(call());
    assert!(!call_ids(&script.turn_at(0)).is_empty());
    assert!(script.turn_at(1).joined_text().contains("script is over"));
    assert_eq!(script.turn_at(7).stop_reason(), "end_turn");

    let script = script.otherwise(call());
    let (second, third) = (script.turn_at(1), script.turn_at(2));
    assert_eq!(call_ids(&second).len(), 1);
    assert_ne!(call_ids(&second), call_ids(&third));
    assert_ne!(call_ids(&script.agent_turn_at(1)), call_ids(&second));
    assert_eq!(script.turn_at(2), third);
}

#[test]
fn a_turn_is_either_content_or_an_error() {
    let failing = ModelTurn::new().text("gone").error(529, "overloaded_error", "busy");
    assert!(failing.items.is_empty());
    assert_eq!(failing.error.as_ref().unwrap().should_retry, None);
    assert_eq!(failing.clone().text("back").error, None);
    let last = ModelTurn::new().final_error(500, "api_error", "no");
    assert_eq!(last.error.unwrap().should_retry, Some(false));
}

#[test]
fn the_stop_reason_and_the_text_follow_from_the_content() {
    let turn = ModelTurn::new().thinking("hm").text("a").text("b");
    assert_eq!((turn.stop_reason(), turn.joined_text().as_str()), ("end_turn", "ab"));
    assert_eq!(turn.call("t", json!({})).stop_reason(), "tool_use");
}

#[test]
fn a_script_survives_json() {
    let script = Script::new()
        .turn(ModelTurn::new().thinking("hm").text("Let me add.").call("t", json!({"a": [1, null]})))
        .turn(ModelTurn::new().text("b").usage(Usage { cost_usd: 0.5, output_tokens: 7, ..Usage::default() }))
        .turn(ModelTurn::new().pause_before(Duration::MAX).final_error(400, "invalid_request_error", "x"))
        .agent_turn(call().pause_between(Duration::from_millis(3)))
        .side_answer("A title")
        .otherwise(ModelTurn::new().text("over"))
        .local_command("cost", "nothing");
    let text = serde_json::to_string(&script).unwrap();
    assert_eq!(serde_json::from_str::<Script>(&text).unwrap(), script);
}

#[test]
fn a_call_may_be_written_without_arguments() {
    let turn: ModelTurn = serde_json::from_str(r#"{"items": [{"call": {"name": "t"}}]}"#).unwrap();
    assert_eq!(turn, ModelTurn::new().call("t", json!({})));
}

#[test]
fn what_makes_no_sense_cannot_be_written() {
    let both = r#"{"items": [{"text": "a"}], "error": {"status": 500, "kind": "k", "message": "m"}}"#;
    assert!(serde_json::from_str::<ModelTurn>(both).unwrap_err().to_string().contains("not both"));
    assert!(serde_json::from_str::<Script>(r#"{"turn": []}"#).is_err());
    assert!(serde_json::from_str::<Script>(r#"{"turns": [{"itms": []}]}"#).is_err());
}
