//! Power cuts, disks that fail, and rows that cannot be read.

mod held;

use std::io::ErrorKind;
use std::time::Duration;

use serde_json::json;
use uuid::Uuid;

use super::database::ROWS;
use super::disk::Platter;
use super::*;
use crate::backend::Requests;
use crate::id::{AttemptId, Name, NodeId, PromptId};
use crate::query::lists::NameQuery;
use crate::record::{NodeState, PromptContent};
use crate::request::{Accept, Accepted, Begin, Claim, Claimed, Join, Ownership, QueueBounds};
use crate::wait::in_time;

async fn on(disk: &SimulatedDisk) -> LocalBackend {
    LocalBackend::on_disk(disk).await.unwrap()
}

/// The database on a disk, without a backend.
fn database(disk: &SimulatedDisk) -> redb::Database {
    redb::Database::builder().create_with_backend(Platter(disk.clone())).unwrap()
}

fn accept(key: u32) -> Accept {
    Accept {
        prompt: PromptId::new(),
        name: "acme/a".parse::<Name>().unwrap(),
        profile: "support".to_owned(),
        conversation: Uuid::new_v4(),
        host: None,
        key: Some(key.to_string()),
        labels: Default::default(),
        content: PromptContent { prompt: json!(key), continuation: None },
        continuations: 0,
        not_before: None,
        wait: Duration::from_secs(3600),
        quota: crate::Quota::default(),
        bounds: QueueBounds { name: 10_000, tenant: 10_000, fleet: 10_000, ..Default::default() },
    }
}

#[tokio::test]
async fn after_a_power_cut_all_that_was_accepted_is_there() {
    let disk = SimulatedDisk::new();
    let backend = on(&disk).await;
    for key in 0..50 {
        let prompt = accept(key);
        assert!(matches!(backend.accept(prompt.clone()).await.unwrap(), Accepted::New(_)));
        let after = on(&disk.after_power_cut(disk.moment(), u64::from(key))).await;
        let record = after.prompt_record(prompt.prompt).await.unwrap();
        assert_eq!(record.map(|record| record.id), Some(prompt.prompt));
        assert_eq!(after.queued().await.unwrap(), key + 1);
    }
}

// Guards: crash-safe
#[tokio::test]
async fn a_power_cut_at_any_write_leaves_a_file_that_opens_with_whole_requests() {
    // Each round cuts the power one write later, until a round is over before the cut.
    for cut in 1.. {
        let disk = SimulatedDisk::new();
        let backend = on(&disk).await;
        disk.fail_at(disk.moment() + cut - 1, ErrorKind::Other);
        let answers = futures_util::future::join_all((0..3).map(|key| backend.accept(accept(key)))).await;
        let accepted = answers.iter().filter(|answer| answer.is_ok()).count();
        for seed in 0..20 {
            let after = on(&disk.after_power_cut(disk.moment(), seed)).await;
            let kept = after.queued().await.unwrap();
            let name = after.name_record("acme/a".parse::<Name>().unwrap()).await.unwrap();
            assert_eq!(name.map_or(0, |name| name.queued), kept, "cut at write {cut}, seed {seed}");
            assert!(kept as usize >= accepted, "cut at write {cut}: {accepted} accepted, {kept} kept");
        }
        if accepted == 3 {
            assert!(cut > 1);
            return;
        }
    }
}

#[tokio::test]
async fn a_power_cut_while_the_file_grows_leaves_a_file_that_opens() {
    let disk = SimulatedDisk::new();
    let backend = on(&disk).await;
    for key in 0..200 {
        let (length, before) = (disk.bytes().len(), disk.moment());
        let content = PromptContent { prompt: json!("x".repeat(1 << 17)), continuation: None };
        let prompt = Accept { content, ..accept(key) };
        assert!(matches!(backend.accept(prompt).await.unwrap(), Accepted::New(_)));
        if disk.bytes().len() == length {
            continue;
        }
        for (seed, cut) in (1..).zip((before..=disk.moment()).flat_map(|cut| [cut; 4])) {
            let after = on(&disk.after_power_cut(cut, seed)).await;
            let kept = after.queued().await.unwrap();
            let accepted = key + u32::from(cut == disk.moment());
            assert!((accepted..=key + 1).contains(&kept), "cut at {cut}, seed {seed}: {kept} of {key}");
        }
        return;
    }
    panic!("the file has not grown");
}

// Guards: crash-safe
#[tokio::test]
async fn a_full_disk_is_told_and_the_repeated_request_is_carried_out_once() {
    let disk = SimulatedDisk::new();
    let backend = on(&disk).await;
    assert!(matches!(backend.accept(accept(1)).await.unwrap(), Accepted::New(_)));
    disk.fail(ErrorKind::StorageFull);
    let prompt = accept(2);
    let error = backend.accept(prompt.clone()).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Unavailable);
    assert!(error.to_string().contains("make room on its disk"), "{error}");
    let error = backend.queued().await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Unavailable, "{error}");
    disk.mend();
    for _ in 0..2 {
        assert!(matches!(backend.accept(prompt.clone()).await.unwrap(), Accepted::New(_)));
    }
    assert_eq!(backend.queued().await.unwrap(), 2);
}

