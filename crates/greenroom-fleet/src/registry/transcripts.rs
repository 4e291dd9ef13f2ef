//! Transcripts of sessions.
//!
//! ```text
//!  Transcripts: project, session, part ──► the id, the last number, the last append
//!                    │ a removal              │
//!                    ▼        Entries: id, number ──► entries      EntryIds: id, uuid ──► nothing
//!  Removed: project, session, part, id ──► nothing, until its entries are gone
//! ```
//!
//! A removal first takes the transcript out of sight, so nobody reads a part of one. An append after that begins another transcript.

use greenroom::store::SessionKey;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::key::{Key, Table, last_id, text_and_rest};
use super::{BATCH, Result, Step, parsed};
use crate::error::{BackendError, BackendErrorKind};
use crate::id::{AttemptId, Timestamp};
use crate::request::{AppendEntries, Owned, Page, StoredText, StoredTranscript, TranscriptsOf};

/// Transcripts that one request removes.
const TRANSCRIPTS: usize = 32;
/// Bytes of a page of entries. The last row may have more bytes.
const BYTES: u64 = 4 << 20;

/// A transcript without its entries.
#[derive(Serialize, Deserialize)]
struct TranscriptRow {
    id: Uuid,
    /// The number of the last entry.
    last: u64,
    modified: Timestamp,
    /// The last append.
    attempt: AttemptId,
}

impl Step<'_> {
    /// Appends entries, if the owner is its name's owner still.
    pub(crate) fn append_entries(&mut self, append: AppendEntries) -> Result<Owned<()>> {
        let AppendEntries { owner, attempt, key, entries } = append;
        let place = place(&key);
        self.txn.want(&place);
        if let Some(owner) = &owner {
            let Some(name) = self.owned(owner)? else { return Ok(Owned::Fenced) };
            if name.conversation.to_string() != key.project_key {
                let message = "an owner appends to the conversation of its own name only";
                return Err(BackendError::new(BackendErrorKind::Invalid, message));
            }
        }
        let known: Option<TranscriptRow> = self.txn.read(&place)?;
        if known.as_ref().is_some_and(|known| known.attempt == attempt) {
            return Ok(Owned::Done(()));
        }
        // A new transcript has the id of its first append.
        let (id, mut last) = known.map_or((attempt.0, 0), |known| (known.id, known.last));
        let mut new = Vec::new();
        for entry in &entries {
            if let Some(uuid) = entry.uuid() {
                let uuid = Key::of(Table::EntryIds).id(id).text(uuid);
                if self.txn.get(uuid.bytes()).is_some() {
                    continue;
                }
                self.txn.mark(&uuid);
            }
            new.push(entry.raw().get());
        }
        self.keep_texts(&Key::of(Table::Entries).id(id), last + 1, &new);
        last += new.len() as u64;
        self.txn.write(&place, &TranscriptRow { id, last, modified: self.now, attempt })?;
        Ok(Owned::Done(()))
    }

    /// A page of entries of a transcript with numbers after `after`, in order.
    pub(crate) fn entries(&self, key: SessionKey, after: u64) -> Result<Vec<StoredText>> {
        let known: Option<TranscriptRow> = self.txn.read(&place(&key))?;
        let Some(known) = known else { return Ok(Vec::new()) };
        self.texts(&Key::of(Table::Entries).id(known.id), after, usize::MAX, BYTES)
    }

    /// A page of transcripts, in the order of their keys' bytes.
    pub(crate) fn transcripts(
        &self,
        of: TranscriptsOf,
        after: Option<SessionKey>,
        limit: usize,
    ) -> Result<Vec<StoredTranscript>> {
        let prefix = beginning(Table::Transcripts, &of);
        self.page(&prefix, after.as_ref().map(place), limit.min(Page::MOST), |step, rest, row| {
            let row: Result<TranscriptRow> = parsed(row);
            let key = key_of(prefix.clone().followed_by(rest).bytes())?;
            step.readable(row.map(|row| Some(StoredTranscript { key, modified: row.modified })))
        })
    }

    /// Removes transcripts with their entries. `false`: some are left, so call it again. A call does a bounded amount of work.
    pub(crate) fn delete_transcripts(&mut self, of: TranscriptsOf) -> Result<bool> {
        let prefix = beginning(Table::Transcripts, &of);
        let seen = self.txn.under(&prefix, TRANSCRIPTS);
        for (rest, _) in &seen {
            let place = prefix.clone().followed_by(rest);
            // Read by itself: the commit expects that nobody has appended since. The entries of a transcript that cannot be read are
            // out of reach.
            if let Some(row) = self.readable(self.txn.read::<TranscriptRow>(&place))? {
                let removed = beginning(Table::RemovedTranscripts, &of).followed_by(rest).id(row.id);
                self.txn.mark(&removed);
            }
            self.txn.remove(&place);
        }
        if !seen.is_empty() {
            return Ok(false);
        }
        let prefix = beginning(Table::RemovedTranscripts, &of);
        let removed = self.txn.under(&prefix, TRANSCRIPTS);
        for (rest, _) in &removed {
            let id = last_id(rest)?;
            for table in [Table::Entries, Table::EntryIds] {
                if self.txn.remove_under(&Key::of(table).id(id), BATCH)?.is_none() {
                    return Ok(false);
                }
            }
            self.txn.remove(&prefix.clone().followed_by(rest));
        }
        Ok(removed.len() < TRANSCRIPTS)
    }
}

/// The beginning of the keys of a project's transcripts.
pub(crate) fn transcripts_of(project: &str) -> Key {
    beginning(Table::Transcripts, &TranscriptsOf::project(project))
}

/// The beginnings of the keys of a transcript's entries and of their ids, by the transcript's row.
pub(crate) fn entries_of(row: &[u8]) -> Result<[Key; 2]> {
    let TranscriptRow { id, .. } = parsed(row)?;
    Ok([Table::Entries, Table::EntryIds].map(|table| Key::of(table).id(id)))
}

/// The byte before the end of a key: a session's own transcript comes before those of its parts.
const OWN: &[u8] = &[1];
const PART: &[u8] = &[2];

/// The beginning of the keys of these transcripts in a table. For a part it is all of the key that names it.
fn beginning(table: Table, of: &TranscriptsOf) -> Key {
    let mut key = Key::of(table).text(&of.project);
    if let Some(session) = &of.session {
        key = key.text(session);
        if let Some(part) = &of.subpath {
            key = key.followed_by(PART).text(part);
        }
    }
    key
}

/// The key of a transcript's row.
fn place(key: &SessionKey) -> Key {
    let place = beginning(Table::Transcripts, &TranscriptsOf::key(key));
    if key.subpath.is_some() { place } else { place.followed_by(OWN) }
}

/// The key of a transcript, from that of its row.
fn key_of(place: &[u8]) -> Result<SessionKey> {
    let (project, rest) = text_and_rest(place.get(1..).unwrap_or_default())?;
    let (session, rest) = text_and_rest(rest)?;
    let key = SessionKey::new(project, session);
    match rest.strip_prefix(PART) {
        Some(part) => Ok(key.with_subpath(text_and_rest(part)?.0)),
        None => Ok(key),
    }
}
