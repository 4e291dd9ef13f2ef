//! The backend in a file: what a second process, another program's file, and a restart meet.

use std::fs;
use std::time::Duration;

use greenroom_fleet::backend::{LocalBackend, Requests};
use greenroom_fleet::{
    Accept, Accepted, Append, BackendErrorKind, Begin, Claim, Claimed, Join, NameQuery, NodeId, NodeState,
    Owned, Ownership, PromptContent, PromptId,
};
use serde_json::json;
use tempfile::TempDir;

use crate::backends::accept;

const FOREVER: Duration = Duration::from_secs(3600);

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

async fn refused(path: &std::path::Path) -> (BackendErrorKind, String) {
    let error = LocalBackend::open(path).await.expect_err("the file is opened");
    (error.kind(), error.to_string().replace(&path.display().to_string(), "FILE"))
}

// Guards: accepted-is-kept
#[tokio::test]
async fn a_reopened_file_has_all_that_was_accepted() {
    let folder = folder();
    let path = folder.path().join("fleet.redb");
    let backend = LocalBackend::open(&path).await.unwrap();
    let kept = accept("a");
    assert!(matches!(backend.accept(kept.clone()).await.unwrap(), Accepted::New(_)));
    let node = NodeId::new();
    backend.join(Join { node, host: "here".to_owned(), lease: FOREVER, capacity: 8 }).await.unwrap();
    let claim = Claim {
        name: kept.name.clone(),
        node,
        attempt: greenroom_fleet::AttemptId::new(),
        losses: 3,
        quota: greenroom_fleet::Quota::default(),
    };
    let Claimed::Won(won) = backend.claim(claim.clone()).await.unwrap() else { panic!("not won") };
    let clone = backend.clone();
    backend.close().await;
    assert_eq!(clone.queued().await.unwrap_err().kind(), BackendErrorKind::Closed);

    let backend = LocalBackend::open(&path).await.unwrap();
    let record = backend.prompt_record(kept.prompt).await.unwrap().unwrap();
    assert_eq!(record.name, kept.name);
    assert_eq!(backend.name_record(kept.name.clone()).await.unwrap(), Some(won));
    assert!(matches!(
        backend.accept(Accept { prompt: PromptId::new(), ..kept }).await.unwrap(),
        Accepted::Duplicate(_)
    ));
}

// Guards: one-owner
#[tokio::test]
async fn names_of_an_earlier_process_are_recovered_at_once() {
    let folder = folder();
    let path = folder.path().join("fleet.redb");
    let backend = LocalBackend::open(&path).await.unwrap();
    let (kept, idle) = (accept("a"), accept("idle"));
    let node = NodeId::new();
    backend.join(Join { node, host: "here".to_owned(), lease: FOREVER, capacity: 8 }).await.unwrap();
    backend
        .join(Join { node: NodeId::new(), host: "here".to_owned(), lease: FOREVER, capacity: 8 })
        .await
        .unwrap();
    for accept in [&kept, &idle] {
        assert!(matches!(backend.accept(accept.clone()).await.unwrap(), Accepted::New(_)));
    }
    let attempt = greenroom_fleet::AttemptId::new();
    let claim =
        Claim { name: kept.name.clone(), node, attempt, losses: 3, quota: greenroom_fleet::Quota::default() };
    let Claimed::Won(record) = backend.claim(claim).await.unwrap() else { panic!("not won") };
    let owner = Ownership { name: kept.name.clone(), node, term: record.term };
    assert_eq!(
        backend.record_process(owner.clone(), Some(json!({ "pid": 7 }))).await.unwrap(),
        Owned::Done(())
    );
    backend.close().await;

    let backend = LocalBackend::open(&path).await.unwrap();
    let nodes = backend.nodes(None, 10).await.unwrap();
    assert_eq!(nodes.iter().map(|node| (node.id, node.state)).collect::<Vec<_>>(), [(node, NodeState::Dead)]);
    let left = backend.left_processes(10).await.unwrap();
    assert_eq!(left.iter().map(|left| &left.process).collect::<Vec<_>>(), [&json!({ "pid": 7 })]);
    assert_eq!(backend.record_process(owner, None).await.unwrap(), Owned::Fenced);
    assert_eq!(backend.recover(10, 3).await.unwrap(), [kept.name]);
    assert_eq!(backend.nodes(None, 10).await.unwrap(), []);
}

