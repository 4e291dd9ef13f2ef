//! A transaction over an ordered map of bytes, and the keys in it.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::BackendError;
use crate::id::{Name, NodeId, PromptId, QuestionId, Timestamp};

pub(crate) type Result<T> = std::result::Result<T, BackendError>;

/// A transaction over an ordered map of bytes. Requests check everything before they write, so a refused request leaves nothing
/// behind; after an error the whole transaction is dropped.
pub(crate) trait Txn {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;
    fn delete(&mut self, key: &[u8]) -> Result<()>;
    /// The first `limit` entries with `from <= key < to`.
    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>>;
}

/// The parts of the map. The byte is the first one of the part's keys and part of the file format.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum Table {
    /// Singles: the counter of the order, the sum of waiting prompts.
    Meta = 1,
    /// name → `NameRecord`
    Names = 2,
    /// name, order → prompt, while the prompt waits
    Queue = 3,
    /// prompt → `PromptRecord`
    Prompts = 4,
    /// prompt → `PromptContent`
    Contents = 5,
    /// prompt → `PromptOutcome`
    Outcomes = 6,
    /// prompt, seq → JSON
    Messages = 7,
    /// name, key → prompt
    Keys = 8,
    /// due, order → name, while the prompt waits
    Due = 9,
    /// expiry, prompt → nothing, while the prompt waits
    Expiries = 10,
    /// end, prompt → nothing
    Ended = 11,
    /// tenant → `TenantRecord`
    Tenants = 12,
    /// node → `NodeRecord`
    Nodes = 13,
    /// node, name → nothing
    Owned = 14,
    /// question → `QuestionRecord`
    Questions = 15,
    /// prompt, question → nothing
    QuestionsOfPrompt = 16,
    /// deadline, question → nothing, while the question is open
    Deadlines = 17,
    /// name → nothing, while it is being deleted
    Deleting = 18,
}

/// A key: the table's byte, then parts that sort as their values do.
pub(crate) struct Key(Vec<u8>);

impl Key {
    pub(crate) fn of(table: Table) -> Self {
        Self(vec![table as u8])
    }

    /// A text and an end mark. NUL bytes in it are escaped, so that no text is the beginning of another one's key.
    pub(crate) fn text(mut self, text: &str) -> Self {
        for byte in text.bytes() {
            self.0.push(byte);
            if byte == 0 {
                self.0.push(0xff);
            }
        }
        self.0.extend([0, 0]);
        self
    }

    pub(crate) fn name(self, name: &Name) -> Self {
        self.text(name.as_str())
    }

    pub(crate) fn number(mut self, number: u64) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub(crate) fn time(self, time: Timestamp) -> Self {
        self.number(time.0)
    }

    fn id(mut self, id: uuid::Uuid) -> Self {
        self.0.extend(id.as_bytes());
        self
    }

    pub(crate) fn prompt(self, id: PromptId) -> Self {
        self.id(id.0)
    }

    pub(crate) fn question(self, id: QuestionId) -> Self {
        self.id(id.0)
    }

    pub(crate) fn node(self, id: NodeId) -> Self {
        self.id(id.0)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The first key behind all keys that begin with this one.
    fn end(&self) -> Vec<u8> {
        let mut end = self.0.clone();
        while let Some(last) = end.pop() {
            if last < 0xff {
                end.push(last + 1);
                return end;
            }
        }
        end
    }
}

impl dyn Txn + '_ {
    pub(crate) fn read<T: DeserializeOwned>(&self, key: &Key) -> Result<Option<T>> {
        let Some(bytes) = self.get(key.bytes())? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(BackendError::damaged)
    }

    pub(crate) fn write<T: Serialize>(&mut self, key: &Key, value: &T) -> Result<()> {
        let bytes = serde_json::to_vec(value).map_err(BackendError::damaged)?;
        self.put(key.bytes(), &bytes)
    }

    pub(crate) fn mark(&mut self, key: &Key) -> Result<()> {
        self.put(key.bytes(), &[])
    }

    pub(crate) fn remove(&mut self, key: &Key) -> Result<()> {
        self.delete(key.bytes())
    }

    /// The first `limit` entries whose keys begin with `prefix`. The keys come without the prefix.
    pub(crate) fn under(&self, prefix: &Key, limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.between(prefix, prefix.bytes(), &prefix.end(), limit)
    }

    /// The first `limit` entries under `prefix` that come after all keys that begin with `after`.
    pub(crate) fn after(&self, prefix: &Key, after: &Key, limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.between(prefix, &after.end(), &prefix.end(), limit)
    }

    /// The first `limit` entries under `prefix` up to `last`, all keys that begin with `last` included.
    pub(crate) fn up_to(&self, prefix: &Key, last: &Key, limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.between(prefix, prefix.bytes(), &last.end(), limit)
    }

    fn between(&self, prefix: &Key, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        if from >= to {
            return Ok(Vec::new());
        }
        let skip = prefix.bytes().len();
        Ok(self
            .scan(from, to, limit)?
            .into_iter()
            .map(|(key, value)| (key[skip..].to_vec(), value))
            .collect())
    }
}

/// The id at the end of a key.
pub(crate) fn last_id(key: &[u8]) -> Result<uuid::Uuid> {
    let bytes = key.len().checked_sub(16).map(|start| &key[start..]).unwrap_or_default();
    uuid::Uuid::from_slice(bytes).map_err(BackendError::damaged)
}

/// The text at the beginning of a key, written by [`Key::text`].
pub(crate) fn text(key: &[u8]) -> Result<Name> {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.iter().copied();
    while let Some(byte) = rest.next() {
        match byte {
            // NUL is followed by 0xff in the text, and by NUL at its end.
            0 if rest.next() == Some(0) => break,
            byte => bytes.push(byte),
        }
    }
    let text = String::from_utf8(bytes).map_err(BackendError::damaged)?;
    Name::new(text).map_err(BackendError::damaged)
}
