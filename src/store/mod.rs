//! Sessions outside the machine that runs them: a [`SessionStore`] gets a copy of every transcript while it is written,
//! and a CLI anywhere else goes on from that copy.
//!
//! ```text
//!   claude CLI ── its own transcript on disk
//!       │
//!       └─ transcript_mirror frames ─► queue ─► batches ─► SessionStore::append
//!                                                              │ another machine, another day
//!                                 a temporary configuration ◄─ load ── Options::resume + session_store
//! ```
//!
//! - [`SessionStore`]: what a store does; [`SessionKey`]: what it keeps entries under
//! - [`MemoryStore`], [`FileStore`]: two of them
//! - [`StoredSessions`]: the sessions in a store listed, read and changed, as [`LocalSessions`](crate::sessions::LocalSessions)
//!   does it on disk
//! - [`SessionBuilder::session_store`](crate::SessionBuilder::session_store): a session with a store;
//!   [`StoreOptions`](crate::StoreOptions): how it is mirrored and loaded
//! - [`testkit::store_conformance`](crate::testkit): whether a store of yours keeps its promises (feature `testkit`)
//!
//! # What is promised
//!
//! - A turn's outcome is given after the store has taken what was written until then, or after its failure was told. It
//!   waits no longer when more than [`StoreOptions::held_bytes`](crate::StoreOptions::held_bytes) wait behind it, nor when a
//!   session that stops has waited for [`StoreOptions::stop`](crate::StoreOptions::stop). What says nothing about what the
//!   CLI wrote does not wait: that a prompt was not sent, or that the application did not read its turn.
//! - Entries of one key come in the order in which the CLI wrote them.
//! - A store that fails, hangs or panics harms nothing else: the CLI writes its own transcript first, the session goes on,
//!   and what the store did not take is told with [`Event::MirrorFailed`](crate::Event::MirrorFailed) and a
//!   `system`/`mirror_error` message, as the official SDKs do.
//! - What waits for a slow store has a bound, [`StoreOptions::queue_bytes`](crate::StoreOptions::queue_bytes).

mod file;
mod memory;
mod sessions;
mod summary;

use std::fmt;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

pub use crate::sessions::TranscriptEntry;
pub use file::{Durability, FileStore};
pub use memory::MemoryStore;
pub use sessions::StoredSessions;
pub(crate) use sessions::{AGENT_METADATA, failed, metadata, not_stored, sort_newest_first};
pub use summary::{SessionSummary, StoredSession};

/// What a store says when it fails: any error.
pub type StoreError = Box<dyn std::error::Error + Send + Sync>;

/// What a store answers.
pub type StoreResult<T> = Result<T, StoreError>;

/// What entries are kept under: a session's transcript, or that of a part of it.
///
/// ```
/// use greenroom::store::SessionKey;
///
/// let main = SessionKey::new("-home-me-project", "1cb85d28-3d2d-4b39-bd1c-0f6c0bd52b37");
/// let agent = main.clone().with_subpath("subagents/agent-1");
/// assert_eq!(agent.to_string(), "-home-me-project/1cb85d28-3d2d-4b39-bd1c-0f6c0bd52b37/subagents/agent-1");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SessionKey {
    /// The scope: [`project_key`](crate::sessions::project_key) of the working directory, or
    /// [`StoreOptions::project_key`](crate::StoreOptions::project_key), a tenant for instance.
    pub project_key: String,
    /// The session.
    pub session_id: String,
    /// What belongs to the session besides its own transcript, such as `subagents/agent-1`, with `/` between its parts
    /// on every system. `None` for the transcript itself. Never empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subpath: Option<String>,
}

impl SessionKey {
    /// The key of a session's own transcript.
    pub fn new(project_key: impl Into<String>, session_id: impl Into<String>) -> Self {
        Self { project_key: project_key.into(), session_id: session_id.into(), subpath: None }
    }

    /// The key of a part of the same session.
    #[must_use]
    pub fn with_subpath(self, subpath: impl Into<String>) -> Self {
        Self { subpath: Some(subpath.into()), ..self }
    }

    /// The key of the session's own transcript.
    #[must_use]
    pub fn main(&self) -> Self {
        Self { subpath: None, ..self.clone() }
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.project_key, self.session_id)?;
        match &self.subpath {
            Some(subpath) => write!(f, "/{subpath}"),
            None => Ok(()),
        }
    }
}

