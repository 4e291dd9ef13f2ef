//! Prompts, as the CLI reads them.

use greenroom::session::PromptPriority;
use greenroom::{Prompt, Session};
use serde_json::{Value, json};

use crate::common::*;

/// The line that the CLI gets, without the uuid of the turn.
async fn line(prompt: Prompt, verbatim_prompts: bool) -> Value {
    let builder = Session::builder().configure(|options| options.verbatim_prompts = verbatim_prompts);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut turn = session.prompt(prompt).await.unwrap();
    let mut line = within(SOON, end.expect("user")).await;
    end.finish_turn(&line, "fine");
    within(SOON, turn.outcome()).await.unwrap();
    stop(session, end).await;
    assert_eq!(line.as_object_mut().unwrap().remove("uuid"), Some(json!(turn.prompt_uuid())));
    line
}

#[tokio::test(start_paused = true)]
async fn settings_that_are_not_set_are_left_out_of_the_line() {
    let hi = Prompt { should_query: Some(true), verbatim: Some(false), ..Prompt::text("hi") };
    let plain = line(Prompt::text("hi"), false).await;
    let content = json!([{ "type": "text", "text": "hi" }]);
    let wanted = json!({
        "type": "user", "session_id": "", "parent_tool_use_id": null,
        "message": { "role": "user", "content": content },
    });
    assert_eq!(plain, wanted);
    assert_eq!(line(hi, true).await, wanted);
    assert_eq!(line(Prompt::text("hi"), true).await["client_composed"], true);
}

#[tokio::test(start_paused = true)]
async fn every_setting_is_on_the_wire_and_survives_serialisation() {
    let prompt = Prompt {
        content: vec![json!({ "type": "text", "text": "hi" }), json!({ "type": "text", "text": "ho" })],
        priority: Some(PromptPriority::Now),
        should_query: Some(false),
        verbatim: Some(true),
        origin: Some(json!({ "kind": "human" })),
        synthetic: true,
        pasted_content: vec!["p".into(), json!([{ "type": "text", "text": "q" }])],
        inline_pastes: vec!["h".into()],
        parent_tool_use_id: Some("toolu_1".into()),
        timestamp: Some("2026-01-02T03:04:05Z".into()),
    };
    let mut line = line(prompt.clone(), false).await;
    let message = line.as_object_mut().unwrap().remove("message").unwrap();
    assert_eq!(message["content"].as_array().unwrap().len(), 2);
    let wanted = json!({
        "type": "user", "session_id": "", "parent_tool_use_id": "toolu_1", "priority": "now",
        "shouldQuery": false, "client_composed": true, "origin": { "kind": "human" }, "isSynthetic": true,
        "pasted_content": ["p", [{ "type": "text", "text": "q" }]], "inline_pastes": ["h"],
        "timestamp": "2026-01-02T03:04:05Z",
    });
    assert_eq!(line, wanted);
    for prompt in [prompt, Prompt::text("hi")] {
        let written = serde_json::to_string(&prompt).unwrap();
        assert_eq!(serde_json::from_str::<Prompt>(&written).unwrap(), prompt);
    }
    let plain = serde_json::to_value(Prompt::text("hi")).unwrap();
    assert_eq!(plain, json!({ "content": [{ "type": "text", "text": "hi" }] }));
}
