//! The worker: gives the queued entries to the store, file by file.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt;

use super::Mirror;
use super::key::key_of;
use super::loss::report_loss;
use super::queue::{Lost, MirrorBatch, SettledWaiter};
use crate::actor::base::task::Task;
use crate::actor::context::Shared;
use crate::blocking::blocking;
use crate::blocking::caught::panic_text;
use crate::options::StoreFlush;
use crate::sessions::{TranscriptEntry, canonical, each_line, key_of_path};
use crate::store::SessionKey;

/// Progress of one file in the store.
#[derive(Clone, Default)]
struct StoredFile {
    /// Id of the last entry that the store took before anything was lost.
    last: Option<String>,
    /// Entries after `last` were lost; a catch-up gives them again.
    hole: bool,
}

/// Progress of all files, by path.
type StoredFiles = HashMap<String, StoredFile>;

impl Mirror {
    /// Gives the queued entries to the store until the future is dropped, or the session is killed.
    pub(crate) async fn run(self: Arc<Self>, shared: Arc<Shared>) {
        tokio::select! {
            biased;
            () = self.killed.cancelled() => {}
            () = self.work(&shared) => {}
        }
    }

    async fn work(&self, shared: &Shared) {
        let mut stored = StoredFiles::new();
        loop {
            let Some(batch) = self.next() else {
                self.work.notified().await;
                continue;
            };
            self.report(batch.lost, &mut stored, shared).await;
            // Each file once, in the order of their first frames.
            let mut files: Vec<(String, Vec<TranscriptEntry>)> = Vec::new();
            let mut catch_up = None;
            for frame in batch.frames {
                if frame.catch_up.is_some() {
                    catch_up = frame.catch_up;
                    continue;
                }
                match files.iter_mut().find(|(path, _)| *path == frame.path) {
                    Some((_, entries)) => entries.extend(frame.entries),
                    None => files.push((frame.path, frame.entries)),
                }
            }
            for (path, entries) in files {
                self.give(path, entries, false, &mut stored, shared).await;
            }
            if let Some(session_id) = catch_up {
                let unreported = self.unreported(session_id, stored.clone()).await;
                let pending = unreported.iter().map(|(path, entries)| (Some(path.clone()), entries.len()));
                self.queue().in_flight = pending.collect();
                for (path, entries) in unreported {
                    self.give(path, entries, true, &mut stored, shared).await;
                }
            }
            self.settle(batch.up_to, &mut stored, shared).await;
        }
    }

    pub(super) fn next(&self) -> Option<MirrorBatch> {
        let (batch, done) = self.queue().next(self.options.flush == StoreFlush::Eager);
        // Dropped after the lock: dropping a waiter calls it, and it may call the mirror.
        drop(done);
        batch
    }

    /// Reports entries that never reached the store.
    async fn report(&self, lost: Vec<Lost>, stored: &mut StoredFiles, shared: &Shared) {
        for Lost { path, entries, reason } in lost {
            let key = match &path {
                Some(path) => self.key(path).await,
                None => None,
            };
            match (path, &key) {
                (Some(path), Some(_)) => stored.entry(path).or_default().hole = true,
                (Some(_), None) => {}
                // The file is unknown, so any file may have lost entries.
                (None, _) => stored.values_mut().for_each(|file| file.hole = true),
            }
            report_loss(shared, key, entries, reason);
        }
    }

    /// Gives the store the entries of one file. `catches_up`: the entries are all after the last stored one.
    async fn give(
        &self,
        path: String,
        entries: Vec<TranscriptEntry>,
        catches_up: bool,
        stored: &mut StoredFiles,
        shared: &Shared,
    ) {
        if entries.is_empty() {
            return;
        }
        let Some(key) = self.key(&path).await else {
            let projects = self.projects.display();
            let reason = format!("{path} is not below {projects}, where the transcripts of this session are");
            return report_loss(shared, None, entries.len(), reason);
        };
        let count = entries.len();
        let last = entries.iter().rev().find_map(|entry| entry.uuid().map(str::to_owned));
        let appended = self.append(&key, entries.into()).await;
        self.queue().in_flight.retain(|(pending, _)| pending.as_ref() != Some(&path));
        let file = stored.entry(path).or_default();
        match appended {
            Ok(()) => {
                file.hole &= !catches_up;
                if !file.hole {
                    file.last = last.or(file.last.take());
                }
            }
            Err(reason) => {
                file.hole = true;
                report_loss(shared, Some(key), count, reason);
            }
        }
    }