/// Keeps the transcripts of sessions, wherever that may be.
///
/// Two methods are enough. The others have a default that fails with [`Unsupported`], and what needs them is not
/// possible then: each says what. `testkit::store_conformance` checks all that stands here.
///
/// Methods are called on tasks of their own, one at a time for each session that is mirrored; sessions are mirrored at
/// the same time. A method that does not return in time is dropped, and a panic counts as an error. None of them should
/// block its thread.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
///
/// use futures_util::future::BoxFuture;
/// use greenroom::store::{SessionKey, SessionStore, StoreResult, TranscriptEntry};
///
/// #[derive(Default)]
/// struct Shelf(Mutex<HashMap<SessionKey, Vec<TranscriptEntry>>>);
///
/// impl SessionStore for Shelf {
///     fn append<'a>(&'a self, key: &'a SessionKey, entries: &'a [TranscriptEntry]) -> BoxFuture<'a, StoreResult<()>> {
///         Box::pin(async move {
///             let mut shelf = self.0.lock().map_err(|_| "the shelf has fallen")?;
///             let kept = shelf.entry(key.clone()).or_default();
///             for entry in entries {
///                 // A batch may come a second time.
///                 if entry.uuid().is_none() || !kept.iter().any(|there| there.uuid() == entry.uuid()) {
///                     kept.push(entry.clone());
///                 }
///             }
///             Ok(())
///         })
///     }
///
///     fn load<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<Option<Vec<TranscriptEntry>>>> {
///         Box::pin(async move { Ok(self.0.lock().map_err(|_| "the shelf has fallen")?.get(key).cloned()) })
///     }
/// }
/// ```
pub trait SessionStore: Send + Sync + 'static {
    /// Puts entries behind those that the key has. They must be there, in this order, for every [`load`](Self::load)
    /// that begins after this has returned. No entries change nothing.
    ///
    /// A batch that failed is sent again, and may have been taken in part: an entry whose
    /// [`uuid`](TranscriptEntry::uuid) the key has already should be dropped. Those without one are kept each time.
    fn append<'a>(
        &'a self,
        key: &'a SessionKey,
        entries: &'a [TranscriptEntry],
    ) -> BoxFuture<'a, StoreResult<()>>;

    /// All entries of a key in their order, as they were appended (the order of fields in them may be another);
    /// `None` for a key that has none.
    fn load<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<Option<Vec<TranscriptEntry>>>>;

    /// The sessions of a project, in any order, without the parts of sessions. Needed to continue the newest session of
    /// a project, and to list them.
    fn list_sessions<'a>(&'a self, project_key: &'a str) -> BoxFuture<'a, StoreResult<Vec<StoredSession>>> {
        Unsupported::answer("list_sessions", project_key)
    }

    /// What is known of each session of a project, without a look at its entries: see [`SessionSummary`]. Makes listing
    /// fast; without it every session is loaded for that.
    fn list_summaries<'a>(&'a self, project_key: &'a str) -> BoxFuture<'a, StoreResult<Vec<SessionSummary>>> {
        Unsupported::answer("list_summaries", project_key)
    }

    /// Removes what is under a key; with the key of a session's own transcript, all parts of the session too. What is not
    /// there is no error.
    fn delete<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<()>> {
        Unsupported::answer("delete", &key.project_key)
    }

    /// The subpaths of a session, in any order. Needed to resume a session with its subagents, and to list them.
    fn list_subkeys<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<Vec<String>>> {
        Unsupported::answer("list_subkeys", &key.project_key)
    }
}

/// A store does not have this method.
///
/// ```
/// use greenroom::store::{StoreError, Unsupported};
///
/// let error: StoreError = Unsupported::new("list_sessions").into();
/// assert!(error.is::<Unsupported>());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsupported {
    method: &'static str,
}

impl Unsupported {
    /// For a store that learns only when it is asked that it cannot.
    pub fn new(method: &'static str) -> Self {
        Self { method }
    }

    fn answer<'a, T: Send + 'a>(method: &'static str, _: &'a str) -> BoxFuture<'a, StoreResult<T>> {
        Box::pin(async move { Err(Unsupported { method }.into()) })
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the session store has no `{}`", self.method)
    }
}

impl std::error::Error for Unsupported {}

/// Drops entries that a key has already, by their uuid.
pub(crate) fn dedup(entries: &mut Vec<TranscriptEntry>) {
    let mut seen = std::collections::HashSet::new();
    entries.retain(|entry| entry.uuid().is_none_or(|uuid| seen.insert(uuid.to_owned())));
}
