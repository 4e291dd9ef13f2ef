//! The printed text of messages and outcomes.

use std::sync::Arc;

use greenroom::Outcome;
use serde_json::{Value, json};

use super::{parse, refused_option, view};

fn outcome(value: &Value) -> Outcome {
    Outcome::Completed { result: view!(Result, value), usage: Arc::default() }
}

#[test]
fn a_message_prints_its_type_ids_and_length() {
    let end =
        json!({"type": "result", "subtype": "success", "result": "8", "uuid": "u1", "session_id": "s1"});
    let bytes = end.to_string().len();
    let wanted = format!(
        r#"Typed {{ type: "result", subtype: Some("success"), uuid: Some("u1"), session_id: Some("s1"), parent_tool_use_id: None, bytes: {bytes} }}"#
    );
    assert_eq!(format!("{:?}", parse(&end)), format!("Result({wanted})"));
    let printed = format!("{:?}", outcome(&end));
    assert!(printed.starts_with(&format!("Completed {{ result: {wanted}, usage: ")), "{printed}");
    let error = refused_option();
    let text = format!("{:?}", Outcome::Failed { error, result: None, usage: Arc::default() });
    let wanted = "Failed { error: option `max_turns` is 0";
    assert!(text.starts_with(wanted), "{text}");
    assert!(format!("{:?}", Outcome::NotStarted { prompt: "add".into() }).contains("\"add\""));
}

#[test]
fn no_text_of_a_message_is_printed() {
    let secret = "secret".repeat(1 << 16);
    let block = json!({"type": "text", "text": secret});
    for message in [
        json!({"type": "assistant", "message": {"content": [block]}, "env": secret}),
        json!({"type": "assistant", "secret": 1}),
        json!({"type": "user", "message": {"content": secret}}),
        json!({"type": "result", "subtype": "success", "result": secret, "structured_output": secret}),
        json!({"type": "system", "subtype": "local_command_output", "content": secret}),
        json!({"type": "system", "subtype": "of_next_year", "env": {"KEY": secret}}),
        json!({"type": "prompt_suggestion", "suggestion": secret}),
        json!({"type": "of_next_year", "env": {"KEY": secret}}),
        json!({"type": "stream_event", "event": {"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": secret}}}),
    ] {
        let text = format!("{:?}", parse(&message));
        assert!(!text.contains("secret") && text.len() < 300, "{text}");
    }
    assert!(format!("{:?}", Outcome::NotStarted { prompt: secret.into() }).len() < 300);
}
