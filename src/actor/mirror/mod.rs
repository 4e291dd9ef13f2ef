//! The mirror: copies what the CLI writes to its transcripts into the session's store.
//!
//! ```text
//!   reader ── push ──► queue ≤ StoreOptions::queue_bytes ── batch ──► append, file by file, each try a task
//!   conversation ── flush, before a result ──► │                        │ failed: reported, dropped
//!                   ◄── when all is settled ───┴────────────────────────┘
//! ```
//!
//! `push` and `flush` only take a lock, so the reader of the pipe never waits for the store. One worker empties the
//! queue, so the entries of a file keep their order. The worker belongs to the supervisor and outlives every
//! incarnation of the CLI.
//!
//! A killed CLI may have written entries that it did not report, and the next one links its entries to them. So after
//! each unexpected exit the worker reads the transcripts from the last entry that the store took
//! ([`catch_up`](Mirror::catch_up)). Entries lost before are read again too, because reading starts before the first
//! loss.
//!
//! - here: what the reader, the conversation and the supervisor call
//! - [`worker`]: empties the queue; [`queue`]: frames, waiters and losses; [`key`]: the key of a file

mod key;
mod loss;
mod queue;
mod worker;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{Notify, OnceCell, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::queue::{Lost, MirrorQueue, QueuedFrame, SettledWaiter, report_later};
use crate::Options;
use crate::blocking::caught::DropElsewhere;
use crate::lock::lock;
use crate::options::{OsUser, StoreFlush, StoreOptions};
use crate::plain::LONGEST;
use crate::sessions::TranscriptEntry;
use crate::store::SessionStore;
use crate::wire::lenient::read_object;

/// A store of the application. The session drops its reference on a blocking thread.
pub(crate) type SharedStore = Arc<DropElsewhere<Arc<dyn SessionStore>>>;

pub(crate) struct Mirror {
    store: SharedStore,
    options: StoreOptions,
    /// The folder of all transcripts, as the CLI names it.
    projects: PathBuf,
    cwd: PathBuf,
    /// The owner of the transcripts, if the CLI runs as another user.
    user: Option<OsUser>,
    /// `projects` with its symbolic links resolved.
    resolved: OnceCell<PathBuf>,
    queue: Mutex<MirrorQueue>,
    work: Notify,
    /// Cancelled when the session is killed: the store gets nothing more.
    killed: CancellationToken,
    /// The append that runs.
    appends: TaskTracker,
}

/// A `transcript_mirror` frame.
#[derive(Deserialize)]
struct MirrorFrame {
    #[serde(rename = "filePath")]
    path: String,
    entries: Vec<Box<RawValue>>,
}

impl Mirror {
    pub(crate) fn new(
        store: SharedStore,
        options: &Options,
        config_dir: &Path,
        killed: CancellationToken,
    ) -> Self {
        Self {
            store,
            options: options.store.clone(),
            cwd: options.cwd.clone().unwrap_or_else(|| PathBuf::from(".")),
            user: options.user,
            projects: config_dir.join("projects"),
            resolved: OnceCell::new(),
            queue: Mutex::default(),
            work: Notify::new(),
            killed,
            appends: TaskTracker::new(),
        }
    }

    pub(crate) fn store(&self) -> &Arc<dyn SessionStore> {
        &self.store
    }

    fn queue(&self) -> MutexGuard<'_, MirrorQueue> {
        lock(&self.queue)
    }

