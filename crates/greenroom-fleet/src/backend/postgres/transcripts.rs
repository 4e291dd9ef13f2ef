//! Transcripts in PostgreSQL.

use std::time::{Duration, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use greenroom::sessions::TranscriptEntry;
use greenroom::store::{SessionKey, SessionStore, StoreResult, StoredSession};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use uuid::Uuid;

use super::answers::{owned, ownership, record};
use super::{PostgresBackend, PostgresOptions};
use crate::error::BackendError;
use crate::id::AttemptId;
use crate::registry::Result;
use crate::request::{Owned, Ownership};
use crate::transcripts::{TranscriptReply, TranscriptStore};

/// Entries and bytes of one statement that appends. A single entry may have more bytes.
const CHUNK: usize = 500;
const CHUNK_BYTES: usize = 1 << 20;
/// Rows and bytes of one answer.
const PAGE: usize = 1000;
const PAGE_BYTES: usize = 4 << 20;

/// Transcripts in a database of PostgreSQL 15 or later.
///
/// Give it to [`FleetBuilder::transcripts`](crate::FleetBuilder::transcripts), together with the backend of which it is made: its
/// appends check who owns a name. Or give it to a session without a fleet, as the session's store:
///
/// ```no_run
/// use std::sync::Arc;
///
/// use greenroom::Session;
/// use greenroom_fleet::backend::{PostgresOptions, PostgresStore};
///
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
/// let options = PostgresOptions::new("postgres://agents:secret@db.internal/agents");
/// let store = Arc::new(PostgresStore::connect(options).await?);
/// let session = Session::builder().session_store(store).start().await?;
/// # Ok(())
/// # }
/// ```
///
/// It keeps no summaries, so a list of sessions with their descriptions loads each session.
#[derive(Clone, Debug)]
pub struct PostgresStore(PostgresBackend);

impl PostgresStore {
    /// Connects without a fleet. Many processes may do so at once.
    ///
    /// # Errors
    /// Those of [`PostgresBackend::connect`].
    pub async fn connect(options: PostgresOptions) -> Result<Self> {
        PostgresBackend::connect(options).await.map(Self)
    }

    /// The transcripts in the schema of a backend. The store has connections of its own, which end with those of the backend.
    pub fn of(backend: &PostgresBackend) -> Self {
        Self(backend.clone())
    }

    async fn append_parts(
        &self,
        owner: Option<&Ownership>,
        attempt: AttemptId,
        key: &SessionKey,
        entries: &[TranscriptEntry],
    ) -> Result<Owned<()>> {
        for (part, chunk) in chunks(entries).enumerate() {
            let entries: Vec<_> = chunk.iter().map(|entry| (entry.uuid(), entry.raw().get())).collect();
            let mut request = of_key(key);
            request["owner"] = owner.map_or(Value::Null, ownership);
            request["attempt"] = json!(attempt);
            request["part"] = json!(part);
            request["entries"] = json!(entries);
            match owned(self.0.transcripts("append_entries", request).await?, |_| Ok(()))? {
                Owned::Done(()) => {}
                Owned::Fenced => return Ok(Owned::Fenced),
            }
        }
        Ok(Owned::Done(()))
    }

    async fn entries(&self, key: &SessionKey) -> Result<Option<Vec<TranscriptEntry>>> {
        let mut request = of_key(key);
        request["bytes"] = json!(PAGE_BYTES);
        let mut entries = Vec::new();
        self.pages("entries", request, |(_, json): &(u64, String)| {
            entries.push(TranscriptEntry::parse(json).map_err(BackendError::damaged)?);
            Ok(())
        })
        .await?;
        Ok((!entries.is_empty()).then_some(entries))
    }

    async fn parts(&self, key: &SessionKey) -> Result<Vec<String>> {
        let mut parts = Vec::new();
        self.pages("stored_parts", of_key(key), |(_, part): &(u64, String)| {
            parts.push(part.clone());
            Ok(())
        })
        .await?;
        Ok(parts)
    }

    async fn sessions(&self, project: &str) -> Result<Vec<StoredSession>> {
        let mut sessions = Vec::new();
        self.pages(
            "stored_sessions",
            json!({ "project": project }),
            |(_, id, modified): &(u64, String, u64)| {
                sessions.push(StoredSession::new(id, UNIX_EPOCH + Duration::from_millis(*modified)));
                Ok(())
            },
        )
        .await?;
        Ok(sessions)
    }

    /// Reads pages of rows until one is empty. The first column of a row is its place.
    async fn pages<R: DeserializeOwned + Row>(
        &self,
        method: &'static str,
        mut request: Value,
        mut take: impl FnMut(&R) -> Result<()>,
    ) -> Result<()> {
        (request["after"], request["limit"]) = (json!(0), json!(PAGE));
        loop {
            let page: Vec<R> = record(self.0.transcripts(method, request.clone()).await?)?;
            let Some(last) = page.last() else { return Ok(()) };
            request["after"] = json!(last.place());
            page.iter().try_for_each(&mut take)?;
        }
    }

    async fn remove(&self, request: Value) -> Result<()> {
        while !record::<bool>(self.0.transcripts("delete_entries", request.clone()).await?)? {}
        Ok(())
    }
}

/// A row of a page.
trait Row {
    fn place(&self) -> u64;
}

impl<A> Row for (u64, A) {
    fn place(&self) -> u64 {
        self.0
    }
}

impl<A, B> Row for (u64, A, B) {
    fn place(&self) -> u64 {
        self.0
    }
}

fn of_key(key: &SessionKey) -> Value {
    json!({ "project": key.project_key, "session": key.session_id, "subpath": key.subpath })
}

/// Splits entries so that a statement stays within its bounds.
fn chunks(mut entries: &[TranscriptEntry]) -> impl Iterator<Item = &[TranscriptEntry]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = entries.iter().take(CHUNK).take_while(|entry| {
            bytes += entry.raw().get().len();
            bytes <= CHUNK_BYTES
        });
        let count = fits.count().max(1).min(entries.len());
        let (chunk, rest) = entries.split_at(count);
        entries = rest;
        (!chunk.is_empty()).then_some(chunk)
    })
}

