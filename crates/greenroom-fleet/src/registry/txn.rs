//! A transaction over an ordered map of bytes, and the keys in it.

use std::collections::BTreeMap;
use std::ops::Bound;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{BackendError, BackendErrorKind};
use crate::id::{CommandId, Name, NodeId, PromptId, QuestionId, Timestamp};

pub(crate) type Result<T> = std::result::Result<T, BackendError>;

/// A transaction over an ordered map of bytes. Requests check everything before they write, so a refused request leaves nothing
/// behind. A request with an error leaves nothing behind either: it runs over a [`Draft`].
pub(crate) trait Txn {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;
    fn delete(&mut self, key: &[u8]) -> Result<()>;
    /// The first `limit` entries with `from <= key < to`.
    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>>;
}

/// A transaction over a map in memory, which takes each write at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MapTxn(pub(crate) BTreeMap<Vec<u8>, Vec<u8>>);

impl Txn for MapTxn {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.0.get(key).cloned())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.0.remove(key);
        Ok(())
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let rows = self.0.range(from.to_vec()..to.to_vec()).take(limit);
        Ok(rows.map(|(key, value)| (key.clone(), value.clone())).collect())
    }
}

/// The writes of one request over a transaction. They reach the transaction together, after the request has succeeded, or not at
/// all.
pub(crate) struct Draft<'a> {
    under: &'a mut dyn Txn,
    /// `None`: the key is deleted.
    writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl<'a> Draft<'a> {
    pub(crate) fn over(under: &'a mut dyn Txn) -> Self {
        Self { under, writes: BTreeMap::new() }
    }

    /// False if the request has written nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Writes everything to the transaction.
    pub(crate) fn write(self) -> Result<()> {
        for (key, value) in self.writes {
            match value {
                Some(value) => self.under.put(&key, &value)?,
                None => self.under.delete(&key)?,
            }
        }
        Ok(())
    }
}

impl Txn for Draft<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.writes.get(key).map_or_else(|| self.under.get(key), |value| Ok(value.clone()))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.writes.insert(key.to_vec(), Some(value.to_vec()));
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.writes.insert(key.to_vec(), None);
        Ok(())
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        if from >= to {
            return Ok(Vec::new());
        }
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        let written: Vec<_> = self.writes.range::<[u8], _>(bounds).collect();
        // Each written key hides at most one row.
        let rows = self.under.scan(from, to, limit.saturating_add(written.len()))?;
        if written.is_empty() {
            return Ok(rows);
        }
        let mut merged: BTreeMap<_, _> = rows.into_iter().collect();
        for (key, value) in written {
            match value {
                Some(value) => merged.insert(key.clone(), value.clone()),
                None => merged.remove(key),
            };
        }
        Ok(merged.into_iter().take(limit).collect())
    }
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
    /// prompt, number of the last message in the row → messages
    Messages = 7,
    /// name, key → prompt
    Keys = 8,
    /// due, order → prompt, while the prompt waits for its moment
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
    /// prompt, question → nothing, while the question is open
    QuestionsOfPrompt = 16,
    /// deadline, question → nothing, while the question is open
    Deadlines = 17,
    /// name → nothing, while it is being deleted
    Deleting = 18,
    /// name, term → `ProcessRecord`
    Processes = 19,
    /// prompt, question → nothing, once the question is decided
    DecidedOfPrompt = 20,
    /// name, order → prompt, while the prompt waits and may begin
    Ready = 21,
    /// tenant, order of its first prompt that may begin → name, while the name can run
    Waiting = 22,
    /// name → order, by which it stands in `Waiting`
    WaitingPlace = 23,
    /// command → `CommandRecord`
    Commands = 24,
    /// node, name, command → nothing, until the command has ended
    CommandsOfNode = 25,
    /// deadline, command → nothing
    CommandDeadlines = 26,
}

/// True for keys of a [`Table`]. An import refuses all others.
pub(crate) fn is_key(key: &[u8]) -> bool {
    let tables = Table::Meta as u8..=Table::CommandDeadlines as u8;
    key.first().is_some_and(|table| tables.contains(table))
}

