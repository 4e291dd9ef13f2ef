//! Requests about transcripts.

use greenroom::sessions::TranscriptEntry;
use greenroom::store::SessionKey;

use super::Ownership;
use crate::id::{AttemptId, Timestamp};

/// Entries to be appended to a transcript.
#[derive(Clone, Debug)]
pub struct AppendEntries {
    /// The owner of the name, to whose conversation the entries belong. `None`: the session belongs to no fleet, and nobody owns it.
    pub owner: Option<Ownership>,
    /// The id of this append.
    pub attempt: AttemptId,
    /// The key of the transcript.
    pub key: SessionKey,
    /// The entries. One with a uuid that the transcript has already is passed over.
    pub entries: Vec<TranscriptEntry>,
}

/// Transcripts of a project, or of a session alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranscriptsOf {
    /// The project.
    pub project: String,
    /// The session: its own transcript and those of its parts. `None`: all sessions.
    pub session: Option<String>,
    /// The part of the session. `None`: the whole session.
    pub subpath: Option<String>,
}

impl TranscriptsOf {
    /// The transcript of a key and, if it is a session's own one, those of its parts.
    pub fn key(key: &SessionKey) -> Self {
        let SessionKey { project_key, session_id, subpath, .. } = key.clone();
        Self { project: project_key, session: Some(session_id), subpath }
    }

    /// All transcripts of a project.
    pub fn project(project: impl Into<String>) -> Self {
        Self { project: project.into(), session: None, subpath: None }
    }
}

/// A transcript that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTranscript {
    /// Its key.
    pub key: SessionKey,
    /// The moment of its last append.
    pub modified: Timestamp,
}
