//! Forks: copies of a conversation up to a message, with a new session id and new entry ids.

use std::fs;

use greenroom::{ErrorKind, Result};
use serde_json::{Value, json};

use super::{A, Home};

/// Forks a session of these entries and returns the entries of the copy, without its title.
async fn fork(entries: &[Value], up_to: Option<&str>) -> Result<Vec<Value>> {
    let home = Home::new();
    let path = home.write(A, 1, entries);
    let fork = home.all().fork(A, up_to, None).await?;
    let text = fs::read_to_string(path.with_file_name(format!("{fork}.jsonl"))).unwrap();
    let mut copies: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for copy in &copies {
        assert_eq!(copy["sessionId"], fork);
    }
    assert_eq!(copies.pop().unwrap()["type"], "custom-title");
    Ok(copies)
}

fn entry(kind: &str, uuid: &str, parent: Option<&str>) -> Value {
    json!({"type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": A, "timestamp": "T", "slug": "s"})
}

#[tokio::test]
async fn a_fork_has_the_same_tree_under_new_ids() {
    let copies = fork(
        &[
            entry("user", "a", None),
            entry("progress", "p", Some("a")),
            entry("progress", "q", Some("p")),
            entry("assistant", "b", Some("q")),
            json!({"type": "tag", "tag": "x"}),
            json!({"type": "user", "uuid": "side", "isSidechain": true}),
        ],
        None,
    )
    .await
    .unwrap();
    assert_eq!(copies.len(), 2);
    assert_eq!(copies[1]["parentUuid"], copies[0]["uuid"]);
    assert_eq!(copies[0]["parentUuid"], Value::Null);
    assert_eq!(copies[1]["forkedFrom"], json!({"sessionId": A, "messageUuid": "b"}));
    assert_eq!(copies[0]["timestamp"], "T");
    assert_ne!(copies[1]["timestamp"], "T", "the last entry is the newest");
    assert!(copies[0]["uuid"] != "a" && copies[0].get("slug").is_none());
}

#[tokio::test]
async fn a_fork_ends_with_the_named_message() {
    let entries =
        [entry("user", "a", None), entry("assistant", "b", Some("a")), entry("user", "c", Some("b"))];
    assert_eq!(fork(&entries, Some("b")).await.unwrap().len(), 2);
    let error = fork(&entries, Some("x")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionNotFound);
    assert!(error.to_string().contains("'x'"), "{error}");
    for nothing in [json!({"type": "tag", "tag": "x"}), entry("progress", "p", None)] {
        assert_eq!(fork(&[nothing], None).await.unwrap_err().kind(), ErrorKind::SessionNotFound);
    }
    let circle = [entry("progress", "p", Some("p")), entry("user", "a", Some("p"))];
    assert_eq!(fork(&circle, None).await.unwrap()[0]["parentUuid"], Value::Null);
}

#[tokio::test]
async fn messages_kept_by_a_compaction_keep_their_place_in_a_fork() {
    let mut boundary = entry("system", "B", None);
    boundary["subtype"] = json!("compact_boundary");
    boundary["logicalParentUuid"] = json!("k");
    boundary["compactMetadata"] =
        json!({"trigger": "auto", "preservedMessages": {"anchorUuid": "S", "uuids": ["k"]}});
    let mut summary = entry("user", "S", Some("B"));
    summary["isCompactSummary"] = json!(true);
    let entries = [entry("user", "k", None), boundary, summary, entry("user", "n", Some("S"))];
    let copies = fork(&entries, None).await.unwrap();
    let kept = &copies[1]["compactMetadata"]["preservedMessages"];
    assert_eq!((&kept["anchorUuid"], &kept["uuids"][0]), (&copies[2]["uuid"], &copies[0]["uuid"]));
    assert_eq!(copies[1]["logicalParentUuid"], copies[0]["uuid"]);
    assert_eq!(copies[1]["compactMetadata"]["trigger"], "auto");
    let copies = fork(&entries, Some("S")).await.unwrap();
    assert_eq!(
        copies[1]["compactMetadata"],
        json!({"trigger": "auto"}),
        "kept messages come after the summary"
    );
    assert_eq!(fork(&entries, Some("B")).await.unwrap().len(), 1, "a boundary is no last entry");
}

#[tokio::test]
async fn replacements_of_large_results_are_copied() {
    let entries = [
        entry("user", "a", None),
        json!({"type": "content-replacement", "sessionId": A, "replacements": [1]}),
        json!({"type": "content-replacement", "sessionId": "other", "replacements": [2]}),
    ];
    let copies = fork(&entries, None).await.unwrap();
    assert_eq!((copies.len(), &copies[1]["replacements"]), (2, &json!([1])));
}
