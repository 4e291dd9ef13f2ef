//! Every field of a prompt reaches the CLI.

use greenroom::session::PromptPriority;
use greenroom::{Prompt, Session};
use serde_json::json;

use crate::common::{SOON, start_by_hand, stop, within};
use crate::table::mapped;

/// A prompt that has what this path names.
fn sample(ours: &str) -> Prompt {
    let prompt = Prompt::text("Hello.");
    match ours {
        "Prompt::blocks" => Prompt::blocks([json!({ "type": "text", "text": "Hello." })]),
        "Turn::prompt_uuid" => prompt,
        "Prompt::parent_tool_use_id" => Prompt { parent_tool_use_id: Some("toolu_1".into()), ..prompt },
        "Prompt::priority" => Prompt { priority: Some(PromptPriority::Now), ..prompt },
        "Prompt::origin" => Prompt { origin: Some(json!({ "kind": "human" })), ..prompt },
        "Prompt::should_query" => Prompt { should_query: Some(false), ..prompt },
        "Prompt::verbatim" => Prompt { verbatim: Some(true), ..prompt },
        "Prompt::synthetic" => Prompt { synthetic: true, ..prompt },
        "Prompt::pasted_content" => Prompt { pasted_content: vec!["a page".into()], ..prompt },
        "Prompt::inline_pastes" => Prompt { inline_pastes: vec!["a page".into()], ..prompt },
        "Prompt::timestamp" => Prompt { timestamp: Some("2026-01-02T03:04:05Z".into()), ..prompt },
        other => panic!("no sample of {other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn every_field_of_a_prompt_is_written() {
    let (session, mut end, _listener) = start_by_hand(Session::builder()).await;
    for row in mapped("prompt") {
        let [ours] = row.ours.as_slice() else { panic!("one path: {}", row.name()) };
        let mut turn = session.prompt(sample(ours)).await.unwrap();
        let prompt = within(SOON, end.expect("user")).await;
        let written = &prompt[row.wire.as_ref().unwrap()];
        assert!(!written.is_null(), "{}: {prompt}", row.name());
        if ours == "Turn::prompt_uuid" {
            assert_eq!(written, turn.prompt_uuid());
        }
        end.finish_turn(&prompt, "Hello.");
        within(SOON, turn.outcome()).await.unwrap();
    }
    stop(session, end).await;
}
