//! The description of a session, folded from its entries.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use greenroom::sessions::{SessionInfo, TranscriptEntry};
use greenroom::store::SessionSummary;
use serde_json::{Value, json};

fn fold(entries: &[Value]) -> SessionSummary {
    let mut summary = SessionSummary::new("s");
    let entries: Vec<_> =
        entries.iter().map(|entry| TranscriptEntry::try_from(entry.clone()).unwrap()).collect();
    summary.fold(&entries, SystemTime::UNIX_EPOCH);
    summary
}

fn info(entries: &[Value]) -> Option<SessionInfo> {
    fold(entries).info()
}

fn user(content: Value) -> Value {
    json!({"type": "user", "message": {"role": "user", "content": content}})
}

#[test]
fn the_summary_prefers_the_title_of_the_user() {
    let mut entries = vec![user(json!("First"))];
    let summary = |entries: &[Value]| info(entries).unwrap().summary;
    assert_eq!(summary(&entries), "First");
    entries.push(json!({"type": "summary", "summary": "A summary"}));
    assert_eq!(summary(&entries), "A summary");
    entries.push(json!({"type": "last-prompt", "lastPrompt": "Last"}));
    assert_eq!(summary(&entries), "Last");
    entries.push(json!({"type": "ai-title", "aiTitle": "By AI"}));
    assert_eq!(summary(&entries), "By AI");
    entries.push(json!({"type": "custom-title", "customTitle": "Old"}));
    entries.push(json!({"type": "custom-title", "customTitle": "Mine"}));
    entries.push(json!({"type": "ai-title", "aiTitle": "By AI again"}));
    assert_eq!(summary(&entries), "Mine");
}

#[test]
fn the_first_prompt_is_the_first_text_of_a_person() {
    let first = |entries: &[Value]| info(entries).and_then(|info| info.first_prompt);
    let automatic = [
        json!({"type": "user", "isMeta": true, "message": {"content": "meta"}}),
        json!({"type": "user", "isCompactSummary": true, "message": {"content": "summary"}}),
        user(json!([{"type": "tool_result", "tool_use_id": "t"}, {"type": "text", "text": "no"}])),
        user(json!("<local-command-stdout>x</local-command-stdout>")),
        user(json!("[Request interrupted by user for tool use]")),
        user(json!(" <ide_opened_file>a\nb</ide_opened_file> ")),
        user(json!("\n ")),
        user(json!("<command-name>/clear</command-name>")),
        user(json!("<command-name>/model</command-name>")),
    ];
    assert_eq!(first(&automatic).as_deref(), Some("/clear"));
    let asked = user(json!([{"type": "text", "text": "<tick>"}, {"type": "text", "text": " Say\nthis "}]));
    let all: Vec<_> = automatic.into_iter().chain([asked, user(json!("and more"))]).collect();
    assert_eq!(first(&all).as_deref(), Some("Say this"));
    let long = first(&[user(json!("é".repeat(300)))]).unwrap();
    assert_eq!(long.chars().count(), 201);
    assert!(long.ends_with("é…"));
}

#[test]
fn an_empty_tag_removes_the_tag_and_other_entries_set_none() {
    let tag = |tag: &str| json!({"type": "tag", "tag": tag});
    let with = |more: &[Value]| {
        let entries: Vec<_> = [user(json!("Hi"))].iter().chain(more).cloned().collect();
        info(&entries).unwrap().tag
    };
    assert_eq!(with(&[tag("a"), tag("b")]).as_deref(), Some("b"));
    assert_eq!(with(&[tag("a"), tag("")]), None);
    assert_eq!(with(&[json!({"type": "docker", "tag": "latest"})]), None);
}

#[test]
fn directory_and_start_are_the_first_and_the_branch_is_the_last() {
    let at = |timestamp: &str, cwd: &str, branch: &str| json!({"timestamp": timestamp, "cwd": cwd, "gitBranch": branch});
    let info = info(&[
        user(json!("Hi")),
        at("2024-01-01T00:00:01.500Z", "/a", "main"),
        at("2025-01-01T00:00:00Z", "/b", "next"),
    ]);
    let info = info.unwrap();
    assert_eq!(info.cwd.unwrap(), PathBuf::from("/a"));
    assert_eq!(info.git_branch.as_deref(), Some("next"));
    let created = SystemTime::UNIX_EPOCH + Duration::from_millis(1_704_067_201_500);
    assert_eq!(info.created, Some(created));
}

#[test]
fn subagents_and_transcripts_without_a_message_are_no_sessions() {
    assert_eq!(info(&[json!({"type": "mode"})]), None);
    assert_eq!(info(&[json!({"isSidechain": true}), user(json!("Hi"))]), None);
    assert!(info(&[json!({"isSidechain": false}), user(json!("Hi"))]).is_some());
}

#[test]
fn folding_can_continue_from_json() {
    let before = fold(&[user(json!("Hi")), json!({"type": "tag", "tag": "t"})]);
    let mut after: SessionSummary = serde_json::from_value(serde_json::to_value(&before).unwrap()).unwrap();
    assert_eq!(before, after);
    let untag = TranscriptEntry::parse(r#"{"type":"tag","tag":""}"#).unwrap();
    after.fold(&[untag], SystemTime::UNIX_EPOCH);
    let info = after.info().unwrap();
    assert_eq!((info.tag, info.first_prompt.as_deref()), (None, Some("Hi")));
}
