//! The map under the rules: what is read of it, what is written to it, and maps that one thread uses.

pub(crate) mod key;
pub(crate) mod rows;
pub(crate) mod txn;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use serde::{Deserialize, Serialize};

use super::{BATCH, Result, Told};
use crate::error::BackendError;

/// A key and its value.
pub type Row = (Vec<u8>, Vec<u8>);

/// Rows that a request wants to read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Keys of single rows, of 2,000 bytes at most.
    pub keys: BTreeSet<Vec<u8>>,
    /// Ranges.
    pub ranges: BTreeSet<Range>,
}

impl Wanted {
    /// True for a few rows, such as those of a request to one session, and false for pages.
    pub(crate) fn is_short(&self) -> bool {
        self.keys.len() <= BATCH
            && self.ranges.len() <= 8
            && self.ranges.iter().all(|range| range.limit <= BATCH + 8)
    }
}

/// The first `limit` rows with `from <= key < to`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Range {
    /// The first key that may be in it.
    pub from: Vec<u8>,
    /// The first key behind it.
    pub to: Vec<u8>,
    /// The number of rows, at least 1.
    pub limit: usize,
    /// The part of each row that is read.
    pub part: Part,
}

/// The part of a range's rows that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Part {
    /// Keys and values.
    Values,
    /// Keys, and in place of each value its length in bytes, as eight bytes.
    Sizes,
}

impl Range {
    /// A row of the range as it is read.
    pub fn row(&self, key: &[u8], value: &[u8]) -> Row {
        let value = match self.part {
            Part::Values => value.to_vec(),
            Part::Sizes => (value.len() as u64).to_be_bytes().to_vec(),
        };
        (key.to_vec(), value)
    }
}

/// Rows that were read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rows {
    /// The single rows that are wanted. `None`: there is no row of the key.
    pub values: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// The rows of each range that is wanted, in the order of their keys.
    pub ranges: BTreeMap<Range, Vec<Row>>,
}

/// The writes of a request. `None`: the row is absent, or is removed.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Commit {
    /// The rows that the request has decided on. The commit writes nothing unless all of them are as they were. Counters may be among them.
    pub expected: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// The rows that it writes.
    pub writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// The counters that it adds to, after its writes. A counter is a row of eight bytes, a number as `i64::to_be_bytes` has it. A counter
    /// without a row is zero, and a counter of zero reads as one without a row. It does not read as less than zero; whether what was
    /// taken off below zero is missing later is left to the backend.
    pub additions: BTreeMap<Vec<u8>, i64>,
    /// The changes and transitions to tell once the commit is durable. They are not serialised.
    #[serde(skip)]
    pub told: Told,
}

/// The answer to a [`Commit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[must_use]
pub enum Committed {
    /// The commit is durable.
    Done,
    /// A row that was expected has changed, and nothing was written.
    Conflict,
}

impl Rows {
    pub(crate) fn len(&self) -> usize {
        self.values.len() + self.ranges.values().map(|rows| 1 + rows.len()).sum::<usize>()
    }

    /// Adds rows that were read later.
    pub(crate) fn add(&mut self, later: Rows) {
        self.values.extend(later.values);
        self.ranges.extend(later.ranges);
    }

    /// A row that was read, by itself or in a range. `None`: it was not read.
    fn value(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        if let Some(value) = self.values.get(key) {
            return Some(value.as_deref());
        }
        let in_range =
            |rows: &'_ Vec<Row>| rows.binary_search_by(|(found, _)| found.as_slice().cmp(key)).ok();
        let with_values = self.ranges.iter().filter(|(range, _)| range.part == Part::Values);
        with_values
            .map(|(_, rows)| rows)
            .find_map(|rows| in_range(rows).map(|at| Some(rows[at].1.as_slice())))
    }
}

/// The value of a counter. See [`Commit::additions`].
pub(crate) fn counter(value: Option<&[u8]>) -> Result<i64> {
    let Some(value) = value else { return Ok(0) };
    value.try_into().map(i64::from_be_bytes).map_err(BackendError::damaged)
}

/// An ordered map of bytes that one thread reads.
pub trait Map {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;
    /// The rows of a range, which is not empty.
    fn scan(&self, range: &Range) -> Result<Vec<Row>>;
}

/// A [`Map`] that one thread writes.
pub trait MapMut: Map {
    /// Writes a row.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;
    /// Removes a row, if it is there.
    fn delete(&mut self, key: &[u8]) -> Result<()>;
}

/// Reads rows of a map that nobody writes meanwhile.
///
/// # Errors
/// The errors of the map.
pub fn read_rows(map: &(impl Map + ?Sized), wanted: Wanted) -> Result<Rows> {
    let value = |key: Vec<u8>| map.get(&key).map(|value| (key, value));
    let values = wanted.keys.into_iter().map(value).collect::<Result<_>>()?;
    let rows = |range: Range| map.scan(&range).map(|rows| (range, rows));
    let ranges = wanted.ranges.into_iter().map(rows).collect::<Result<_>>()?;
    Ok(Rows { values, ranges })
}

/// Carries out a commit in a map that nobody else uses meanwhile. It tells nothing. After an error a part of it may be written.
///
/// # Errors
/// The errors of the map, and [`Damaged`](crate::BackendErrorKind::Damaged) for a counter that is none.
pub fn commit_rows(map: &mut (impl MapMut + ?Sized), commit: &Commit) -> Result<Committed> {
    let Some(sums) = sums(map, commit)? else { return Ok(Committed::Conflict) };
    write(map, commit, sums)?;
    Ok(Committed::Done)
}

/// Counters, each with what it is after a commit.
type Sums = Vec<(Vec<u8>, i64)>;

/// The counters after a commit. `None`: it is in conflict with the rows of the map.
pub(crate) fn sums(map: &(impl Map + ?Sized), commit: &Commit) -> Result<Option<Sums>> {
    for (key, value) in &commit.expected {
        if map.get(key)? != *value {
            return Ok(None);
        }
    }
    let sum = |(key, by): (&Vec<u8>, &i64)| {
        let before = match commit.writes.get(key) {
            Some(written) => counter(written.as_deref())?,
            None => counter(map.get(key)?.as_deref())?,
        };
        Ok((key.clone(), before.saturating_add(*by).max(0)))
    };
    commit.additions.iter().map(sum).collect::<Result<_>>().map(Some)
}

/// Writes the rows of a commit, and its counters.
pub(crate) fn write(
    map: &mut (impl MapMut + ?Sized),
    commit: &Commit,
    sums: Vec<(Vec<u8>, i64)>,
) -> Result<()> {
    for (key, value) in &commit.writes {
        match value {
            Some(value) => map.put(key, value)?,
            None => map.delete(key)?,
        }
    }
    for (key, sum) in sums {
        match sum {
            0 => map.delete(&key)?,
            sum => map.put(&key, &sum.to_be_bytes())?,
        }
    }
    Ok(())
}

/// A map in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MemoryMap(pub(crate) BTreeMap<Vec<u8>, Vec<u8>>);

impl Map for MemoryMap {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.0.get(key).cloned())
    }

    fn scan(&self, range: &Range) -> Result<Vec<Row>> {
        let bounds = (Bound::Included(range.from.as_slice()), Bound::Excluded(range.to.as_slice()));
        let rows = self.0.range::<[u8], _>(bounds).take(range.limit);
        Ok(rows.map(|(key, value)| range.row(key, value)).collect())
    }
}

impl MapMut for MemoryMap {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.0.remove(key);
        Ok(())
    }
}