    /// The entries of each file after the last one that the store took before anything was lost. The session's main
    /// transcript is read whole if the store has taken nothing of it.
    async fn unreported(
        &self,
        session_id: Option<String>,
        mut stored: StoredFiles,
    ) -> Vec<(String, Vec<TranscriptEntry>)> {
        let (projects, cwd, user) = (self.projects.clone(), self.cwd.clone(), self.user);
        let reading = blocking(move || {
            if let Some(id) = session_id {
                let main = projects.join(key_of_path(&canonical(&cwd))).join(format!("{id}.jsonl"));
                stored.entry(main.to_string_lossy().into_owned()).or_default();
            }
            let mut unreported = Vec::new();
            for (path, StoredFile { last, .. }) in stored {
                let (mut entries, mut after_last) = (Vec::new(), last.is_none());
                let read = each_line(Path::new(&path), user, |line| {
                    let Ok(entry) = TranscriptEntry::parse(line) else { return false };
                    match entry.uuid() {
                        // Skip entries without an id: they could come twice, and nothing links to them.
                        None => {}
                        Some(uuid) if !after_last => after_last = last.as_deref() == Some(uuid),
                        Some(_) => entries.push(entry),
                    }
                    true
                });
                match read {
                    Ok(_) if !entries.is_empty() => unreported.push((path, entries)),
                    Ok(_) => {}
                    // The file was never written, or is gone.
                    Err(error) => tracing::debug!(%error, "a transcript was not looked at"),
                }
            }
            Ok(unreported)
        });
        reading.await.unwrap_or_default()
    }

    /// The store has taken or refused all frames up to `up_to`. Their waiters are called after every earlier loss is
    /// reported.
    async fn settle(&self, up_to: u64, stored: &mut StoredFiles, shared: &Shared) {
        let (done, lost): (Vec<(u64, SettledWaiter)>, _) = {
            let queue = &mut *self.queue();
            queue.settled = queue.settled.max(up_to);
            queue.in_flight.clear();
            queue.bytes = queue.frames.iter().map(|frame| frame.bytes).sum();
            let (done, waiting) = queue.waiting.drain(..).partition(|(at, _)| *at <= up_to);
            queue.waiting = waiting;
            (done, std::mem::take(&mut queue.lost))
        };
        self.report(lost, stored, shared).await;
        self.queue().busy = false;
        drop(done);
    }

    /// Gives the store entries of one key, with retries. The error is that of the last try.
    async fn append(&self, key: &SessionKey, entries: Arc<[TranscriptEntry]>) -> Result<(), String> {
        let mut failure = String::new();
        let pauses = self.options.retry_pauses.iter();
        for pause in std::iter::once(None).chain(pauses.map(Some)) {
            if let Some(pause) = pause {
                tokio::time::sleep(*pause).await;
            }
            let (store, key, entries) = (self.store.clone(), key.clone(), entries.clone());
            // Formatting and dropping the error runs the store's code too, so both are in the caught future.
            let killed = self.killed.clone();
            let trying = async move {
                if killed.is_cancelled() {
                    return Err("the session was killed".to_owned());
                }
                store.append(&key, &entries).await.map_err(|error| error.to_string())
            };
            let trying = AssertUnwindSafe(trying).catch_unwind();
            let mut task = Task::spawn(self.appends.track_future(trying));
            failure = match tokio::time::timeout(self.options.append, task.join()).await {
                Ok(Some(Ok(Ok(())))) => return Ok(()),
                Ok(Some(Ok(Err(error)))) => error,
                Ok(Some(Err(panic))) => format!("it panicked: {}", panic_text(&*panic)),
                Ok(None) => "its task was taken away".to_owned(),
                // No retry: the append may still finish, and a second one beside it could be out of order.
                Err(_) => {
                    let limit = self.options.append;
                    return Err(format!("an append took more than {limit:?} (`store.append`)"));
                }
            };
            tracing::debug!(reason = failure, "an append to the session store failed");
        }
        Err(failure)
    }

    /// The key of a transcript; `None` for a file outside this session's folder.
    async fn key(&self, path: &str) -> Option<SessionKey> {
        let path = Path::new(path);
        let below = match path.strip_prefix(&self.projects) {
            Ok(below) => below.to_owned(),
            // The path may have its symbolic links resolved.
            Err(_) => {
                let projects = self.projects.clone();
                let resolve = || async {
                    let resolved = projects.clone();
                    let resolving = tokio::task::spawn_blocking(move || std::fs::canonicalize(resolved));
                    resolving.await.ok().and_then(Result::ok).unwrap_or(projects)
                };
                path.strip_prefix(self.resolved.get_or_init(resolve).await).ok()?.to_owned()
            }
        };
        key_of(&below, self.options.project_key.as_deref())
    }
}