#[tokio::test]
async fn a_second_opening_is_told_that_the_file_is_in_use() {
    let folder = folder();
    let path = folder.path().join("fleet.redb");
    let first = LocalBackend::open(&path).await.unwrap();
    let text = "another process, or another backend of this process, has the fleet's file FILE open: stop that process, use a clone of that backend, or close it first";
    assert_eq!(refused(&path).await, (BackendErrorKind::InUse, text.to_owned()));
    assert_eq!(first.queued().await.unwrap(), 0);
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_kept() {
    let folder = folder();
    let path = folder.path().join("notes.txt");
    let text = "my notes\n".repeat(1000);
    fs::write(&path, &text).unwrap();
    let (kind, message) = refused(&path).await;
    assert_eq!(kind, BackendErrorKind::Damaged, "{message}");
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[tokio::test]
async fn the_database_of_another_program_is_refused_and_kept() {
    let folder = folder();
    let path = folder.path().join("other.redb");
    let table: redb::TableDefinition<'_, &str, u64> = redb::TableDefinition::new("counts");
    let other = redb::Database::create(&path).unwrap();
    let write = other.begin_write().unwrap();
    write.open_table(table).unwrap().insert("a", 1).unwrap();
    write.commit().unwrap();
    drop(other);
    let text = "FILE is the database of another program: name another file";
    assert_eq!(refused(&path).await, (BackendErrorKind::Damaged, text.to_owned()));
}

#[tokio::test]
async fn databases_of_other_programs_with_other_kinds_of_tables_are_refused_too() {
    let folder = folder();
    let many: redb::MultimapTableDefinition<'_, &str, u64> = redb::MultimapTableDefinition::new("counts");
    let same_name: redb::TableDefinition<'_, &str, u64> = redb::TableDefinition::new("fleet");
    for (at, name) in ["many.redb", "same-name.redb"].into_iter().enumerate() {
        let path = folder.path().join(name);
        let other = redb::Database::create(&path).unwrap();
        let write = other.begin_write().unwrap();
        match at {
            0 => drop(write.open_multimap_table(many).unwrap().insert("a", 1).unwrap()),
            _ => drop(write.open_table(same_name).unwrap().insert("a", 1).unwrap()),
        }
        write.commit().unwrap();
        drop(other);
        let text = "FILE is the database of another program: name another file";
        assert_eq!(refused(&path).await, (BackendErrorKind::Damaged, text.to_owned()));
    }
}

#[tokio::test]
async fn an_export_keeps_messages_that_are_not_one_line_of_json() {
    let folder = folder();
    let from = LocalBackend::open(folder.path().join("from.redb")).await.unwrap();
    let kept = accept("a");
    assert!(matches!(from.accept(kept.clone()).await.unwrap(), Accepted::New(_)));
    let node = NodeId::new();
    from.join(Join { node, host: "here".to_owned(), lease: FOREVER, capacity: 8 }).await.unwrap();
    let attempt = greenroom_fleet::AttemptId::new();
    let claim =
        Claim { name: kept.name.clone(), node, attempt, losses: 3, quota: greenroom_fleet::Quota::default() };
    let Claimed::Won(record) = from.claim(claim).await.unwrap() else { panic!("not won") };
    let owner = Ownership { name: kept.name, node, term: record.term };
    let begin = Begin {
        owner: owner.clone(),
        prompt: kept.prompt,
        attempt,
        quota: greenroom_fleet::Quota::default(),
        credential: None,
    };
    assert!(from.begin(begin).await.unwrap().done().is_some());
    let messages = ["{\n\"a\": 1}", " 1 ", "null", "no JSON", "\"one line\""].map(str::to_owned).to_vec();
    let append = Append { owner, prompt: kept.prompt, first_seq: 1, messages, bound: 1000 };
    assert!(from.append(append).await.unwrap().done().is_some());
    let text = from.export().await.unwrap();
    let to = LocalBackend::open(folder.path().join("to.redb")).await.unwrap();
    to.import(text).await.unwrap();
    let read = async |of: &LocalBackend| of.messages(kept.prompt, 0, 10).await.unwrap();
    assert_eq!(read(&to).await, read(&from).await);
    // The owner goes on in the first file alone.
    let states = async |of: &LocalBackend| {
        of.nodes(None, 10).await.unwrap().iter().map(|node| node.state).collect::<Vec<_>>()
    };
    assert_eq!((states(&from).await, states(&to).await), (vec![NodeState::Up], vec![NodeState::Dead]));
    assert_eq!(read(&to).await.len(), 5);
}

#[tokio::test]
async fn an_import_writes_no_keys_of_its_own_invention() {
    let folder = folder();
    let backend = LocalBackend::open(folder.path().join("fleet.redb")).await.unwrap();
    for key in ["", "00", "ff", "7f"] {
        let text = format!("{{\"greenroom_fleet\":1}}\n{{\"key\":\"{key}\",\"value\":7}}\n");
        let error = backend.import(text).await.unwrap_err();
        assert!(error.to_string().contains("the key is of no part of the registry"), "{error}");
    }
}

#[tokio::test]
async fn json_that_is_nested_too_deeply_is_refused_and_harms_nobody() {
    let folder = folder();
    let backend = LocalBackend::open(folder.path().join("fleet.redb")).await.unwrap();
    let prompt = (0..127).fold(json!("[\\\"["), |inner, _| json!([inner]));
    let deep = Accept { content: PromptContent { prompt, continuation: None }, ..accept("a") };
    let (deep, fine) = tokio::join!(backend.accept(deep), backend.accept(accept("b")));
    let error = deep.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Invalid);
    assert_eq!(error.to_string(), "the JSON of the request is nested deeper than 127 levels: flatten it");
    assert!(matches!(fine.unwrap(), Accepted::New(_)));
    assert_eq!(backend.queued().await.unwrap(), 1);
}

#[tokio::test]
async fn a_file_of_another_format_is_refused_by_name() {
    let folder = folder();
    let path = folder.path().join("fleet.redb");
    let rows: redb::TableDefinition<'_, &[u8], &[u8]> = redb::TableDefinition::new("fleet");
    let newer = redb::Database::create(&path).unwrap();
    let write = newer.begin_write().unwrap();
    write.open_table(rows).unwrap().insert(&b"\0"[..], &b"7"[..]).unwrap();
    write.commit().unwrap();
    drop(newer);
    let (kind, message) = refused(&path).await;
    assert_eq!(kind, BackendErrorKind::Version);
    assert!(
        message.starts_with("the fleet's file FILE has the format 7, and this version of greenroom reads 1"),
        "{message}"
    );
}

#[tokio::test]
async fn a_folder_that_is_missing_is_named() {
    let folder = folder();
    let path = folder.path().join("missing").join("fleet.redb");
    let (kind, message) = refused(&path).await;
    assert_eq!(kind, BackendErrorKind::Unavailable);
    assert!(message.contains("FILE") && message.contains("its folder has to exist"), "{message}");
}

#[cfg(unix)]
#[tokio::test]
async fn the_file_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;

    let folder = folder();
    let path = folder.path().join("fleet.redb");
    let _backend = LocalBackend::open(&path).await.unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn an_export_fills_an_empty_file_and_no_other() {
    let folder = folder();
    let from = LocalBackend::open(folder.path().join("from.redb")).await.unwrap();
    for to in ["a", "b\0", "../c"] {
        assert!(matches!(from.accept(accept(to)).await.unwrap(), Accepted::New(_)));
    }
    let text = from.export().await.unwrap();
    let to = LocalBackend::open(folder.path().join("to.redb")).await.unwrap();
    to.import(text.clone()).await.unwrap();
    let names = NameQuery::new;
    assert_eq!(to.names(names()).await.unwrap(), from.names(names()).await.unwrap());
    assert_eq!(to.export().await.unwrap(), text);
    let error = to.import(text.clone()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the fleet's file is not empty: import into a new file; nothing was imported"
    );

    let cut = &text[..text.len() / 2];
    let third = LocalBackend::open(folder.path().join("third.redb")).await.unwrap();
    let error = third.import(cut).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Damaged, "{error}");
    assert!(error.to_string().contains("is no line of an export"), "{error}");
    assert_eq!(third.names(names()).await.unwrap().names, Vec::new());
}

