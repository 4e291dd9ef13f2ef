//! Descriptions of sessions that a store keeps, so that it need not read their entries for a list.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::TranscriptEntry;
use crate::sessions::{Folded, SessionInfo};

/// The description of a session, folded from its entries while they are appended, so that a list reads no entries.
///
/// A store with [`list_summaries`](super::SessionStore::list_summaries) keeps one for each session (not for parts of
/// sessions) as its JSON, without reading the JSON, and folds each batch into it:
///
/// ```
/// use greenroom::sessions::TranscriptEntry;
/// use greenroom::store::SessionSummary;
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
    /// The summary of a session without entries.
    pub fn new(session_id: impl Into<String>) -> Self {
        Self { session_id: session_id.into(), modified: SystemTime::UNIX_EPOCH, data: Folded::default() }
    }

    /// Folds entries that are appended at this time, by the clock of
    /// [`StoredSession::modified`](super::StoredSession::modified).
    pub fn fold(&mut self, entries: &[TranscriptEntry], modified: SystemTime) {
        self.data.entries(entries);
        self.modified = modified;
    }

    /// The session's id.
    pub fn session_id(&self) -> &str {
        &self.session_id
    }

    /// When the session was last written.
    pub fn modified(&self) -> SystemTime {
        self.modified
    }

    /// The description of the session; `None` for a subagent's transcript and for a session without a message.
    pub fn info(&self) -> Option<SessionInfo> {
        self.data.info(&self.session_id, self.modified, None, None)
    }
}