// Guards: isolated
#[tokio::test]
async fn a_row_that_cannot_be_read_harms_its_own_requests_alone() {
    let disk = SimulatedDisk::new();
    on(&disk).await.close().await;
    let database = database(&disk);
    let prompt = PromptId::new();
    let key: Vec<u8> = [&[4][..], prompt.0.as_bytes()].concat();
    let write = database.begin_write().unwrap();
    write.open_table(ROWS).unwrap().insert(&key[..], &b"spoilt"[..]).unwrap();
    write.commit().unwrap();
    drop(database);
    let backend = on(&disk).await;
    let (spoilt, fine) = tokio::join!(backend.prompt_record(prompt), backend.accept(accept(1)));
    assert_eq!(spoilt.unwrap_err().kind(), BackendErrorKind::Damaged);
    assert!(matches!(fine.unwrap(), Accepted::New(_)));
}

#[tokio::test]
async fn a_record_of_a_process_that_cannot_be_read_is_told_and_can_be_removed() {
    let disk = SimulatedDisk::new();
    on(&disk).await.close().await;
    let database = database(&disk);
    let term = 7_u64.to_be_bytes();
    let key: Vec<u8> = [&[19][..], b"acme\0\0a\0\0", &term].concat();
    let write = database.begin_write().unwrap();
    write.open_table(ROWS).unwrap().insert(&key[..], &b"spoilt"[..]).unwrap();
    write.commit().unwrap();
    drop(database);
    let backend = on(&disk).await;
    let name = "acme/a".parse::<Name>().unwrap();
    let error = backend.left_processes_of(name.clone()).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Damaged);
    assert!(error.to_string().contains("the session 'acme/a' with the term 7"), "{error}");
    assert!(backend.process_ended(name.clone(), crate::id::Term(7)).await.unwrap());
    assert_eq!(backend.left_processes_of(name).await.unwrap(), Vec::new());
}

#[tokio::test]
async fn a_request_that_fails_after_writes_is_undone_and_harms_no_request_of_its_group() {
    let disk = SimulatedDisk::new();
    let backend = on(&disk).await;
    let spoilt = accept(1);
    assert!(matches!(backend.accept(spoilt.clone()).await.unwrap(), Accepted::New(_)));
    backend.close().await;
    let database = database(&disk);
    let key: Vec<u8> = [&[5][..], spoilt.prompt.0.as_bytes()].concat();
    let write = database.begin_write().unwrap();
    write.open_table(ROWS).unwrap().insert(&key[..], &b"spoilt"[..]).unwrap();
    write.commit().unwrap();
    drop(database);
    let backend = on(&disk).await;
    let (node, attempt, host) = (NodeId::new(), AttemptId::new(), "here".to_owned());
    backend.join(Join { node, host, lease: Duration::from_secs(60), capacity: 8 }).await.unwrap();
    let claim = Claim { name: spoilt.name.clone(), node, attempt, losses: 3, quota: crate::Quota::default() };
    let Claimed::Won(before) = backend.claim(claim).await.unwrap() else { panic!("not won") };
    let fine = Accept { name: "acme/b".parse::<Name>().unwrap(), ..accept(2) };
    let mut changes = backend.changes();
    // `begin` reads the content after its writes.
    let owner = Ownership { name: before.name.clone(), node, term: before.term };
    let begin =
        Begin { owner, prompt: spoilt.prompt, attempt, quota: crate::Quota::default(), credential: None };
    let (begun, accepted) = tokio::join!(backend.begin(begin), backend.accept(fine.clone()));
    assert_eq!(begun.unwrap_err().kind(), BackendErrorKind::Damaged);
    assert!(matches!(accepted.unwrap(), Accepted::New(_)));
    assert_eq!(backend.name_record(spoilt.name).await.unwrap(), Some(before));
    assert_eq!(changes.recv().await.unwrap(), crate::request::Change::Queued(fine.name));
}

#[tokio::test]
async fn each_of_two_that_close_finds_the_file_closed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fleet.redb");
    for _ in 0..50 {
        let backend = LocalBackend::open(&path).await.unwrap();
        let second = async {
            tokio::task::yield_now().await;
            backend.close().await;
            LocalBackend::open(&path).await.unwrap().close().await;
        };
        tokio::join!(backend.close(), second);
    }
}

#[test]
fn the_file_stays_locked_between_two_databases() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fleet.redb");
    let mut file = DatabaseFile::at(&path);
    for _ in 0..2 {
        let raw = file.raw().unwrap();
        OpenDatabase::open(&file, raw, |_| Ok(())).unwrap().end();
        let other = std::fs::File::open(&path).unwrap();
        assert!(other.try_lock().is_err(), "another process gets between two databases");
    }
    drop(file);
    std::fs::File::open(&path).unwrap().try_lock().unwrap();
}

