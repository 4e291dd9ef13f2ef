//! The view that a request has of the map: the rows that were read for it, and its own writes in place of them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::key::{Key, Table, number};
use super::{Commit, Part, Range, Row, Rows, Wanted, counter};
use crate::error::BackendError;
use crate::id::Timestamp;
use crate::registry::{Result, Told};

/// Bytes of rows that one request removes by [`Txn::remove_under`]. The last row may have more.
const REMOVED_BYTES: u64 = 8 << 20;

/// The rows of a request and its writes. Requests check everything before they write, so a refused request leaves nothing behind. A
/// request with an error leaves nothing behind either.
pub(crate) struct Txn<'a> {
    rows: &'a Rows,
    /// The keys and ranges that the request has read or lacks.
    reads: RefCell<Reads>,
    /// `None`: the row is removed.
    writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    additions: BTreeMap<Vec<u8>, i64>,
    /// Bytes of the rows that [`remove_under`](Self::remove_under) has removed.
    removed: u64,
}

/// The keys and ranges that a request has read or lacks.
#[derive(Default)]
pub(crate) struct Reads {
    /// Rows that the commit expects unchanged.
    decided_on: BTreeSet<Vec<u8>>,
    /// The request decides nothing on what it reads now.
    pub(crate) only_looks: bool,
    /// The length of the longest key of a row that it reads or writes.
    pub(crate) longest_key: usize,
    /// All rows that it has read or lacks.
    pub(crate) all: Wanted,
    pub(crate) lacking: Wanted,
}

impl<'a> Txn<'a> {
    pub(crate) fn over(rows: &'a Rows) -> Self {
        let (reads, writes, additions) = Default::default();
        Self { rows, reads, writes, additions, removed: 0 }
    }

    /// Ends the request. The commit is `None` if the request has written nothing.
    pub(crate) fn end(self, told: Told) -> (Reads, Option<Commit>) {
        let reads = self.reads.into_inner();
        let (writes, mut additions) = (self.writes, self.additions);
        additions.retain(|_, by| *by != 0);
        if writes.is_empty() && additions.is_empty() {
            return (reads, None);
        }
        let value = |key: &Vec<u8>| (key.clone(), self.rows.value(key).flatten().map(<[u8]>::to_vec));
        let expected = reads.decided_on.iter().map(value).collect();
        (reads, Some(Commit { expected, writes, additions, told }))
    }

    /// True while the request has named rows that were not read for it.
    pub(crate) fn lacks_rows(&self) -> bool {
        self.reads.borrow().lacking != Wanted::default()
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        if let Some(written) = self.writes.get(key) {
            return written.clone();
        }
        let value = self.look(key)?;
        let mut reads = self.reads.borrow_mut();
        if !reads.only_looks {
            reads.decided_on.insert(key.to_vec());
        }
        value.map(<[u8]>::to_vec)
    }

    /// A row that was read for the request. `None`: it lacks the row.
    fn look(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        let (value, mut reads) = (self.rows.value(key), self.reads.borrow_mut());
        reads.longest_key = reads.longest_key.max(key.len());
        reads.all.keys.insert(key.to_vec());
        if value.is_none() {
            reads.lacking.keys.insert(key.to_vec());
        }
        value
    }

    /// From now on the request reads for its answer or for a hint: its commit does not expect these rows unchanged. Returns whether it did so
    /// before.
    pub(crate) fn only_look(&self, only_looks: bool) -> bool {
        std::mem::replace(&mut self.reads.borrow_mut().only_looks, only_looks)
    }

    /// Names a row that the request will want. It is read together with the others that it lacks.
    pub(crate) fn want(&self, key: &Key) {
        self.look(key.bytes());
    }

