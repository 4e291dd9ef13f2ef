//! Transcripts in memory.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::ready;
use greenroom::sessions::TranscriptEntry;
use greenroom::store::{MemoryStore, SessionKey, SessionStore, StoreResult};
use uuid::Uuid;

use super::memory::MemoryBackend;
use crate::error::{BackendError, BackendErrorKind};
use crate::id::AttemptId;
use crate::request::{Owned, Ownership};
use crate::transcripts::{TranscriptReply, TranscriptStore};

/// Transcripts in memory, for tests, beside the names of a [`MemoryBackend`]. Clones share their transcripts.
///
/// ```
/// use greenroom_fleet::Fleet;
/// use greenroom_fleet::backend::{MemoryBackend, MemoryTranscripts};
///
/// let backend = MemoryBackend::new();
/// let transcripts = MemoryTranscripts::over(&backend);
/// let fleet = Fleet::builder().backend(backend).transcripts(transcripts);
/// ```
#[derive(Clone, Debug)]
pub struct MemoryTranscripts {
    backend: MemoryBackend,
    kept: Arc<MemoryStore>,
}

impl MemoryTranscripts {
    /// No transcripts yet. The backend says who owns a name.
    pub fn over(backend: &MemoryBackend) -> Self {
        Self { backend: backend.clone(), kept: Arc::default() }
    }

    /// The keys that have entries, sorted.
    pub fn keys(&self) -> Vec<SessionKey> {
        self.kept.keys()
    }

    /// The entries of a key.
    pub fn entries(&self, key: &SessionKey) -> Vec<TranscriptEntry> {
        self.kept.entries(key)
    }

    fn forget_now(&self, conversation: Uuid) -> Result<(), BackendError> {
        let project = conversation.to_string();
        for key in self.kept.keys().into_iter().filter(|key| key.project_key == project) {
            done(self.kept.delete(&key).now_or_never())?;
        }
        Ok(())
    }
}

impl TranscriptStore for MemoryTranscripts {
    fn append<'a>(
        &'a self,
        owner: &'a Ownership,
        _: AttemptId,
        key: &'a SessionKey,
        entries: &'a [TranscriptEntry],
    ) -> TranscriptReply<'a, Owned<()>> {
        Box::pin(ready(self.backend.with_conversation_of(owner, |conversation| match conversation {
            Some(conversation) if conversation.to_string() == key.project_key => {
                done(self.kept.append(key, entries).now_or_never()).map(Owned::Done)
            }
            Some(_) => Err(BackendError::new(
                BackendErrorKind::Invalid,
                "an owner appends to the conversation of its own name only",
            )),
            None => Ok(Owned::Fenced),
        })))
    }

    fn load<'a>(&'a self, key: &'a SessionKey) -> TranscriptReply<'a, Option<Vec<TranscriptEntry>>> {
        let entries = self.kept.entries(key);
        Box::pin(ready(Ok((!entries.is_empty()).then_some(entries))))
    }

    fn subpaths<'a>(&'a self, key: &'a SessionKey) -> TranscriptReply<'a, Vec<String>> {
        let main = key.main();
        let of_session = self.kept.keys().into_iter().filter(|key| key.main() == main);
        Box::pin(ready(Ok(of_session.filter_map(|key| key.subpath).collect())))
    }

    fn forget(&self, conversation: Uuid) -> TranscriptReply<'_, ()> {
        Box::pin(ready(self.forget_now(conversation)))
    }
}

/// The answer of a store in memory, which never waits.
fn done(answer: Option<StoreResult<()>>) -> Result<(), BackendError> {
    match answer {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) => Err(BackendError::new(BackendErrorKind::Invalid, error.to_string())),
        None => Err(BackendError::new(BackendErrorKind::Unavailable, "the store in memory has not answered")),
    }
}
