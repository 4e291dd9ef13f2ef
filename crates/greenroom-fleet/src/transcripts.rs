//! Transcripts in a backend, so that a session's memory moves with the session.
//!
//! ```text
//!  CLI ── writes its transcript ──► session ── append ──► backend, if the owner still owns the name
//!                                                              │ the next owner, on any host
//!                       a folder of this activation alone ◄── load
//! ```
//!
//! A fleet has its transcripts in its backend with [`TranscriptsIn::Backend`](crate::TranscriptsIn::Backend).

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use greenroom::sessions::TranscriptEntry;
use greenroom::store::{SessionKey, SessionStore, StoreResult, StoredSession};

use crate::backend::{Backend, Requests};
use crate::error::{BackendError, Result};
use crate::id::AttemptId;
use crate::pages::all_of;
use crate::registry::runs;
use crate::request::{AppendEntries, Owned, Page, StoredText, StoredTranscript, TranscriptsOf};

/// Entries and bytes of one request that appends. A single entry may have more bytes.
const CHUNK: usize = 500;
const CHUNK_BYTES: usize = 1 << 20;

/// The transcripts in a backend, as the session store of sessions without a fleet. A fleet needs no such store:
/// [`FleetBuilder::transcripts`](crate::FleetBuilder::transcripts).
///
/// ```no_run
/// use std::sync::Arc;
///
/// use greenroom::Session;
/// use greenroom_fleet::Transcripts;
/// use greenroom_fleet::backend::LocalBackend;
///
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
/// let backend = LocalBackend::open("/var/lib/agents/transcripts.redb").await?;
/// let session = Session::builder().session_store(Arc::new(Transcripts::of(backend))).start().await?;
/// # Ok(())
/// # }
/// ```
///
/// It keeps no summaries, so a list of sessions with their descriptions loads each session.
#[derive(Clone)]
pub struct Transcripts(Arc<dyn Backend>);

impl Transcripts {
    /// The transcripts in a backend.
    pub fn of(backend: impl Backend) -> Self {
        Self(Arc::new(backend))
    }
}

async fn list(backend: &dyn Backend, of: TranscriptsOf) -> Result<Vec<StoredTranscript>> {
    let key = |last: Option<&StoredTranscript>| last.map(|last| last.key.clone());
    all_of(|last| backend.transcripts(of.clone(), key(last), Page::MOST)).await
}

/// The subpaths of a session's transcripts.
pub(crate) async fn subkeys(backend: &dyn Backend, key: &SessionKey) -> Result<Vec<String>> {
    let listed = list(backend, TranscriptsOf::key(&key.main())).await?;
    Ok(listed.into_iter().filter_map(|transcript| transcript.key.subpath).collect())
}

/// The requests of one append, in their order, each of them within its bounds.
pub(crate) fn parts(key: &SessionKey, entries: &[TranscriptEntry]) -> impl Iterator<Item = AppendEntries> {
    runs(entries, CHUNK, CHUNK_BYTES, |entry| entry.raw().get().len()).map(move |entries| {
        let (attempt, key, entries) = (AttemptId::new(), key.clone(), entries.to_vec());
        AppendEntries { owner: None, attempt, key, entries }
    })
}

/// All entries of a transcript, by requests for those after a number. `None`: it has none.
pub(crate) async fn load<'a>(
    after: impl Fn(u64) -> BoxFuture<'a, StoreResult<Vec<StoredText>>>,
) -> StoreResult<Option<Vec<TranscriptEntry>>> {
    let (mut entries, mut last) = (Vec::new(), 0);
    loop {
        let page = after(last).await?;
        let Some(end) = page.last() else { return Ok((!entries.is_empty()).then_some(entries)) };
        last = end.number;
        for entry in &page {
            entries.push(TranscriptEntry::parse(&entry.json).map_err(BackendError::damaged)?);
        }
    }
}

/// Without a fleet nobody owns the session, so every append is carried out.
impl SessionStore for Transcripts {
    fn append<'a>(
        &'a self,
        key: &'a SessionKey,
        entries: &'a [TranscriptEntry],
    ) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(async move {
            for part in parts(key, entries) {
                match self.0.append_entries(part).await? {
                    Owned::Done(()) => {}
                    Owned::Fenced => {
                        return Err("the backend has refused an append that names no owner".into());
                    }
                }
            }
            Ok(())
        })
    }

    fn load<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<Option<Vec<TranscriptEntry>>>> {
        Box::pin(async move {
            let page = |after| Box::pin(async move { Ok(self.0.entries(key.clone(), after).await?) }) as _;
            load(page).await
        })
    }

    fn list_sessions<'a>(&'a self, project_key: &'a str) -> BoxFuture<'a, StoreResult<Vec<StoredSession>>> {
        Box::pin(async move {
            let mut listed = list(&*self.0, TranscriptsOf::project(project_key)).await?;
            listed.retain(|transcript| transcript.key.subpath.is_none());
            let session = |StoredTranscript { key, modified }: &StoredTranscript| {
                StoredSession::new(&key.session_id, UNIX_EPOCH + Duration::from_millis(modified.0))
            };
            Ok(listed.iter().map(session).collect())
        })
    }

    fn delete<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(async move {
            while !self.0.delete_transcripts(TranscriptsOf::key(key)).await? {}
            Ok(())
        })
    }

    fn list_subkeys<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<Vec<String>>> {
        Box::pin(async move { Ok(subkeys(&*self.0, key).await?) })
    }
}

impl std::fmt::Debug for Transcripts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transcripts").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn appends_are_split_by_entries_and_by_bytes() {
        let entry =
            |bytes: usize| TranscriptEntry::parse(&json!({ "t": "x".repeat(bytes) }).to_string()).unwrap();
        let key = SessionKey::new("project", "session");
        let sizes = |entries: &[TranscriptEntry]| {
            parts(&key, entries).map(|part| part.entries.len()).collect::<Vec<_>>()
        };
        assert_eq!(sizes(&[]), [0; 0]);
        assert_eq!(sizes(&vec![entry(1); 1200]), [500, 500, 200]);
        let large = entry(CHUNK_BYTES);
        assert_eq!(sizes(&[entry(1), large.clone(), large, entry(1)]), [1, 1, 1, 1]);
        assert_eq!(sizes(&vec![entry(CHUNK_BYTES / 3); 4]), [2, 2]);
    }
}
