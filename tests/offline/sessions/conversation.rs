//! The conversation in a transcript: which messages belong to it, and in which order.

use std::fs;

use greenroom::sessions::Page;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{A, Home, said as uuids_of};

fn said(kind: &str, uuid: &str, parent: &str) -> Value {
    json!({"type": kind, "uuid": uuid, "parentUuid": if parent.is_empty() { None } else { Some(parent) }})
}

fn with(mut value: Value, more: Value) -> Value {
    value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    value
}

fn call(uuid: &str, parent: &str, response: &str, call: &str) -> Value {
    let content = json!([{"type": "tool_use", "id": call}]);
    with(said("assistant", uuid, parent), json!({"message": {"id": response, "content": content}}))
}

fn result(uuid: &str, parent: &str, call: &str) -> Value {
    let content = json!([{"type": "tool_result", "tool_use_id": call}]);
    with(said("user", uuid, parent), json!({"message": {"content": content}}))
}

/// The uuids of the conversation in these entries, system messages included.
async fn uuids(entries: &[Value]) -> String {
    let home = Home::new();
    home.write(A, 1, entries);
    uuids_of(&home.all().messages_with_system(A, Page::ALL).await.unwrap()).join(" ")
}

#[tokio::test]
async fn the_newest_branch_is_the_conversation() {
    let entries = [
        said("user", "a", ""),
        said("assistant", "b", "a"),
        said("user", "old", "b"),
        said("assistant", "old2", "old"),
        said("user", "c", "b"),
        said("attachment", "x", "c"),
        said("assistant", "d", "x"),
        said("attachment", "y", "d"),
    ];
    assert_eq!(uuids(&entries).await, "a b c d");
}

#[tokio::test]
async fn branches_of_subagents_teams_and_meta_messages_are_left_out() {
    let entries = [
        said("user", "a", ""),
        said("assistant", "b", "a"),
        with(said("user", "s", "a"), json!({"isSidechain": true})),
        with(said("user", "m", "a"), json!({"isMeta": true})),
        with(said("user", "t", "a"), json!({"teamName": "x"})),
    ];
    assert_eq!(uuids(&entries).await, "a b");
    let side = with(said("user", "s", "a"), json!({"isSidechain": true}));
    assert_eq!(
        uuids(&[said("user", "a", ""), side]).await,
        "a",
        "a branch that is used if there is no other"
    );
}

#[tokio::test]
async fn all_parallel_tool_calls_are_in_the_conversation() {
    let entries = [
        said("user", "a", ""),
        call("c1", "a", "m", "t1"),
        call("c2", "c1", "m", "t2"),
        call("c3", "c2", "m", "t3"),
        result("r2", "c2", "t2"),
        result("r1", "c1", "t1"),
        result("r3", "c3", "t3"),
        said("assistant", "z", "r1"),
    ];
    assert_eq!(uuids(&entries).await, "a c1 c2 c3 r2 r3 r1 z");
}

#[tokio::test]
async fn a_stray_result_is_inserted_only_for_an_unanswered_call() {
    let stray = |uuid: &str, call: &str| with(result(uuid, "a", call), json!({}));
    let mut entries = vec![
        said("user", "a", ""),
        call("c1", "a", "m", "t1"),
        call("c2", "c1", "m", "t2"),
        result("r2", "c2", "t2"),
        stray("s1", "t1"),
        stray("again", "t1"),
        stray("s2", "t2"),
        said("assistant", "z", "r2"),
    ];
    assert_eq!(uuids(&entries).await, "a c1 c2 s1 r2 z");
    entries.push(call("d1", "x", "other", "t1"));
    entries.push(said("user", "y", "z"));
    assert_eq!(uuids(&entries).await, "a c1 c2 r2 z y", "two answers claim the call");
}

#[tokio::test]
async fn messages_kept_by_a_compaction_follow_its_summary() {
    let boundary = |kept: Value| {
        let boundary = with(said("system", "B", ""), json!({"subtype": "compact_boundary"}));
        with(boundary, json!({"compactMetadata": kept}))
    };
    let entries = |kept: Value| {
        [
            said("user", "a", ""),
            said("assistant", "b", "a"),
            said("user", "k1", "b"),
            said("assistant", "k2", "k1"),
            boundary(kept),
            said("user", "S", "B"),
            said("user", "n", "S"),
            said("assistant", "o", "n"),
        ]
    };
    assert_eq!(uuids(&entries(json!({}))).await, "B S n o");
    let messages = json!({"preservedMessages": {"anchorUuid": "S", "uuids": ["k1", "k2"]}});
    assert_eq!(uuids(&entries(messages)).await, "B S k1 k2 n o");
    let segment = json!({"preservedSegment": {"headUuid": "k1", "anchorUuid": "S", "tailUuid": "k2"}});
    assert_eq!(uuids(&entries(segment)).await, "B S k1 k2 n o");
    let gone = json!({"preservedMessages": {"anchorUuid": "S", "uuids": ["k1", "gone"]}});
    assert_eq!(uuids(&entries(gone)).await, "B S n o");
}

proptest! {
    #[test]
    fn any_links_give_a_finite_conversation_without_repeats(
        entries in proptest::collection::vec((0..5usize, 0..8u8, 0..8u8, 0..3u8, 0..4u8), 1..24),
    ) {
        let kinds = ["user", "assistant", "system", "attachment", "progress"];
        let entry = |&(kind, uuid, parent, response, tool): &(usize, u8, u8, u8, u8)| {
            let block = json!({"type": if kind == 0 { "tool_result" } else { "tool_use" },
                "id": format!("t{tool}"), "tool_use_id": format!("t{tool}")});
            json!({"type": kinds[kind], "uuid": format!("{uuid}"), "parentUuid": format!("{parent}"),
                "subtype": "compact_boundary", "message": {"id": format!("m{response}"), "content": [block]},
                "compactMetadata": {"preservedMessages":
                    {"anchorUuid": format!("{parent}"), "uuids": [format!("{response}"), format!("{tool}")]}}})
        };
        let lines: Vec<Value> = entries.iter().map(entry).collect();
        let home = Home::new();
        let path = home.write(A, 1, &lines);
        let agents = path.with_extension("").join("subagents");
        fs::create_dir_all(&agents).unwrap();
        fs::copy(&path, agents.join("agent-1.jsonl")).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (main, agent) = runtime.block_on(async {
            let main = home.all().messages_with_system(A, Page::ALL).await.unwrap();
            (main, home.all().subagent_messages(A, "1", Page::ALL).await.unwrap())
        });
        for conversation in [&main, &agent] {
            let mut once = uuids_of(conversation);
            once.sort_unstable();
            once.dedup();
            prop_assert_eq!(once.len(), conversation.total);
        }
        let said = entries.iter().any(|(kind, ..)| *kind < 2);
        prop_assert!(said || main.total == 0);
    }
}
