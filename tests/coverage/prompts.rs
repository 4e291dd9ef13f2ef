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
        "Prompt::parent_tool_use_id" => prompt.parent_tool_use_id("toolu_1"),
        "Prompt::priority" => prompt.priority(PromptPriority::Now),
        "Prompt::from_human" => prompt.from_human(),
        "Prompt::should_query" => prompt.should_query(false),
        "Prompt::verbatim" => prompt.verbatim(true),
        "Prompt::synthetic" => prompt.synthetic(true),
        "Prompt::pasted" => prompt.pasted("a page"),
        "Prompt::inline_paste" => prompt.inline_paste("a page"),
        "Prompt::timestamp" => prompt.timestamp("2026-01-02T03:04:05Z"),
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
