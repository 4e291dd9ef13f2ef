//! Power cuts, disks that fail, and rows that cannot be read.

use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use redb::StorageBackend;
use serde_json::json;
use uuid::Uuid;

use super::database::ROWS;
use super::disk::Platter;
use super::*;
use crate::backend::Requests;
use crate::id::{AttemptId, Name, NodeId, PromptId};
use crate::record::{NodeState, PromptContent};
use crate::request::{Accept, Accepted, Begin, Claim, Claimed, Join, Ownership, Page, QueueBounds};
use crate::wait::in_time;

/// A disk on which the reads of exports, or the syncs, wait while the test says so.
#[derive(Debug)]
struct HeldPlatter {
    platter: Platter,
    syncs_held: watch::Sender<bool>,
    exports_held: watch::Sender<bool>,
    export_reads: watch::Sender<u64>,
    /// The thread that has read first while exports were held.
    export: Mutex<Option<ThreadId>>,
}

impl HeldPlatter {
    fn new() -> Arc<Self> {
        let (syncs_held, exports_held, export_reads, export) = Default::default();
        let platter = Platter(SimulatedDisk::new());
        Arc::new(Self { platter, syncs_held, exports_held, export_reads, export })
    }
}

/// Blocks the thread while the switch is on.
fn wait_while(held: &watch::Sender<bool>) {
    let mut held = held.subscribe();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(held.wait_for(|held| !held)).unwrap();
}

impl StorageBackend for HeldPlatter {
    fn len(&self) -> std::io::Result<u64> {
        self.platter.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        let thread = std::thread::current().id();
        if *self.exports_held.borrow() && *self.export.lock().unwrap().get_or_insert(thread) == thread {
            self.export_reads.send_modify(|reads| *reads += 1);
            wait_while(&self.exports_held);
        }
        self.platter.read(offset, out)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.platter.set_len(len)
    }

    fn sync_data(&self) -> std::io::Result<()> {
        wait_while(&self.syncs_held);
        self.platter.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.platter.write(offset, data)
    }
}

impl OpenFile for Arc<HeldPlatter> {
    fn shown(&self) -> String {
        "the disk".to_owned()
    }

    fn raw(&mut self) -> Result<storage::Raw> {
        Ok(self.clone())
    }

    fn cache(&self) -> Option<usize> {
        Some(0)
    }
}

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
        name: Name::new("a").unwrap(),
        profile: "support".to_owned(),
        tenant: "acme".to_owned(),
        conversation: Uuid::new_v4(),
        host: None,
        key: Some(key.to_string()),
        content: PromptContent { prompt: json!(key), continuation: None },
        continuations: 0,
        not_before: None,
        wait: Duration::from_secs(3600),
        budget: None,
        bounds: QueueBounds { name: 10_000, tenant: 10_000, fleet: 10_000 },
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

