//! What a store returns, and its errors.

use std::fmt;
use std::time::SystemTime;

use serde_json::Value;

use super::{SessionKey, StoreError, TranscriptEntry, Unsupported};
use crate::error::{Error, ErrorKind};
pub(crate) use crate::message::AGENT_METADATA;

/// A session in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredSession {
    /// The session's id.
    pub session_id: String,
    /// When the store last got entries of the session, by the store's clock.
    pub modified: SystemTime,
}

impl StoredSession {
    /// A session, and the time of its last append.
    pub fn new(session_id: impl Into<String>, modified: SystemTime) -> Self {
        Self { session_id: session_id.into(), modified }
    }
}

pub(crate) fn not_stored(key: &SessionKey) -> Error {
    let text = format!("the store has no session {} in the project '{}'", key.session_id, key.project_key);
    Error::new(ErrorKind::SessionNotFound, text)
        .with_help("check the id and the `project_key`, which is made of the working directory by default")
}

pub(crate) fn failed(method: &str, about: impl fmt::Display, error: StoreError) -> Error {
    let text = format!("`{method}` of the session store failed for {about}: {error}");
    let help = match error.is::<Unsupported>() {
        true => "implement the method in your store, or use another store",
        false => "look for the cause in the store, which belongs to the application",
    };
    Error::new(ErrorKind::Store, text).with_help(help).with_source(error)
}

/// A subagent's metadata. The last entry counts, because the CLI writes the metadata again when it changes.
pub(crate) fn metadata(entries: &[TranscriptEntry]) -> Option<Value> {
    let mut note = entries.iter().rev().find(|entry| entry.kind() == Some(AGENT_METADATA))?.value();
    note.as_object_mut()?.remove("type");
    Some(note)
}
