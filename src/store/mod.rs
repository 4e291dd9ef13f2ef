//! Keep a copy of each conversation in a store of yours, and resume conversations from the store on another machine.
//!
//! A [`SessionStore`] gets the entries of a transcript while the CLI writes them.
//!
//! ```text
//!   claude CLI ── its own transcript on disk
//!       │
//!       └─ transcript_mirror frames ─► queue ─► batches ─► SessionStore::append
//!                                                              │ another machine, another day
//!                                 a temporary configuration ◄─ load ── Options::resume + session_store
//! ```
//!
//! - Give a store to [`SessionBuilder::session_store`](crate::SessionBuilder::session_store):
//!   your own [`SessionStore`], which keeps entries under a [`SessionKey`], or a [`MemoryStore`] for tests.
//!   [`StoreOptions`](crate::options::StoreOptions) has the settings.
//! - List, read and change the sessions of a store with [`StoredSessions`].
//! - Test your own store with `greenroom_testkit::store_conformance`.
//!
//! # Guarantees
//!
//! - A turn's outcome is delivered after the store has taken the entries that were written before it, or after the failure was
//!   reported. The outcome waits no longer if more than [`StoreOptions::held_bytes`](crate::options::StoreOptions::held_bytes) wait
//!   behind it, or if a session that stops has waited for [`StoreOptions::stop`](crate::options::StoreOptions::stop). Outcomes that do
//!   not depend on written entries do not wait: a prompt that was not sent, or a turn that the application did not read.
//! - Entries of one key arrive in the order in which the CLI wrote them.
//! - A store that fails, hangs or panics harms nothing else: the CLI writes its own transcript first, the session goes on, and
//!   lost entries are reported by [`Event::MirrorFailed`](crate::Event::MirrorFailed) and a `system`/`mirror_error` message, as
//!   in the official SDKs.
//! - At most [`StoreOptions::queue_bytes`](crate::options::StoreOptions::queue_bytes) wait for a slow store.

mod loaded;
#[cfg(feature = "sessions")]
mod memory;
#[cfg(feature = "sessions")]
mod sessions;
#[cfg(feature = "sessions")]
mod summary;

use std::fmt;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

pub(crate) use crate::sessions::TranscriptEntry;
pub use loaded::StoredSession;
pub(crate) use loaded::{AGENT_METADATA, failed, metadata, not_stored};
#[cfg(feature = "sessions")]
pub use memory::MemoryStore;
#[cfg(feature = "sessions")]
pub use sessions::StoredSessions;
#[cfg(feature = "sessions")]
pub use summary::SessionSummary;

/// The error of a store: any error.
pub type StoreError = Box<dyn std::error::Error + Send + Sync>;

/// The result of a store's method.
pub type StoreResult<T> = Result<T, StoreError>;

/// The key of entries in a store: a session's transcript, or the transcript of a part of the session.
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
    /// The scope: the [`project_key`](crate::sessions::project_key) of the working directory, or
    /// [`StoreOptions::project_key`](crate::options::StoreOptions::project_key), for instance a tenant.
    pub project_key: String,
    /// The session's id.
    pub session_id: String,
    /// A part of the session, such as `subagents/agent-1`, with `/` on every system. `None` for the session's own
    /// transcript. Never empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subpath: Option<String>,
}

impl SessionKey {
    /// The key of a session's own transcript.
    pub fn new(project_key: impl Into<String>, session_id: impl Into<String>) -> Self {
        Self { project_key: project_key.into(), session_id: session_id.into(), subpath: None }
    }

    /// The key of a part of this session.
    #[must_use]
    pub fn with_subpath(self, subpath: impl Into<String>) -> Self {
        Self { subpath: Some(subpath.into()), ..self }
    }

    /// The key of this session's own transcript.
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

/// Keeps the transcripts of sessions.
///
/// Implement [`append`](Self::append) and [`load`](Self::load). The other methods fail with [`Unsupported`] by default;
/// each says what is impossible without it. `greenroom_testkit::store_conformance` tests everything that is documented here.
///
/// Methods are called on separate tasks, one at a time for each mirrored session, and at the same time for different
/// sessions. A method that takes too long is dropped, and a panic counts as an error. No method should block its
/// thread.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
///
/// use futures_util::future::BoxFuture;
/// use greenroom::sessions::TranscriptEntry;
/// use greenroom::store::{SessionKey, SessionStore, StoreResult};
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
///                 // A batch may arrive again.
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
    /// Appends entries to those of the key. A [`load`](Self::load) that starts after this has returned must return them
    /// in this order. Appending no entries changes nothing.
    ///
    /// A batch that failed is sent again and may have been stored in part: drop an entry whose
    /// [`uuid`](TranscriptEntry::uuid) the key already has. Keep every entry without a uuid.
    fn append<'a>(
        &'a self,
        key: &'a SessionKey,
        entries: &'a [TranscriptEntry],
    ) -> BoxFuture<'a, StoreResult<()>>;

    /// Returns all entries of a key in order (the order of fields within an entry may differ); `None` if the key has
    /// none.
    fn load<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<Option<Vec<TranscriptEntry>>>>;

    /// Lists the sessions of a project, in any order, without parts of sessions. Needed to list sessions, and to
    /// continue the newest session of a project.
    fn list_sessions<'a>(&'a self, project_key: &'a str) -> BoxFuture<'a, StoreResult<Vec<StoredSession>>> {
        Unsupported::answer("list_sessions", project_key)
    }

    /// Returns the [`SessionSummary`] of each session of a project. Makes listing fast; without it every session is
    /// loaded for a list. Needs the feature `sessions`, as lists do.
    #[cfg(feature = "sessions")]
    fn list_summaries<'a>(&'a self, project_key: &'a str) -> BoxFuture<'a, StoreResult<Vec<SessionSummary>>> {
        Unsupported::answer("list_summaries", project_key)
    }

    /// Deletes the entries of a key, and with the key of a session's own transcript all parts of the session. Succeeds
    /// if there is nothing to delete.
    fn delete<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<()>> {
        Unsupported::answer("delete", &key.project_key)
    }

    /// Lists the subpaths of a session, in any order. Needed to resume a session with its subagents, and to list them.
    fn list_subkeys<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<Vec<String>>> {
        Unsupported::answer("list_subkeys", &key.project_key)
    }
}

/// The error of a store that does not have a method.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the session store does not support `{method}`")]
pub struct Unsupported {
    method: &'static str,
}

impl fmt::Debug for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Unsupported {
    /// For a store that learns only when it is called that it does not support the method.
    pub fn new(method: &'static str) -> Self {
        Self { method }
    }

    fn answer<'a, T: Send + 'a>(method: &'static str, _: &'a str) -> BoxFuture<'a, StoreResult<T>> {
        Box::pin(async move { Err(Unsupported { method }.into()) })
    }
}

/// Removes entries with a uuid that came before.
pub(crate) fn dedup(entries: &mut Vec<TranscriptEntry>) {
    let mut seen = std::collections::HashSet::new();
    entries.retain(|entry| entry.uuid().is_none_or(|uuid| seen.insert(uuid.to_owned())));
}