    /// Names the first rows of a range, as [`under`](Self::under) reads them later.
    pub(crate) fn want_under(&self, prefix: &Key, limit: usize) {
        self.under(prefix, limit);
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) {
        let reads = self.reads.get_mut();
        reads.longest_key = reads.longest_key.max(key.len());
        self.writes.insert(key.to_vec(), Some(value.to_vec()));
    }

    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.writes.insert(key.to_vec(), None);
    }

    /// The first `limit` rows with `from <= key < to`.
    pub(crate) fn scan(&self, part: Part, from: &[u8], to: &[u8], limit: usize) -> Vec<Row> {
        if from >= to || limit == 0 {
            return Vec::new();
        }
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        let written: Vec<_> = self.writes.range::<[u8], _>(bounds).collect();
        // Each written key hides at most one row. Powers of two: a request that reads the beginning of a range again after each of its
        // writes to it reads a few ranges, and not a longer one each time.
        let limit_under = match written.len() {
            0 => limit,
            written => limit.saturating_add(written).checked_next_power_of_two().unwrap_or(usize::MAX),
        };
        let range = Range { from: from.to_vec(), to: to.to_vec(), limit: limit_under, part };
        let (rows, mut reads) = (self.rows.ranges.get(&range).cloned(), self.reads.borrow_mut());
        reads.all.ranges.insert(range.clone());
        let rows = rows.unwrap_or_else(|| {
            reads.lacking.ranges.insert(range.clone());
            Vec::new()
        });
        if written.is_empty() {
            return rows;
        }
        let mut merged: BTreeMap<_, _> = rows.into_iter().collect();
        for (key, value) in written {
            match value {
                Some(value) => merged.extend([range.row(key, value)]),
                None => drop(merged.remove(key)),
            };
        }
        merged.into_iter().take(limit).collect()
    }

    /// Adds to a counter. Requests that add to the same counter are not in each other's way.
    pub(crate) fn add(&mut self, key: &Key, by: i64) {
        *self.additions.entry(key.bytes().to_vec()).or_default() += by;
    }

    /// A counter, for a bound: requests that run at the same time may be over it together.
    pub(crate) fn count(&self, key: &Key) -> Result<u64> {
        let key = key.bytes();
        let before = match self.writes.get(key) {
            Some(written) => counter(written.as_deref())?,
            None => counter(self.look(key).flatten())?,
        };
        let sum = before.saturating_add(self.additions.get(key).copied().unwrap_or_default());
        Ok(u64::try_from(sum).unwrap_or_default())
    }

    /// A counter, for a decision: the commit expects that nobody has added to it.
    pub(crate) fn exact_count(&self, key: &Key) -> Result<u64> {
        self.get(key.bytes());
        self.count(key)
    }

    pub(crate) fn read<T: DeserializeOwned>(&self, key: &Key) -> Result<Option<T>> {
        let Some(bytes) = self.get(key.bytes()) else { return Ok(None) };
        parsed(&bytes).map(Some)
    }

    /// Writes a value as JSON that can be read again.
    pub(crate) fn write<T: Serialize>(&mut self, key: &Key, value: &T) -> Result<()> {
        self.put(key.bytes(), to_json(value)?.as_bytes());
        Ok(())
    }

    pub(crate) fn mark(&mut self, key: &Key) {
        self.put(key.bytes(), &[]);
    }

    pub(crate) fn remove(&mut self, key: &Key) {
        self.delete(key.bytes());
    }

    /// The first `limit` entries whose keys begin with `prefix`. The keys come without the prefix.
    pub(crate) fn under(&self, prefix: &Key, limit: usize) -> Vec<Row> {
        self.between(prefix, prefix.bytes(), &prefix.end(), limit)
    }

    /// The first `limit` entries under `prefix` that come after all keys that begin with `after`.
    pub(crate) fn after(&self, prefix: &Key, after: &Key, limit: usize) -> Vec<Row> {
        self.between(prefix, prefix.bytes().max(&after.end()), &prefix.end(), limit)
    }

    /// The first `limit` entries of a list by time whose moments come before `end`, with their whole keys.
    pub(crate) fn before(&self, list: Table, end: Timestamp, limit: usize) -> Vec<Row> {
        let list = Key::of(list);
        self.scan(Part::Values, list.bytes(), list.clone().time(end).bytes(), limit)
    }

    /// The first rows under `prefix` after all keys that begin with `after`: up to `limit`, and up to the one that reaches this many bytes.
    pub(crate) fn after_within(
        &self,
        prefix: &Key,
        after: &Key,
        limit: usize,
        bytes: u64,
    ) -> Result<Vec<Row>> {
        let (mut read, mut rows) = (0, 0);
        for (_, size) in self.scan(Part::Sizes, &after.end(), &prefix.end(), limit) {
            if read >= bytes {
                break;
            }
            (read, rows) = (read + number(&size)?, rows + 1);
        }
        Ok(self.after(prefix, after, rows))
    }

    /// Removes the first rows whose keys begin with `prefix`: up to `limit`, and up to the one with which the request has removed
    /// [`REMOVED_BYTES`]. Answers with their number. `None`: there may be more.
    pub(crate) fn remove_under(&mut self, prefix: &Key, limit: usize) -> Result<Option<usize>> {
        let rows = self.scan(Part::Sizes, prefix.bytes(), &prefix.end(), limit);
        for (key, size) in &rows {
            if self.removed >= REMOVED_BYTES {
                return Ok(None);
            }
            self.removed += number(size)?;
            self.delete(key);
        }
        Ok((rows.len() < limit).then_some(rows.len()))
    }

    fn between(&self, prefix: &Key, from: &[u8], to: &[u8], limit: usize) -> Vec<Row> {
        let (rows, skip) = (self.scan(Part::Values, from, to, limit).into_iter(), prefix.bytes().len());
        rows.map(|(key, value)| (key[skip..].to_vec(), value)).collect()
    }
}

/// The nesting of a row that can be read again: `serde_json` reads no more.
const MAX_DEPTH: usize = 127;

/// A value as JSON that can be read again.
pub(crate) fn to_json<T: Serialize>(value: &T) -> Result<String> {
    let json = serde_json::to_string(value).map_err(BackendError::damaged)?;
    if depth(&json) > MAX_DEPTH {
        return Err(BackendError::too_deep(MAX_DEPTH));
    }
    Ok(json)
}

/// How deep objects and arrays are nested in a JSON text.
pub(crate) fn depth(json: &str) -> usize {
    let (mut depth, mut deepest, mut quoted) = (0_usize, 0, false);
    let mut bytes = json.bytes();
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

/// A value as it is read after it was written: a float may differ in its last digit, and an optional null is none. A request
/// that is repeated compares this with the row.
pub(crate) fn as_stored<T: Serialize + DeserializeOwned>(value: &T) -> Result<T> {
    let bytes = serde_json::to_vec(value).map_err(BackendError::damaged)?;
    parsed(&bytes)
}

/// The value of a row.
pub(crate) fn parsed<T: DeserializeOwned>(row: &[u8]) -> Result<T> {
    serde_json::from_slice(row).map_err(BackendError::damaged)
}
