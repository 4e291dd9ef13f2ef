//! [`MemoryStore`]: a store in memory.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, MutexGuard};
use std::time::SystemTime;

use futures_util::future::{BoxFuture, ready};

use super::{SessionKey, SessionStore, SessionSummary, StoreResult, StoredSession, TranscriptEntry};
use crate::lock::lock;

/// A [`SessionStore`] in memory, for tests, and for sessions that move within one process. It is lost with the process,
/// and its size has no bound.
#[derive(Debug, Default)]
pub struct MemoryStore {
    transcripts: Mutex<BTreeMap<SessionKey, StoredTranscript>>,
}

#[derive(Debug)]
struct StoredTranscript {
    entries: Vec<TranscriptEntry>,
    uuids: HashSet<String>,
    summary: SessionSummary,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// The keys that have entries, sorted.
    pub fn keys(&self) -> Vec<SessionKey> {
        self.kept().keys().cloned().collect()
    }

    /// The entries of a key.
    pub fn entries(&self, key: &SessionKey) -> Vec<TranscriptEntry> {
        self.kept().get(key).map(|kept| kept.entries.clone()).unwrap_or_default()
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<SessionKey, StoredTranscript>> {
        lock(&self.transcripts)
    }

    fn summaries(&self, project_key: &str) -> Vec<SessionSummary> {
        let kept = self.kept();
        let main = kept.iter().filter(|(key, _)| key.project_key == project_key && key.subpath.is_none());
        main.map(|(_, kept)| kept.summary.clone()).collect()
    }
}

impl SessionStore for MemoryStore {
    fn append<'a>(
        &'a self,
        key: &'a SessionKey,
        entries: &'a [TranscriptEntry],
    ) -> BoxFuture<'a, StoreResult<()>> {
        if !entries.is_empty() {
            let mut all = self.kept();
            let kept = all.entry(key.clone()).or_insert_with(|| StoredTranscript {
                entries: Vec::new(),
                uuids: HashSet::new(),
                summary: SessionSummary::new(&key.session_id),
            });
            let uuids = &mut kept.uuids;
            let new =
                entries.iter().filter(|entry| entry.uuid().is_none_or(|uuid| uuids.insert(uuid.to_owned())));
            let new: Vec<_> = new.cloned().collect();
            kept.summary.fold(&new, SystemTime::now());
            kept.entries.extend(new);
        }
        Box::pin(ready(Ok(())))
    }

    fn load<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<Option<Vec<TranscriptEntry>>>> {
        Box::pin(ready(Ok(self.kept().get(key).map(|kept| kept.entries.clone()))))
    }

    fn list_sessions<'a>(&'a self, project_key: &'a str) -> BoxFuture<'a, StoreResult<Vec<StoredSession>>> {
        let summaries = self.summaries(project_key);
        let sessions = summaries.iter().map(|it| StoredSession::new(it.session_id(), it.modified()));
        Box::pin(ready(Ok(sessions.collect())))
    }

    fn list_summaries<'a>(&'a self, project_key: &'a str) -> BoxFuture<'a, StoreResult<Vec<SessionSummary>>> {
        Box::pin(ready(Ok(self.summaries(project_key))))
    }

    fn delete<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<()>> {
        self.kept().retain(|kept, _| kept != key && (key.subpath.is_some() || kept.main() != *key));
        Box::pin(ready(Ok(())))
    }

    fn list_subkeys<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<Vec<String>>> {
        let main = key.main();
        let kept = self.kept();
        let of_session = kept.keys().filter(|kept| kept.main() == main);
        let subpaths = of_session.filter_map(|kept| kept.subpath.clone()).collect();
        Box::pin(ready(Ok(subpaths)))
    }
}
