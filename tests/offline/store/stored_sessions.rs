//! Sessions in a store: imported, listed, read, changed.

use std::path::Path;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use greenroom::ErrorKind;
use greenroom::sessions::{LocalSessions, Page, SessionMessages, TranscriptEntry, project_key};
use greenroom::store::{MemoryStore, SessionKey, SessionStore, StoreResult, StoredSessions};
use serde_json::{Value, json};

const ID: &str = "aaaaaaaa-0000-4000-8000-000000000001";

/// A session with a subagent on a disk.
fn disk() -> (tempfile::TempDir, LocalSessions) {
    let home = tempfile::tempdir().unwrap();
    let work = Path::new("/no/such/work");
    let project = home.path().join("projects").join(project_key(work));
    let agents = project.join(ID).join("subagents");
    std::fs::create_dir_all(&agents).unwrap();
    let said = |kind: &str, uuid: &str, parent: Option<&str>| {
        let content = [json!({"type": "text", "text": format!("text of {uuid}")})];
        json!({"type": kind, "uuid": uuid, "parentUuid": parent, "message": {"id": uuid, "content": content},
            "isSidechain": uuid.starts_with('s')})
    };
    let lines = |values: &[Value]| values.iter().map(|value| format!("{value}\n")).collect::<String>();
    let talk =
        [said("user", "u1", None), said("assistant", "a1", Some("u1")), said("user", "u2", Some("a1"))];
    std::fs::write(project.join(format!("{ID}.jsonl")), lines(&talk)).unwrap();
    let side = [said("user", "s1", None), said("assistant", "s2", Some("s1"))];
    std::fs::write(agents.join("agent-x.jsonl"), lines(&side)).unwrap();
    std::fs::write(agents.join("agent-x.meta.json"), r#"{"agentType":"Plan","toolUseId":"t"}"#).unwrap();
    let local = LocalSessions::at(home.path()).in_directory(work);
    (home, local)
}

fn uuids(messages: &SessionMessages) -> Vec<&str> {
    messages.messages.iter().map(|said| said.uuid.as_str()).collect()
}

#[tokio::test]
async fn an_imported_session_is_the_same_as_on_disk() {
    let (_home, local) = disk();
    let store = Arc::new(MemoryStore::new());
    let stored = StoredSessions::new(store.clone(), "tenant");
    stored.import(&local, ID, 2).await.unwrap();
    stored.import(&local, ID, 500).await.unwrap();
    let key = SessionKey::new("tenant", ID);
    assert_eq!(store.keys(), [key.clone(), key.with_subpath("subagents/agent-x")]);
    let on_disk = local.messages(ID, Page::ALL).await.unwrap();
    let in_store = stored.messages(ID, Page::ALL).await.unwrap();
    assert_eq!((uuids(&in_store), in_store.total), (uuids(&on_disk), 3));
    assert_eq!(uuids(&stored.messages(ID, Page::first(1).after(1)).await.unwrap()), ["a1"]);
    assert_eq!(stored.subagents(ID).await.unwrap(), local.subagents(ID).await.unwrap());
    let side = stored.subagent_messages(ID, "x", Page::ALL).await.unwrap();
    assert_eq!(uuids(&side), ["s1", "s2"]);
    assert_eq!(side.messages[0].parent_tool_use_id.as_deref(), Some("t"));
    let listed = stored.list(Page::ALL).await.unwrap();
    assert_eq!((listed.len(), listed[0].summary.as_str()), (1, "text of u1"));

    stored.rename(ID, "Mine").await.unwrap();
    stored.tag(ID, Some("t")).await.unwrap();
    let fork = stored.fork(ID, Some("a1"), None).await.unwrap();
    let info = stored.info(ID).await.unwrap();
    assert_eq!((info.summary.as_str(), info.tag.as_deref()), ("Mine", Some("t")));
    assert_eq!(stored.info(&fork).await.unwrap().summary, "Mine (fork)");
    assert_eq!(stored.messages(&fork, Page::ALL).await.unwrap().total, 2);
    stored.delete(ID).await.unwrap();
    assert_eq!(store.keys().len(), 1, "the fork is left");
}

#[tokio::test]
async fn missing_sessions_and_unsupported_methods_are_named() {
    /// Fails, and cannot list.
    struct Poor;
    impl SessionStore for Poor {
        fn append<'a>(
            &'a self,
            _: &'a SessionKey,
            _: &'a [TranscriptEntry],
        ) -> BoxFuture<'a, StoreResult<()>> {
            Box::pin(async { Err("full".into()) })
        }
        fn load<'a>(&'a self, _: &'a SessionKey) -> BoxFuture<'a, StoreResult<Option<Vec<TranscriptEntry>>>> {
            Box::pin(async { Ok(Some(vec![TranscriptEntry::parse(r#"{"type":"user","uuid":"u"}"#)?])) })
        }
    }
    let empty = StoredSessions::new(Arc::new(MemoryStore::new()), "p");
    for error in [
        empty.info(ID).await.unwrap_err(),
        empty.messages(ID, Page::ALL).await.unwrap_err(),
        empty.rename(ID, "x").await.unwrap_err(),
        empty.delete(ID).await.unwrap_err(),
        empty.subagents(ID).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::SessionNotFound);
        assert!(error.to_string().contains(ID), "{error}");
    }
    assert_eq!(empty.info("x").await.unwrap_err().kind(), ErrorKind::InvalidOption);
    let poor = StoredSessions::new(Arc::new(Poor), "p");
    for (error, says) in [
        (poor.rename(ID, "x").await.unwrap_err(), "full"),
        (poor.list(Page::ALL).await.unwrap_err(), "does not support `list_sessions`"),
        (poor.subagents(ID).await.unwrap_err(), "does not support `list_subkeys`"),
        (poor.delete(ID).await.unwrap_err(), "does not support `delete`"),
    ] {
        assert_eq!(error.kind(), ErrorKind::Store);
        assert!(error.to_string().contains(says), "{error}");
    }
}