#[test]
fn a_file_that_is_gone_after_an_error_is_not_created_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fleet.redb");
    let mut file = DatabaseFile::at(&path);
    let mut open = || {
        let opened = file.raw().and_then(|raw| OpenDatabase::open(&file, raw, |_| Ok(())));
        opened.map(OpenDatabase::end).map_err(|error| error.kind())
    };
    assert_eq!(open(), Ok(()));
    std::fs::write(&path, "").unwrap();
    assert_eq!(open(), Err(BackendErrorKind::Damaged));
    std::fs::remove_file(&path).unwrap();
    assert_eq!(open(), Err(BackendErrorKind::Unavailable));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

// Guards: isolated
#[tokio::test]
async fn long_reads_delay_no_commit_and_no_short_read() {
    let backend = LocalBackend::on_disk(&SimulatedDisk::new()).await.unwrap();
    // As many pages as may be read at once.
    let pages = backend.readers.clone().acquire_many_owned(READERS as u32).await.unwrap();
    let page = backend.names(NameQuery::new().limit(NameQuery::MOST));
    let mut page = std::pin::pin!(page);
    assert!(futures_util::poll!(&mut page).is_pending());
    let prompt = accept(1);
    let accepted = in_time("a commit beside the pages", backend.accept(prompt.clone())).await;
    assert!(matches!(accepted.unwrap(), Accepted::New(_)));
    let record = in_time("a short read beside them", backend.prompt_record(prompt.prompt)).await;
    assert!(record.unwrap().is_some());
    drop(pages);
    assert_eq!(in_time("the page", page).await.unwrap().names.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_read_sees_every_write_that_was_answered_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let backend = LocalBackend::open(folder.path().join("fleet.redb")).await.unwrap();
    let writers = (0..8).map(|writer| {
        let backend = backend.clone();
        #[allow(clippy::disallowed_methods, reason = "the test awaits its end")]
        tokio::spawn(async move {
            for key in 0..50 {
                let prompt = accept(writer * 100 + key);
                assert!(matches!(backend.accept(prompt.clone()).await.unwrap(), Accepted::New(_)));
                let (record, queued) = tokio::join!(backend.prompt_record(prompt.prompt), backend.queued());
                assert!(record.unwrap().is_some());
                assert!(queued.unwrap() > key);
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    backend.close().await;
    assert_eq!(backend.queued().await.unwrap_err().kind(), BackendErrorKind::Closed);
}

/// A backup that was restored has nodes that no process is.
#[tokio::test]
async fn nodes_of_a_file_that_was_put_in_place_of_an_open_one_are_dead() {
    let folder = tempfile::tempdir().unwrap();
    let (path, backup) = (folder.path().join("fleet.redb"), folder.path().join("backup"));
    let join =
        || Join { node: NodeId::new(), host: "here".to_owned(), lease: Duration::from_secs(30), capacity: 8 };
    let first = LocalBackend::open(&path).await.unwrap();
    first.join(join()).await.unwrap();
    // So many rows that the next opening does not read all of them.
    let of_name =
        |number: u32| Accept { name: format!("acme/{}", number).parse::<Name>().unwrap(), ..accept(number) };
    let accepts = (0..500).map(|number| first.accept(of_name(number)));
    for accepted in futures_util::future::join_all(accepts).await {
        assert!(matches!(accepted.unwrap(), Accepted::New(_)));
    }
    first.close().await;
    std::fs::copy(&path, &backup).unwrap();

    let backend = LocalBackend::open(&path).await.unwrap();
    let lost = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::fs::rename(&backup, &path).unwrap();
    lost.set_len(8192).unwrap();
    // The first requests find that the old file is cut, and a later one opens the new file.
    in_time("the opening of the new file", async { while backend.accept(accept(1)).await.is_err() {} }).await;
    let nodes = backend.nodes(None, 10).await.unwrap();
    assert!(nodes.iter().all(|node| node.state == NodeState::Dead), "{nodes:?}");
}

#[tokio::test]
async fn a_file_is_opened_again_after_another_one_was_refused_in_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let (path, aside) = (folder.path().join("fleet.redb"), folder.path().join("aside"));
    let backend = LocalBackend::open(&path).await.unwrap();
    assert!(matches!(backend.accept(accept(1)).await.unwrap(), Accepted::New(_)));
    let content = std::fs::read(&path).unwrap();
    std::fs::rename(&path, &aside).unwrap();
    std::fs::write(&path, "no file of a fleet").unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&aside).unwrap();
    file.set_len(8192).unwrap();
    // The first requests find that the file is cut, and the next ones find the other one in its place.
    for _ in 0..4 {
        backend.accept(accept(2)).await.unwrap_err();
    }
    std::fs::write(&aside, content).unwrap();
    std::fs::rename(&aside, &path).unwrap();
    in_time("the file that was put back", async { while backend.accept(accept(3)).await.is_err() {} }).await;
}
