//! Power cuts, disks that fail, and rows that cannot be read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redb::{Database, StorageBackend};
use serde_json::json;
use uuid::Uuid;

use super::error::not_opened;
use super::file::{OpenFile, prepare};
use super::*;
use crate::backend::Backend;
use crate::id::{Name, PromptId};
use crate::record::PromptContent;
use crate::request::{Accept, Accepted, QueueBounds};

/// A disk that loses any part of what was not synced when its power is cut, and that can refuse to write.
#[derive(Clone, Debug, Default)]
struct Disk(Arc<DiskState>);

#[derive(Debug, Default)]
struct DiskState {
    bytes: Mutex<Bytes>,
    /// Writes fail from this number of writes on; 0: never.
    fails_from: AtomicU64,
    writes: AtomicU64,
    syncs: AtomicU64,
    /// Reads by exports wait while this is true.
    exports_held: watch::Sender<bool>,
    export_reads: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Bytes {
    now: Vec<u8>,
    synced: Vec<u8>,
    /// Changes since the last sync, sector by sector.
    unsynced: Vec<Unsynced>,
}

#[derive(Debug)]
enum Unsynced {
    Sector(usize, Vec<u8>),
    Length(usize),
}

/// A disk writes a sector whole or not at all.
const SECTOR: usize = 512;

impl Disk {
    fn bytes(&self) -> std::sync::MutexGuard<'_, Bytes> {
        self.0.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A disk with what was synced on this one, and with a part of what was not, chosen by a seed. Seed 0 keeps nothing else.
    fn after_power_cut(&self, seed: u64) -> Self {
        let bytes = self.bytes();
        let mut now = bytes.synced.clone();
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for change in &bytes.unsynced {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            if random >> 63 == 0 {
                continue;
            }
            match change {
                Unsynced::Length(length) => now.resize(*length, 0),
                Unsynced::Sector(start, data) => {
                    now.resize(now.len().max(start + data.len()), 0);
                    now[*start..start + data.len()].copy_from_slice(data);
                }
            }
        }
        let disk = Self::default();
        *disk.bytes() = Bytes { now: now.clone(), synced: now, unsynced: Vec::new() };
        disk
    }

    fn fail_from_now(&self, fails: bool) {
        let from = if fails { self.0.writes.load(Ordering::SeqCst) + 1 } else { 0 };
        self.0.fails_from.store(from, Ordering::SeqCst);
    }

    fn written(&self) -> std::io::Result<()> {
        let write = self.0.writes.fetch_add(1, Ordering::SeqCst) + 1;
        match self.0.fails_from.load(Ordering::SeqCst) {
            from if from > 0 && write >= from => Err(std::io::Error::from(std::io::ErrorKind::StorageFull)),
            _ => Ok(()),
        }
    }

