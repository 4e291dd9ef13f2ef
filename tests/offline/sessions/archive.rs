//! The archive mark of a session.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use greenroom::ErrorKind;
use serde_json::{Value, json};

use super::*;

fn asked(at: &str, text: &str) -> Value {
    let mut entry = user("u9", Some("u1"), text);
    entry["timestamp"] = json!(at);
    entry
}

#[tokio::test]
async fn a_session_is_archived_until_unarchived_or_prompted() {
    let home = Home::new();
    let path = home.write(A, 1, &[user("u1", None, "Hello")]);
    let archived = async || home.here().info(A).await.unwrap().archived;
    assert_eq!(archived().await, None);
    home.here().archive(A).await.unwrap();
    assert_eq!(archived().await, Some(true));
    let before = fs::read_to_string(&path).unwrap();
    home.all().unarchive(A).await.unwrap();
    assert_eq!(archived().await, Some(false));
    home.here().archive(A).await.unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), before, "the transcript stays as it is");

    // Later entries that are no prompts leave the session archived.
    let later = "2999-01-01T00:00:00.000Z";
    let mut meta = asked(later, "for the model");
    meta["isMeta"] = json!(true);
    let mut injected = asked(later, "a task ended");
    injected["origin"] = json!({ "kind": "task-notification" });
    let mut result = asked(later, "");
    result["message"]["content"] = json!([{ "type": "tool_result", "tool_use_id": "t1", "content": "8" }]);
    let quiet = [asked("2020-01-01T00:00:00.000Z", "before"), meta, injected, result];
    home.write(A, 2, &[&[user("u1", None, "Hello")], &quiet[..]].concat());
    assert_eq!(archived().await, Some(true));
    let queued = json!({ "type": "attachment", "timestamp": later, "parentUuid": "u1",
        "attachment": { "type": "queued_command", "prompt": "and this" } });
    for prompt in [asked(later, "Go on"), queued] {
        home.write(A, 3, &[user("u1", None, "Hello"), prompt]);
        assert_eq!(archived().await, Some(false));
    }
    assert_eq!(home.here().archive(B).await.unwrap_err().kind(), ErrorKind::SessionNotFound);
    assert_eq!(home.here().archive("../x").await.unwrap_err().kind(), ErrorKind::InvalidOption);
}

#[tokio::test]
async fn the_archive_mark_has_the_form_of_the_sdk() {
    let home = Home::new();
    let path = home.write(A, 1, &[user("u1", None, "Hello")]);
    home.here().archive(A).await.unwrap();
    let file = path.with_extension("").join("archived.json");
    let mark: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!((&mark["archived"], &mark["by"]), (&json!(true), &json!("sdk")));
    assert!(mark["at"].as_str().unwrap().ends_with('Z'), "{mark}");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    // Anything else in the file counts as no mark.
    for odd in ["", "{}", r#"{"archived": true, "at": "yesterday"}"#, &" ".repeat(5000)] {
        fs::write(&file, odd).unwrap();
        assert_eq!(home.here().info(A).await.unwrap().archived, None, "{odd:.40}");
    }
}
