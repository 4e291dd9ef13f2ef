//! What a store knows of a session without a look at its entries.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::TranscriptEntry;
use crate::sessions::{Folded, SessionInfo};

/// A session that is in a store.
///
/// ```
/// use std::time::SystemTime;
/// use greenroom::store::StoredSession;
///
/// let session = StoredSession::new("1cb85d28-3d2d-4b39-bd1c-0f6c0bd52b37", SystemTime::now());
/// assert!(session.modified > SystemTime::UNIX_EPOCH);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredSession {
    /// Its id.
    pub session_id: String,
    /// When the store was last given entries of it, by the store's own clock.
    pub modified: SystemTime,
}

impl StoredSession {
    /// A session, and when it was last written to.
    pub fn new(session_id: impl Into<String>, modified: SystemTime) -> Self {
        Self { session_id: session_id.into(), modified }
    }
}

/// What a session is, folded from its entries while they are appended, so that none is ever read for a list.
///
/// A store that has [`list_summaries`](super::SessionStore::list_summaries) keeps one for each session (not for its parts),
/// in the form that it serialises to and without a look inside, and folds into it what it is given:
///
/// ```
/// use greenroom::store::{SessionSummary, TranscriptEntry};
///
/// let mut summary = SessionSummary::new("1cb85d28-3d2d-4b39-bd1c-0f6c0bd52b37");
/// let entry = TranscriptEntry::parse(r#"{"type": "user", "message": {"content": "What is 5 + 3?"}}"#)?;
/// summary.fold(&[entry], std::time::SystemTime::now());
/// let kept = serde_json::to_string(&summary)?;
/// assert_eq!(serde_json::from_str::<SessionSummary>(&kept)?.info().unwrap().summary, "What is 5 + 3?");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionSummary {
    session_id: String,
    modified: SystemTime,
    data: Folded,
}

impl SessionSummary {
    /// Of a session without entries.
    pub fn new(session_id: impl Into<String>) -> Self {
        Self { session_id: session_id.into(), modified: SystemTime::UNIX_EPOCH, data: Folded::default() }
    }

    pub(crate) fn of(session_id: String, modified: SystemTime, data: Folded) -> Self {
        Self { session_id, modified, data }
    }

    /// Takes entries into account that are appended, at this time by the clock of
    /// [`StoredSession::modified`].
    pub fn fold(&mut self, entries: &[TranscriptEntry], modified: SystemTime) {
        self.data.entries(entries);
        self.modified = modified;
    }

    /// The session.
    pub fn session_id(&self) -> &str {
        &self.session_id
    }

    /// When it was last written to.
    pub fn modified(&self) -> SystemTime {
        self.modified
    }

    /// What there is to say about the session; `None` for one of a subagent, and for one in which nothing was said.
    pub fn info(&self) -> Option<SessionInfo> {
        self.data.info(&self.session_id, self.modified, None, None)
    }
}