    async fn backend(&self) -> LocalBackend {
        LocalBackend::start(Box::new(self.clone()), Clock::system()).await.unwrap()
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> std::io::Result<u64> {
        Ok(self.bytes().now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        if std::thread::current().name() == Some("greenroom-fleet-export") {
            self.0.export_reads.send_modify(|reads| *reads += 1);
            let mut held = self.0.exports_held.subscribe();
            tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap()
                .block_on(held.wait_for(|held| !held))
                .unwrap();
        }
        let start = usize::try_from(offset).unwrap();
        out.copy_from_slice(&self.bytes().now[start..start + out.len()]);
        Ok(())
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.written()?;
        let len = usize::try_from(len).unwrap();
        let mut bytes = self.bytes();
        bytes.now.resize(len, 0);
        bytes.unsynced.push(Unsynced::Length(len));
        Ok(())
    }

    fn sync_data(&self) -> std::io::Result<()> {
        self.written()?;
        self.0.syncs.fetch_add(1, Ordering::SeqCst);
        let mut bytes = self.bytes();
        bytes.synced = bytes.now.clone();
        bytes.unsynced.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.written()?;
        let start = usize::try_from(offset).unwrap();
        let mut bytes = self.bytes();
        bytes.now[start..start + data.len()].copy_from_slice(data);
        let mut at = start;
        while at < start + data.len() {
            let end = (at / SECTOR + 1) * SECTOR;
            let part = &data[at - start..data.len().min(end - start)];
            bytes.unsynced.push(Unsynced::Sector(at, part.to_vec()));
            at += part.len();
        }
        Ok(())
    }
}

impl OpenFile for Disk {
    fn open(&mut self) -> Result<Database> {
        // Without a cache every read and write reaches the disk.
        let database = Database::builder()
            .set_cache_size(0)
            .create_with_backend(self.clone())
            .map_err(|error| not_opened("the disk", error))?;
        prepare(&database, "the disk")?;
        Ok(database)
    }
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
    let disk = Disk::default();
    let backend = disk.backend().await;
    for key in 0..50 {
        let prompt = accept(key);
        assert!(matches!(backend.accept(prompt.clone()).await.unwrap(), Accepted::New(_)));
        let after = disk.after_power_cut(u64::from(key)).backend().await;
        let record = after.prompt_record(prompt.prompt).await.unwrap();
        assert_eq!(record.map(|record| record.id), Some(prompt.prompt));
        assert_eq!(after.queued().await.unwrap(), key + 1);
    }
}

#[tokio::test]
async fn a_power_cut_at_any_write_leaves_a_file_that_opens_with_whole_requests() {
    // Each round cuts the power one write later, until a round is over before the cut.
    for cut in 1.. {
        let disk = Disk::default();
        let backend = disk.backend().await;
        let before = disk.0.writes.load(Ordering::SeqCst);
        disk.0.fails_from.store(before + cut, Ordering::SeqCst);
        let answers = futures_util::future::join_all((0..3).map(|key| backend.accept(accept(key)))).await;
        let accepted = answers.iter().filter(|answer| answer.is_ok()).count();
        for seed in 0..20 {
            let after = disk.after_power_cut(seed).backend().await;
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
async fn a_full_disk_is_told_and_the_repeated_request_is_carried_out_once() {
    let disk = Disk::default();
    let backend = disk.backend().await;
    assert!(matches!(backend.accept(accept(1)).await.unwrap(), Accepted::New(_)));
    disk.fail_from_now(true);
    let prompt = accept(2);
    let error = backend.accept(prompt.clone()).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Unavailable);
    assert!(error.to_string().contains("make room on its disk"), "{error}");
    let error = backend.queued().await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Unavailable, "{error}");
    disk.fail_from_now(false);
    for _ in 0..2 {
        assert!(matches!(backend.accept(prompt.clone()).await.unwrap(), Accepted::New(_)));
    }
    assert_eq!(backend.queued().await.unwrap(), 2);
}

#[tokio::test]
async fn a_row_that_cannot_be_read_harms_its_own_requests_alone() {
    let disk = Disk::default();
    let mut file = disk.clone();
    let database = file.open().unwrap();
    let prompt = PromptId::new();
    let key: Vec<u8> = [&[4][..], prompt.0.as_bytes()].concat();
    let write = database.begin_write().unwrap();
    write.open_table(writer::ROWS).unwrap().insert(&key[..], &b"spoilt"[..]).unwrap();
    write.commit().unwrap();
    drop(database);
    let backend = disk.backend().await;
    let (spoilt, fine) = tokio::join!(backend.prompt_record(prompt), backend.accept(accept(1)));
    assert_eq!(spoilt.unwrap_err().kind(), BackendErrorKind::Damaged);
    assert!(matches!(fine.unwrap(), Accepted::New(_)));
}

#[tokio::test]
async fn a_request_that_fails_after_writes_is_undone_and_harms_no_request_of_its_group() {
    let disk = Disk::default();
    let backend = disk.backend().await;
    let spoilt = accept(1);
    assert!(matches!(backend.accept(spoilt.clone()).await.unwrap(), Accepted::New(_)));
    backend.close().await;
    let database = disk.clone().open().unwrap();
    let key: Vec<u8> = [&[4][..], spoilt.prompt.0.as_bytes()].concat();
    let write = database.begin_write().unwrap();
    write.open_table(writer::ROWS).unwrap().insert(&key[..], &b"spoilt"[..]).unwrap();
    write.commit().unwrap();
    drop(database);
    let backend = disk.backend().await;
    let before = backend.name_record(spoilt.name.clone()).await.unwrap();
    let fine = Accept { name: Name::new("b").unwrap(), ..accept(2) };
    let mut changes = backend.changes();
    // `delete` marks the name before it ends the prompts.
    let (deletion, accepted) =
        tokio::join!(backend.delete(spoilt.name.clone()), backend.accept(fine.clone()));
    assert_eq!(deletion.unwrap_err().kind(), BackendErrorKind::Damaged);
    assert!(matches!(accepted.unwrap(), Accepted::New(_)));
    assert_eq!(backend.name_record(spoilt.name).await.unwrap(), before);
    assert_eq!(backend.deleting(10).await.unwrap(), Vec::new());
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
fn a_file_that_is_gone_after_an_error_is_not_created_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fleet.redb");
    let mut file = file::DatabaseFile::at(&path);
    drop(file.open().unwrap());
    std::fs::write(&path, "").unwrap();
    assert_eq!(file.open().unwrap_err().kind(), BackendErrorKind::Damaged);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(file.open().unwrap_err().kind(), BackendErrorKind::Unavailable);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn requests_at_the_same_time_share_their_syncs() {
    let disk = Disk::default();
    let backend = disk.backend().await;
    let before = disk.0.syncs.load(Ordering::SeqCst);
    assert!(matches!(backend.accept(accept(0)).await.unwrap(), Accepted::New(_)));
    let alone = disk.0.syncs.load(Ordering::SeqCst) - before;
    let before = disk.0.syncs.load(Ordering::SeqCst);
    let accepts = futures_util::future::join_all((1..=500).map(|key| backend.accept(accept(key)))).await;
    assert!(accepts.into_iter().all(|answer| matches!(answer, Ok(Accepted::New(_)))));
    let together = disk.0.syncs.load(Ordering::SeqCst) - before;
    assert!(together < 50 * alone, "{together} syncs for 500 requests, {alone} for one");
}

#[tokio::test]
async fn requests_go_on_while_an_export_reads_its_snapshot() {
    let disk = Disk::default();
    let backend = disk.backend().await;
    let accepts = (0..500).map(|key| backend.accept(accept(key)));
    assert!(futures_util::future::join_all(accepts).await.iter().all(Result::is_ok));
    disk.0.exports_held.send_replace(true);
    let late = accept(500);
    let meanwhile = async {
        disk.0.export_reads.subscribe().wait_for(|reads| *reads > 0).await.unwrap();
        assert!(matches!(backend.accept(late.clone()).await.unwrap(), Accepted::New(_)));
        disk.0.exports_held.send_replace(false);
    };
    let (text, ()) = tokio::join!(backend.export(), meanwhile);
    assert!(!text.unwrap().contains(&late.prompt.to_string()));
    let text = backend.export().await.unwrap();
    assert!(text.contains(&late.prompt.to_string()));
}

#[tokio::test]
async fn a_long_read_delays_no_commit_and_no_other_read() {
    let disk = Disk::default();
    let backend = disk.backend().await;
    let (begun, begins) = oneshot::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let reader = backend.clone();
    let long = tokio::spawn(async move {
        let read = move |step: &mut Step<'_>| {
            let before = step.queued()?;
            begun.send(()).unwrap();
            released.recv().unwrap();
            Ok((before, step.queued()?))
        };
        reader.read(read).await
    });
    begins.await.unwrap();
    let prompt = accept(1);
    let limit = Duration::from_secs(60);
    let accepted = tokio::time::timeout(limit, backend.accept(prompt.clone())).await;
    assert!(matches!(accepted.expect("the read delays a commit").unwrap(), Accepted::New(_)));
    let record = tokio::time::timeout(limit, backend.prompt_record(prompt.prompt)).await;
    assert!(record.expect("the read delays another one").unwrap().is_some());
    release.send(()).unwrap();
    assert_eq!(long.await.unwrap().unwrap(), (0, 0), "a read sees one moment");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_read_sees_every_write_that_was_answered_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let backend = LocalBackend::open(folder.path().join("fleet.redb")).await.unwrap();
    let writers = (0..8).map(|writer| {
        let backend = backend.clone();
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
