//! Reads and syncs that a test holds up, or lets panic.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::ThreadId;

use redb::StorageBackend;

use super::*;

/// A disk on which the reads of exports, or the syncs, wait while the test says so.
#[derive(Debug)]
struct HeldPlatter {
    platter: Platter,
    syncs: AtomicUsize,
    syncs_held: watch::Sender<bool>,
    exports_held: watch::Sender<bool>,
    export_reads: watch::Sender<u64>,
    /// The thread that has read first while exports were held.
    export: Mutex<Option<ThreadId>>,
    /// The next read panics.
    panics: AtomicBool,
    /// Databases that were opened on it.
    opened: AtomicUsize,
}

impl HeldPlatter {
    fn new() -> Arc<Self> {
        let (syncs, syncs_held, exports_held, export_reads) = Default::default();
        let (export, panics, opened, platter) = Default::default();
        let platter = Platter(platter);
        Arc::new(Self { platter, syncs, syncs_held, exports_held, export_reads, export, panics, opened })
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
        assert!(!self.panics.swap(false, Ordering::SeqCst), "the read panics");
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
        self.syncs.fetch_add(1, Ordering::SeqCst);
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
        self.opened.fetch_add(1, Ordering::SeqCst);
        Ok(self.clone())
    }

    fn cache(&self) -> Option<usize> {
        Some(0)
    }
}

#[tokio::test]
async fn requests_at_the_same_time_share_their_syncs() {
    let disk = HeldPlatter::new();
    let backend = LocalBackend::start(Box::new(disk.clone())).await.unwrap();
    let syncs = || disk.syncs.load(Ordering::SeqCst);
    let accept_in = |number: u32| {
        let name = format!("acme/{}", number).parse::<Name>().unwrap();
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
    let backend = LocalBackend::start(Box::new(disk.clone())).await.unwrap();
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
async fn a_file_is_opened_again_after_a_read_has_panicked() {
    let disk = HeldPlatter::new();
    let backend = LocalBackend::start(Box::new(disk.clone())).await.unwrap();
    assert!(matches!(backend.accept(accept(1)).await.unwrap(), Accepted::New(_)));
    disk.panics.store(true, Ordering::SeqCst);
    assert_eq!(backend.queued().await.unwrap_err().kind(), BackendErrorKind::Damaged);
    assert_eq!(backend.queued().await.unwrap(), 1);
    assert_eq!(disk.opened.load(Ordering::SeqCst), 2, "databases that were opened");
}