impl TranscriptStore for PostgresStore {
    fn append<'a>(
        &'a self,
        owner: &'a Ownership,
        attempt: AttemptId,
        key: &'a SessionKey,
        entries: &'a [TranscriptEntry],
    ) -> TranscriptReply<'a, Owned<()>> {
        Box::pin(self.append_parts(Some(owner), attempt, key, entries))
    }

    fn load<'a>(&'a self, key: &'a SessionKey) -> TranscriptReply<'a, Option<Vec<TranscriptEntry>>> {
        Box::pin(self.entries(key))
    }

    fn subpaths<'a>(&'a self, key: &'a SessionKey) -> TranscriptReply<'a, Vec<String>> {
        Box::pin(self.parts(key))
    }

    fn forget(&self, conversation: Uuid) -> TranscriptReply<'_, ()> {
        Box::pin(self.remove(json!({ "project": conversation })))
    }
}

/// Without a fleet nobody owns the session, so every append is carried out.
impl SessionStore for PostgresStore {
    fn append<'a>(
        &'a self,
        key: &'a SessionKey,
        entries: &'a [TranscriptEntry],
    ) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(async move {
            match self.append_parts(None, AttemptId::new(), key, entries).await? {
                Owned::Done(()) => Ok(()),
                Owned::Fenced => Err("the store has refused an append that names no owner".into()),
            }
        })
    }

    fn load<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<Option<Vec<TranscriptEntry>>>> {
        Box::pin(async move { Ok(self.entries(key).await?) })
    }

    fn list_sessions<'a>(&'a self, project_key: &'a str) -> BoxFuture<'a, StoreResult<Vec<StoredSession>>> {
        Box::pin(async move { Ok(self.sessions(project_key).await?) })
    }

    fn delete<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(async move { Ok(self.remove(of_key(key)).await?) })
    }

    fn list_subkeys<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<Vec<String>>> {
        Box::pin(async move { Ok(self.parts(key).await?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appends_are_split_by_entries_and_by_bytes() {
        let entry =
            |bytes: usize| TranscriptEntry::parse(&json!({ "t": "x".repeat(bytes) }).to_string()).unwrap();
        let sizes = |entries: &[TranscriptEntry]| chunks(entries).map(<[_]>::len).collect::<Vec<_>>();
        assert_eq!(sizes(&[]), [0; 0]);
        assert_eq!(sizes(&vec![entry(1); 1200]), [500, 500, 200]);
        let large = entry(CHUNK_BYTES);
        assert_eq!(sizes(&[entry(1), large.clone(), large, entry(1)]), [1, 1, 1, 1]);
        assert_eq!(sizes(&vec![entry(CHUNK_BYTES / 3); 4]), [2, 2]);
    }
}