    /// Takes a `transcript_mirror` frame.
    pub(crate) fn push(&self, frame: &RawValue) {
        let bytes = frame.get().len();
        let read = read_object::<MirrorFrame>(frame.get());
        let queue = &mut *self.queue();
        let lost = match read {
            // A path this long names no file, and paths of losses and keys are kept.
            Ok(MirrorFrame { path, entries }) if path.len() > LONGEST => {
                let reason = format!("the CLI named a path of {} bytes", path.len());
                Lost { path: None, entries: entries.len(), reason }
            }
            Ok(MirrorFrame { path, entries }) => {
                let count = entries.len();
                let entries: Vec<_> = entries.into_iter().flat_map(TranscriptEntry::from_raw).collect();
                let unreadable = count - entries.len();
                if unreadable > 0 {
                    let reason = "they are no JSON objects".to_owned();
                    let lost = Lost { path: Some(path.clone()), entries: unreadable, reason };
                    report_later(&mut queue.lost, lost);
                    self.work.notify_one();
                }
                // A frame that is larger than the bound is accepted alone.
                if queue.bytes == 0 || queue.bytes + bytes <= self.options.queue_bytes {
                    queue.entries += entries.len();
                    queue.bytes += bytes;
                    queue.accepted += 1;
                    queue.frames.push_back(QueuedFrame { path, entries, bytes, catch_up: None });
                    if self.is_full(queue) {
                        queue.wanted = queue.accepted;
                        self.work.notify_one();
                    }
                    return;
                }
                let reason = format!(
                    "the store is slow, and more than `store.queue_bytes` ({}) of entries wait for it",
                    self.options.queue_bytes
                );
                Lost { path: Some(path), entries: entries.len(), reason }
            }
            Err(error) => Lost { path: None, entries: 0, reason: format!("a frame cannot be read: {error}") },
        };
        report_later(&mut queue.lost, lost);
        self.work.notify_one();
    }

    fn is_full(&self, queue: &MirrorQueue) -> bool {
        self.options.flush == StoreFlush::Eager
            || queue.entries > self.options.batch_entries
            || queue.bytes > self.options.batch_bytes
    }

    /// The CLI exited unexpectedly: reads its files for entries that it did not report.
    pub(crate) fn catch_up(&self, session_id: Option<String>) {
        let mut queue = self.queue();
        queue.accepted += 1;
        queue.wanted = queue.accepted;
        let catch_up = Some(session_id);
        queue.frames.push_back(QueuedFrame { path: String::new(), entries: Vec::new(), bytes: 0, catch_up });
        drop(queue);
        self.work.notify_one();
    }

    /// Whether every entry is settled and every loss reported.
    pub(crate) fn is_settled(&self) -> bool {
        let queue = self.queue();
        !queue.busy && queue.settled == queue.accepted && queue.lost.is_empty()
    }

    /// Gives all queued entries to the store, and calls `then` when the store has taken or refused them.
    pub(crate) fn flush(&self, then: impl FnOnce() + Send + 'static) {
        let waiter = SettledWaiter(Some(Box::new(then)));
        let mut queue = self.queue();
        queue.wanted = queue.accepted;
        let at = queue.accepted;
        queue.waiting.push((at, waiter));
        drop(queue);
        self.work.notify_one();
    }

    /// Returns when the mirror of a killed session runs no append any more; at once if the session was not killed.
    pub(crate) async fn appends_ended(&self) {
        if self.killed.is_cancelled() {
            self.appends.close();
            self.appends.wait().await;
        }
    }

    /// [`flush`](Mirror::flush) as a future, which ends early when the session is killed.
    pub(crate) async fn flushed(&self) {
        let (tell, told) = oneshot::channel();
        self.flush(move || {
            // Fails if the future was dropped.
            tell.send(()).ok();
        });
        tokio::select! {
            _ = told => {}
            () = self.killed.cancelled() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_a_path_too_long_for_a_file_are_lost_without_the_path() {
        let store = Arc::new(DropElsewhere::new(Arc::new(crate::store::MemoryStore::default()) as _));
        let mirror = Mirror::new(store, &Options::default(), Path::new("/c"), CancellationToken::new());
        let path = "x".repeat(LONGEST);
        for (path, lost) in [(path.clone(), 0), (path + "x", 1)] {
            let frame = serde_json::json!({ "filePath": path, "entries": [{}] });
            mirror.push(&serde_json::value::to_raw_value(&frame).unwrap());
            let queue = mirror.queue();
            assert_eq!((queue.frames.len(), queue.lost.len()), (1, lost));
            assert!(queue.lost.iter().all(|lost| (&lost.path, lost.entries) == (&None, 1)));
        }
    }

    #[test]
    fn a_waiter_is_called_without_the_lock_of_the_queue() {
        let store = Arc::new(DropElsewhere::new(Arc::new(crate::store::MemoryStore::default()) as _));
        let mirror =
            Arc::new(Mirror::new(store, &Options::default(), Path::new("/c"), CancellationToken::new()));
        let (tell, told) = std::sync::mpsc::channel();
        let asked = mirror.clone();
        mirror.flush(move || tell.send(asked.queue.try_lock().is_ok()).unwrap());
        assert!(mirror.next().is_none(), "there is nothing to give");
        assert!(told.try_recv().unwrap());
    }
}
