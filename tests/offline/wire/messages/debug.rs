//! The printed text of messages and outcomes.

use greenroom::Outcome;
use serde_json::{Value, json};

use super::{parse, refused_option, view};

fn outcome(value: &Value) -> Outcome {
    Outcome::Completed { result: view!(Result, value) }
}

#[test]
fn an_assistant_message_prints_text_tools_and_ids() {
    let said = parse(&json!({
        "type": "assistant", "uuid": "u1", "session_id": "s1", "parent_tool_use_id": "toolu_0", "error": "rate_limit",
        "message": {"id": "msg_1", "model": "m", "usage": {"output_tokens": 9}, "content": [
            {"type": "text", "text": "I will add them."},
            {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 5}},
        ]},
    }));
    let text = format!("{said:?}");
    for part in [
        "Assistant(AssistantMessage {",
        "I will add them.",
        "\"msg_1\"",
        "\"add\"",
        "\"toolu_1\"",
        "RateLimit",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(
        text.contains(r#"uuid: Some("u1"), session_id: Some("s1"), parent_tool_use_id: Some("toolu_0")"#),
        "{text}"
    );
    for noise in ["Span", "At(", "head", "RawValue", "raw", "aborted", "None, None"] {
        assert!(!text.contains(noise), "{noise}: {text}");
    }
}

#[test]
fn a_result_and_its_outcome_print_answer_and_cost() {
    let end = json!({
        "type": "result", "subtype": "success", "result": "8", "num_turns": 2, "total_cost_usd": 0.25, "uuid": "u1",
        "usage": {"input_tokens": 10, "output_tokens": 9}, "of_tomorrow": 1,
    });
    let wanted = r#"ResultMessage { subtype: "success", result: Some("8"), num_turns: 2, total_cost_usd: Some(0.25), usage: Some(Usage { input_tokens: 10, output_tokens: 9 }), uuid: Some("u1") }"#;
    assert_eq!(format!("{:?}", parse(&end)), format!("Result({wanted})"));
    assert_eq!(format!("{:?}", outcome(&end)), format!("Completed {{ result: {wanted} }}"));
    let error = refused_option();
    let text = format!("{:?}", Outcome::Failed { error, result: None });
    let wanted =
        "Failed { error: Error { data: ErrorData { kind: InvalidOption, message: \"option `max_turns` is 0\"";
    assert!(text.starts_with(wanted), "{text}");
    assert!(format!("{:?}", Outcome::NotStarted { prompt: "add".into() }).contains("\"add\""));
}

#[test]
fn unknown_messages_print_the_names_of_their_fields_only() {
    let unknown = json!({"type": "of_next_year", "subtype": "x", "uuid": "u1", "env": {"KEY": "secret"}});
    let text = format!("{:?}", parse(&unknown));
    let wanted = r#"Other(OtherMessage { type: "of_next_year", subtype: Some("x"), fields: ["env", "subtype", "type", "uuid"], uuid: Some("u1") })"#;
    assert_eq!(text, wanted);
    for known_and_unknown in [
        json!({"type": "system", "subtype": "of_next_year", "env": {"KEY": "secret"}}),
        json!({"type": "system", "subtype": "init", "cwd": "/srv", "env": {"KEY": "secret"}}),
        json!({"type": "tool_progress", "tool_name": "Bash", "env": {"KEY": "secret"}}),
    ] {
        let text = format!("{:?}", parse(&known_and_unknown));
        assert!(text.contains("\"env\"") && !text.contains("secret"), "{text}");
    }
    let problem = format!("{:?}", parse(&json!({"type": "assistant", "secret": 1})));
    assert!(problem.contains("problem: Some(\"missing field `message`"), "{problem}");
}

#[test]
fn long_messages_print_short_texts_with_their_length() {
    let long = "x".repeat(1 << 20);
    let block = json!({"type": "text", "text": long});
    let messages = [
        json!({"type": "assistant", "message": {"content": [block, {"type": "tool_use", "id": "t", "name": "add", "input": {}}]}}),
        json!({"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "t", "content": long}]}}),
        json!({"type": "result", "subtype": "success", "result": long, "structured_output": vec![1; 2000]}),
        json!({"type": "system", "subtype": "local_command_output", "content": long}),
        json!({"type": "prompt_suggestion", "suggestion": long}),
        json!({"type": "stream_event", "event": {"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": long}}}),
    ];
    for message in &messages {
        let text = format!("{:?}", parse(message));
        assert!(text.len() < 6_000 && text.contains("... (1048576 characters)"), "{}: {text}", text.len());
    }
    assert!(format!("{:?}", parse(&messages[0])).contains("\"add\""), "the call after a long text");
    assert!(format!("{:?}", outcome(&messages[2])).len() < 6_000);
    assert!(format!("{:?}", Outcome::NotStarted { prompt: long.into() }).len() < 6_000);
}
