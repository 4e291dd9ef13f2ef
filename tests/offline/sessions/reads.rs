//! Sessions and their messages, as they are read.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use greenroom::ErrorKind;
use greenroom::sessions::Page;
use serde_json::{Value, json};

use super::*;

#[tokio::test]
async fn a_session_is_described_by_its_transcript() {
    let home = Home::new();
    let path = home.write(A, 5, &talk());
    let info = home.all().info(A).await.unwrap();
    assert_eq!(
        (info.summary.as_str(), info.first_prompt.as_deref()),
        ("What is 5 + 3?", Some("What is 5 + 3?"))
    );
    assert_eq!((info.cwd.as_deref(), info.git_branch.as_deref()), (Some(Path::new("/work")), Some("main")));
    assert_eq!(info.file_size, Some(fs::metadata(&path).unwrap().len()));
    assert_eq!(info.created, Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_714_557_600)));
    assert_eq!(info.modified, SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_005));
}

#[tokio::test]
async fn messages_are_read_in_order_by_page_and_unchanged() {
    let home = Home::new();
    let mut lines = talk();
    lines.insert(3, json!({"type": "system", "subtype": "informational", "uuid": "s", "parentUuid": "a1", "content": "x"}));
    lines[4]["parentUuid"] = json!("s");
    lines[2]["newer"] = json!({"than": "this"});
    let path = home.write(A, 1, &lines);
    let mut file = fs::File::options().append(true).open(&path).unwrap();
    file.write_all(b"not json\n\n[1]\n{\"type\":\"user\",\"uuid\":\"torn").unwrap();
    let all = home.all().messages(A, Page::ALL).await.unwrap();
    assert_eq!((said(&all).join(" ").as_str(), all.total, all.skipped_lines), ("u1 a1 u2 a2", 4, 3));
    let first = &all.messages[1];
    assert_eq!(first.message.text().as_deref(), Some("8"));
    assert_eq!(first.message.field("newer").unwrap()["than"], "this");
    assert_eq!((first.parent_uuid.as_deref(), first.session_id.as_deref()), (Some("u1"), Some(A)));
    let page = home.all().messages(A, Page::first(2).after(1)).await.unwrap();
    assert_eq!((said(&page).join(" ").as_str(), page.total), ("a1 u2", 4));
    let all = home.all().messages_with_system(A, Page::ALL).await.unwrap();
    assert_eq!(said(&all).join(" "), "u1 a1 s u2 a2");
}

#[tokio::test]
async fn a_huge_file_is_listed_by_its_two_ends() {
    let home = Home::new();
    let path = home.write(A, 1, &talk());
    let mut file = fs::File::options().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(4 << 30)).unwrap();
    let end = format!(
        "\n{}\n{}\n",
        json!({"type": "custom-title", "customTitle": "Huge"}),
        json!({"gitBranch": "late"})
    );
    file.write_all(end.as_bytes()).unwrap();
    let info = home.all().info(A).await.unwrap();
    assert_eq!((info.summary.as_str(), info.first_prompt.as_deref()), ("Huge", Some("What is 5 + 3?")));
    assert_eq!(info.git_branch.as_deref(), Some("late"));
    assert!(info.file_size.unwrap() > 4 << 30);
}

#[tokio::test]
async fn a_huge_first_line_still_gives_directory_and_branch() {
    let home = Home::new();
    let mut first = user("u1", None, &"x".repeat(200_000));
    first["message"]["z"] = json!("\"customTitle\":\"not a title\"");
    home.write(A, 1, &[json!({"type": "summary", "summary": "Long"}), first]);
    let info = home.all().info(A).await.unwrap();
    assert_eq!((info.summary.as_str(), info.custom_title, info.first_prompt), ("Long", None, None));
    assert_eq!((info.cwd.as_deref(), info.git_branch.as_deref()), (Some(Path::new("/work")), Some("main")));
}

#[tokio::test]
async fn subagents_are_listed_with_their_parents_and_read() {
    let home = Home::new();
    let agents = home.write(A, 1, &talk()).with_extension("").join("subagents");
    let deep = agents.join("workflows/run-1");
    fs::create_dir_all(&deep).unwrap();
    let side = |mut entry: Value| {
        entry["isSidechain"] = json!(true);
        format!("{entry}\n")
    };
    let system = json!({"type": "system", "uuid": "s3", "parentUuid": "s2"});
    let text = side(user("s1", None, "Count.")) + &side(assistant("s2", "s1", "3")) + &side(system);
    fs::write(agents.join("agent-b.jsonl"), &text).unwrap();
    fs::write(deep.join("agent-a.jsonl"), &text).unwrap();
    fs::write(deep.join("other.jsonl"), &text).unwrap();
    let note = json!({"agentType": "general-purpose", "description": "count", "toolUseId": "t1", "parentAgentId": "b", "x": 1});
    fs::write(deep.join("agent-a.meta.json"), note.to_string()).unwrap();
    fs::write(agents.join("agent-b.meta.json"), "{torn").unwrap();
    let listed = home.all().subagents(A).await.unwrap();
    assert_eq!(listed.iter().map(|agent| agent.agent_id.as_str()).collect::<Vec<_>>(), ["b", "a"]);
    assert_eq!((listed[0].agent_type.as_deref(), &listed[0].metadata), (None, &Value::Null));
    assert_eq!(
        (listed[1].agent_type.as_deref(), &listed[1].metadata["x"]),
        (Some("general-purpose"), &json!(1))
    );
    let read = home.all().subagent_messages(A, "a", Page::ALL).await.unwrap();
    assert_eq!(said(&read).join(" "), "s1 s2");
    assert_eq!(read.messages[0].parent_tool_use_id.as_deref(), Some("t1"));
    assert_eq!(read.messages[0].parent_agent_id.as_deref(), Some("b"));
    fs::write(agents.join("agent-c.jsonl"), "").unwrap();
    assert_eq!(home.all().subagent_messages(A, "c", Page::ALL).await.unwrap().total, 0);
}

#[tokio::test]
async fn a_missing_session_or_message_is_named_in_the_error() {
    let home = Home::new();
    home.write(A, 1, &talk());
    home.write(C, 1, &[json!({"type": "mode"})]);
    let (here, all) = (home.here(), home.all());
    for error in [
        here.info(B).await.unwrap_err(),
        all.messages(B, Page::ALL).await.unwrap_err(),
        all.rename(B, "x").await.unwrap_err(),
        all.tag(B, None).await.unwrap_err(),
        all.delete(B).await.unwrap_err(),
        all.fork(B, None, None).await.unwrap_err(),
        all.subagents(B).await.unwrap_err(),
        all.clone().in_directory("/no/such").info(A).await.unwrap_err(),
        all.info(C).await.unwrap_err(),
        all.subagent_messages(A, "nobody", Page::ALL).await.unwrap_err(),
        all.fork(A, Some("nothing"), None).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::SessionNotFound, "{error}");
        let text = error.to_string();
        assert!([A, B, C].iter().any(|id| text.contains(id)), "{text}");
    }
    let error = all.delete("../../etc").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    assert!(error.to_string().contains("'../../etc'"), "{error}");
}
