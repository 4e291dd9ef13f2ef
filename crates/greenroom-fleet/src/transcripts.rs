//! Transcripts in a store that all hosts share, so that a session's memory moves with the session.
//!
//! ```text
//!  CLI ── writes its transcript ──► session ── append ──► TranscriptStore, if the owner still owns the name
//!                                                              │ the next owner, on any host
//!                       a folder of this activation alone ◄── load
//! ```
//!
//! Give one to [`FleetBuilder::transcripts`](crate::FleetBuilder::transcripts).

use futures_util::future::BoxFuture;
use greenroom::sessions::TranscriptEntry;
use greenroom::store::SessionKey;
use uuid::Uuid;

use crate::error::BackendError;
use crate::id::AttemptId;
use crate::request::{Owned, Ownership};

/// The answer of a [`TranscriptStore`].
pub type TranscriptReply<'a, T> = BoxFuture<'a, Result<T, BackendError>>;

/// Keeps the transcripts of a fleet's sessions.
///
/// [`MemoryTranscripts`](crate::backend::MemoryTranscripts) is for tests, and `PostgresStore` (feature `postgres`) for services on
/// several hosts. The fleet uses keys whose [`project_key`](SessionKey::project_key) is the id of the name's conversation.
///
/// A request that fails with [`Unavailable`](crate::BackendErrorKind::Unavailable) is repeated while the node holds its lease. Any
/// other error loses the entries, and the fleet quarantines the name.
pub trait TranscriptStore: Send + Sync + 'static {
    /// Appends entries to those of the key, in this order. [`Owned::Fenced`]: the owner does not own the name any more, and nothing
    /// was written. The check and the write are one step: no entry of an owner follows a claim by another one.
    ///
    /// An entry whose uuid the key already has is dropped. A repeated request has the id of the first one, and writes nothing twice.
    fn append<'a>(
        &'a self,
        owner: &'a Ownership,
        attempt: AttemptId,
        key: &'a SessionKey,
        entries: &'a [TranscriptEntry],
    ) -> TranscriptReply<'a, Owned<()>>;

    /// Returns all entries of a key in order; `None` if the key has none.
    fn load<'a>(&'a self, key: &'a SessionKey) -> TranscriptReply<'a, Option<Vec<TranscriptEntry>>>;

    /// Lists the subpaths of a session, in any order.
    fn subpaths<'a>(&'a self, key: &'a SessionKey) -> TranscriptReply<'a, Vec<String>>;

    /// Removes all transcripts of a conversation. Succeeds if there are none.
    fn forget(&self, conversation: Uuid) -> TranscriptReply<'_, ()>;
}
