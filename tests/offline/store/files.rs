//! The store in a folder.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use greenroom::sessions::TranscriptEntry;
use greenroom::store::{Durability, FileStore, SessionKey, SessionStore};

fn entry(json: &str) -> TranscriptEntry {
    TranscriptEntry::parse(json).unwrap()
}

#[tokio::test]
async fn a_torn_line_loses_no_other_entry() {
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::new(folder.path());
    let key = SessionKey::new("../p", "s");
    store.append(&key, &[entry(r#"{"uuid":"a"}"#)]).await.unwrap();
    let path = folder.path().join("%2E%2E%2Fp/s.jsonl");
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"uuid\":\"to").unwrap();
    store.append(&key, &[entry("{\"uuid\":\n\"b\"}"), entry(r#"{"uuid":"a"}"#)]).await.unwrap();
    let uuids: Vec<_> = store.load(&key).await.unwrap().unwrap();
    assert_eq!(uuids.iter().filter_map(|entry| entry.uuid()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn an_append_that_fails_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::new(folder.path().join("file"));
    fs::write(folder.path().join("file"), "not a folder").unwrap();
    assert!(store.append(&SessionKey::new("p", "s"), &[entry("{}")]).await.is_err());
    assert!(store.load(&SessionKey::new("p", "s")).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_appends_are_all_stored_whole() {
    let folder = tempfile::tempdir().unwrap();
    let key = SessionKey::new("p", "s");
    let appends = (0..16).map(|number| {
        let (store, key) = (FileStore::new(folder.path()).durability(Durability::Written), key.clone());
        async move {
            for round in 0..8 {
                let entries =
                    [entry(&format!(r#"{{"uuid":"{number}-{round}","x":"{}"}}"#, "y".repeat(5000)))];
                store.append(&key, &entries).await.unwrap();
            }
        }
    });
    futures_util::future::join_all(appends).await;
    let loaded = FileStore::new(folder.path()).load(&key).await.unwrap().unwrap();
    assert_eq!(loaded.len(), 128);
}