/// A key: the table's byte, then parts that sort as their values do.
#[derive(Clone)]
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

    pub(crate) fn command(self, id: CommandId) -> Self {
        self.id(id.0)
    }

    pub(crate) fn node(self, id: NodeId) -> Self {
        self.id(id.0)
    }

    /// The rest of a key, as a range gives it.
    pub(crate) fn followed_by(mut self, rest: &[u8]) -> Self {
        self.0.extend(rest);
        self
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

/// The nesting of a row that can be read again: `serde_json` reads no more.
const MAX_DEPTH: usize = 127;

/// How deep objects and arrays are nested in a JSON text.
fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut quoted) = (0_usize, 0, false);
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => quoted = !quoted,
            b'\\' => drop(bytes.next()),
            b'{' | b'[' if !quoted => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// A value as JSON that can be read again.
pub(crate) fn checked_json<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    let bytes = serde_json::to_vec(value).map_err(BackendError::damaged)?;
    if depth(&bytes) > MAX_DEPTH {
        return Err(BackendError::too_deep(MAX_DEPTH));
    }
    Ok(bytes)
}

/// A value as it is read after it was written: a float may differ in its last digit, and an optional null is none. A request
/// that is repeated compares this with the row.
pub(crate) fn as_stored<T: Serialize + DeserializeOwned>(value: &T) -> Result<T> {
    let bytes = serde_json::to_vec(value).map_err(BackendError::damaged)?;
    serde_json::from_slice(&bytes).map_err(BackendError::damaged)
}

impl dyn Txn + '_ {
    pub(crate) fn read<T: DeserializeOwned>(&self, key: &Key) -> Result<Option<T>> {
        let Some(bytes) = self.get(key.bytes())? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(BackendError::damaged)
    }

    pub(crate) fn write<T: Serialize>(&mut self, key: &Key, value: &T) -> Result<()> {
        self.put(key.bytes(), &checked_json(value)?)
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

    /// Removes the first `limit` entries whose keys begin with `prefix`. Answers with their number.
    pub(crate) fn remove_under(&mut self, prefix: &Key, limit: usize) -> Result<usize> {
        let rows = self.under(prefix, limit)?;
        for (key, _) in &rows {
            self.delete(&[prefix.bytes(), key].concat())?;
        }
        Ok(rows.len())
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

/// Passes over a record that cannot be read, so that it hides no other record of a list.
pub(crate) fn readable<T>(record: Result<T>) -> Option<Result<T>> {
    match record {
        Err(error) if error.kind() == BackendErrorKind::Damaged => {
            tracing::error!(%error, "a record of the fleet is passed over");
            None
        }
        record => Some(record),
    }
}

/// The id at the end of a key.
pub(crate) fn last_id(key: &[u8]) -> Result<uuid::Uuid> {
    let bytes = key.len().checked_sub(16).map(|start| &key[start..]).unwrap_or_default();
    uuid::Uuid::from_slice(bytes).map_err(BackendError::damaged)
}

/// The text at the beginning of a key, written by [`Key::text`], and what follows it.
pub(crate) fn text_and_rest(key: &[u8]) -> Result<(String, &[u8])> {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.iter();
    while let Some(byte) = rest.next() {
        match *byte {
            // NUL is followed by 0xff in the text, and by NUL at its end.
            0 if rest.next() == Some(&0) => break,
            byte => bytes.push(byte),
        }
    }
    Ok((String::from_utf8(bytes).map_err(BackendError::damaged)?, rest.as_slice()))
}

/// The name at the beginning of a key, written by [`Key::name`].
pub(crate) fn text(key: &[u8]) -> Result<Name> {
    Name::new(text_and_rest(key)?.0).map_err(BackendError::damaged)
}

/// A key's last part, written by [`Key::number`].
pub(crate) fn number(part: &[u8]) -> Result<u64> {
    part.try_into().map(u64::from_be_bytes).map_err(BackendError::damaged)
}