#[tokio::test]
async fn a_close_ends_an_export_that_runs() {
    let folder = folder();
    let path = folder.path().join("fleet.redb");
    let text = {
        let from = LocalBackend::open(folder.path().join("from.redb")).await.unwrap();
        for to in 0..200 {
            assert!(matches!(from.accept(accept(&to.to_string())).await.unwrap(), Accepted::New(_)));
        }
        from.export().await.unwrap()
    };
    for round in 0..20 {
        let backend = LocalBackend::open(&path).await.unwrap();
        if round == 0 {
            backend.import(text.clone()).await.unwrap();
        }
        let (export, ()) = tokio::join!(backend.export(), backend.close());
        // The file is free as soon as the close returns.
        match export {
            Ok(export) => assert_eq!(export, text),
            Err(error) if error.kind() == BackendErrorKind::Closed => {}
            Err(error) => assert!(error.to_string().contains("the export was ended"), "{error}"),
        }
    }
}

#[tokio::test]
async fn a_write_is_kept_when_a_read_follows_it_in_its_group() {
    let folder = folder();
    let backend = LocalBackend::open(folder.path().join("fleet.redb")).await.unwrap();
    for round in 1..=20 {
        let accept = accept(&round.to_string());
        let (accepted, ..) = tokio::join!(backend.accept(accept), backend.queued(), backend.queued());
        assert!(matches!(accepted.unwrap(), Accepted::New(_)));
        assert_eq!(backend.queued().await.unwrap(), round);
    }
}
