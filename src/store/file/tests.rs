use super::*;

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
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[tokio::test]
async fn an_append_that_fails_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::new(folder.path().join("file"));
    fs::write(folder.path().join("file"), "not a folder").unwrap();
    assert!(store.append(&SessionKey::new("p", "s"), &[entry("{}")]).await.is_err());
    assert!(store.load(&SessionKey::new("p", "s")).await.unwrap().is_none());
}

#[test]
fn a_deleted_and_created_file_is_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.jsonl");
    let opened = FileStore::new(folder.path()).open(&path).unwrap();
    assert!(is_same_file(&opened, &path).unwrap());
    fs::remove_file(&path).unwrap();
    assert!(!is_same_file(&opened, &path).unwrap());
    fs::write(&path, "anew").unwrap();
    assert_eq!(is_same_file(&opened, &path).unwrap(), cfg!(not(unix)));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_append_writes_nothing_later() {
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::new(folder.path());
    let key = SessionKey::new("p", "s");
    store.append(&key, &[entry(r#"{"uuid":"a"}"#)]).await.unwrap();
    let path = store.path(&key);
    let held = store.open(&path).unwrap();
    held.lock().unwrap();
    let late = [entry(r#"{"uuid":"late"}"#)];
    assert!(tokio::time::timeout(LOCK_PAUSE * 10, store.append(&key, &late)).await.is_err());
    // Not even an attempt that had started when the future was dropped.
    drop(held);
    assert!(!store.try_append(&path, b"{}\n", &Weak::new()).unwrap());
    store.append(&key, &[entry(r#"{"uuid":"b"}"#)]).await.unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\"uuid\":\"a\"}\n{\"uuid\":\"b\"}\n");
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

#[tokio::test]
async fn a_session_deleted_during_a_list_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::new(folder.path());
    for id in ["a", "b"] {
        store.append(&SessionKey::new("p", id), &[entry(r#"{"type":"tag","tag":"t"}"#)]).await.unwrap();
    }
    let files = store.files("p").unwrap();
    store.delete(&SessionKey::new("p", "a")).await.unwrap();
    let left = summaries(files).unwrap();
    assert_eq!(left.iter().map(|summary| summary.session_id()).collect::<Vec<_>>(), ["b"]);
}