#[tokio::test]
async fn a_power_cut_at_any_write_leaves_a_file_that_opens_with_whole_requests() {
    // Each round cuts the power one write later, until a round is over before the cut.
    for cut in 1.. {
        let disk = SimulatedDisk::new();
        let backend = on(&disk).await;
        disk.fail_at(disk.moment() + cut - 1, DiskFault::Broken);
        let answers = futures_util::future::join_all((0..3).map(|key| backend.accept(accept(key)))).await;
        let accepted = answers.iter().filter(|answer| answer.is_ok()).count();
        for seed in 0..20 {
            let after = on(&disk.after_power_cut(disk.moment(), seed)).await;
            let kept = after.queued().await.unwrap();
            let queue = after.queue(Name::new("a").unwrap(), 10).await.unwrap();
            assert_eq!(queue.len(), kept as usize, "cut at write {cut}, seed {seed}");
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

#[tokio::test]
async fn a_full_disk_is_told_and_the_repeated_request_is_carried_out_once() {
    let disk = SimulatedDisk::new();
    let backend = on(&disk).await;
    assert!(matches!(backend.accept(accept(1)).await.unwrap(), Accepted::New(_)));
    disk.fail(DiskFault::Full);
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
    let key: Vec<u8> = [&[19][..], b"a\0\0", &term].concat();
    let write = database.begin_write().unwrap();
    write.open_table(ROWS).unwrap().insert(&key[..], &b"spoilt"[..]).unwrap();
    write.commit().unwrap();
    drop(database);
    let backend = on(&disk).await;
    let name = Name::new("a").unwrap();
    let error = backend.left_processes_of(name.clone()).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Damaged);
    assert!(error.to_string().contains("the session 'a' with the term 7"), "{error}");
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
    let claim = Claim { name: spoilt.name.clone(), node, attempt, losses: 3 };
    let Claimed::Won(before) = backend.claim(claim).await.unwrap() else { panic!("not won") };
    let fine = Accept { name: Name::new("b").unwrap(), ..accept(2) };
    let mut changes = backend.changes();
    // `begin` reads the content after its writes.
    let owner = Ownership { name: before.name.clone(), node, term: before.term };
    let begin = Begin { owner, prompt: spoilt.prompt, attempt, reserve: None };
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

#[tokio::test]
async fn requests_at_the_same_time_share_their_syncs() {
    let disk = HeldPlatter::new();
    let backend = LocalBackend::start(Box::new(disk.clone()), Clock::system()).await.unwrap();
    let syncs = || disk.platter.0.syncs().len();
    let accept_in = |number: u32| {
        let name = Name::new(number.to_string()).unwrap();
        backend.accept(Accept { name, ..accept(number) })
    };
    let before = syncs();
    assert!(matches!(accept_in(0).await.unwrap(), Accepted::New(_)));
    let (alone, before) = (syncs() - before, syncs());
    disk.syncs_held.send_replace(true);
    let release = async {
        let waiting = || backend.jobs.max_capacity() - backend.jobs.capacity();
        in_time("the commits", async {
            while waiting() < 200 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        disk.syncs_held.send_replace(false);
    };
    let accepts = futures_util::future::join_all((1..=500).map(accept_in));
    let (accepts, ()) = tokio::join!(accepts, release);
    assert!(accepts.into_iter().all(|answer| matches!(answer, Ok(Accepted::New(_)))));
    let together = syncs() - before;
    assert!(together < 320 * alone, "{together} syncs for 500 requests, {alone} for one");
}

#[tokio::test]
async fn requests_go_on_while_an_export_reads_its_snapshot() {
    let disk = HeldPlatter::new();
    let backend = LocalBackend::start(Box::new(disk.clone()), Clock::system()).await.unwrap();
    let accepts = (0..500).map(|key| backend.accept(accept(key)));
    assert!(futures_util::future::join_all(accepts).await.iter().all(Result::is_ok));
    disk.exports_held.send_replace(true);
    let late = accept(500);
    let meanwhile = async {
        disk.export_reads.subscribe().wait_for(|reads| *reads > 0).await.unwrap();
        assert!(matches!(backend.accept(late.clone()).await.unwrap(), Accepted::New(_)));
        disk.exports_held.send_replace(false);
    };
    let (text, ()) = tokio::join!(backend.export(), meanwhile);
    assert!(!text.unwrap().contains(&late.prompt.to_string()));
    let text = backend.export().await.unwrap();
    assert!(text.contains(&late.prompt.to_string()));
}

#[tokio::test]
async fn long_reads_delay_no_commit_and_no_short_read() {
    let backend = LocalBackend::on_disk(&SimulatedDisk::new()).await.unwrap();
    // As many pages as may be read at once.
    let pages = backend.readers.clone().acquire_many_owned(READERS as u32).await.unwrap();
    let page = backend.names(Page { after: None, limit: Page::MOST });
    let mut page = std::pin::pin!(page);
    assert!(futures_util::poll!(&mut page).is_pending());
    let prompt = accept(1);
    let accepted = in_time("a commit beside the pages", backend.accept(prompt.clone())).await;
    assert!(matches!(accepted.unwrap(), Accepted::New(_)));
    let record = in_time("a short read beside them", backend.prompt_record(prompt.prompt)).await;
    assert!(record.unwrap().is_some());
    drop(pages);
    assert_eq!(in_time("the page", page).await.unwrap().len(), 1);
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
    let of_name = |number: u32| Accept { name: Name::new(number.to_string()).unwrap(), ..accept(number) };
    let accepts = (0..500).map(|number| first.accept(of_name(number)));
    assert!(futures_util::future::join_all(accepts).await.iter().all(Result::is_ok));
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
