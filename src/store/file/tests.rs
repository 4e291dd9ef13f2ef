use super::*;

fn entry(json: &str) -> TranscriptEntry {
    TranscriptEntry::parse(json).unwrap()
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
    assert!(!is_same_file(&opened, &path).unwrap());
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
