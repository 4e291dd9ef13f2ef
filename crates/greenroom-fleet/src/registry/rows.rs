//! The map of rows under the rules: reads at one moment, and writes that happen only if what was read still stands.
//!
//! ```text
//!  Wanted ──► rows at one moment ──► the request, a pure function of them ──► it writes nothing: its answer
//!    ▲  ▲                              │             │
//!    │  └──── and those that it lacks ─┘             ▼
//!    └──── conflict: a row has changed ◄────────── Commit ──► done: its answer
//! ```
//!
//! A request that lacks rows runs to its end as if they were absent, so that it names as many of them as it can; its answer and its
//! writes are dropped. Many rows are first read in parts, and then again at one moment.
//!
//! # Ranges
//!
//! A commit expects the values of single rows, and none of ranges. So where a request decides on a range as a whole, whoever adds a
//! row to it or removes one also changes a single row that the request reads: the record of the name for `Queue`, `Reminders` and
//! `Waiting`, the record of the prompt for its open questions, the counter of a node for the names that it owns. The lists by time
//! (`Due`, `Expiries`, `Deadlines`, `Ended`, `CommandDeadlines`) need no such row: a request acts on each entry by itself, and decides
//! on the record of the entry, which was read at the moment of the list.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::txn::Reads;
use super::{BATCH, Result, Step, Told};
use crate::error::BackendError;
use crate::id::Timestamp;

/// A key and its value.
pub type Row = (Vec<u8>, Vec<u8>);

/// The longest key, in bytes: a row of an index of PostgreSQL has room for it. Names, keys and tenants are parts of keys.
pub(crate) const LONGEST_KEY: usize = 2_000;

/// The connections that a request uses, so that no flood of requests of one kind keeps another kind waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lane {
    /// The renewal of a lease.
    Lease,
    /// Requests about nodes.
    Nodes,
    /// Entries of transcripts.
    Transcripts,
    /// Requests about names, prompts, questions, commands and tenants.
    Requests,
}

impl Lane {
    /// The lane of a request, by its name.
    pub(crate) fn of(request: &str) -> Self {
        match request {
            "renew" => Self::Lease,
            "join" | "ask_to_drain" | "leave" | "declare_dead" | "nodes" => Self::Nodes,
            "append_entries" | "entries" | "transcripts" | "delete_transcripts" => Self::Transcripts,
            _ => Self::Requests,
        }
    }
}

/// Rows that a request wants to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// The single rows that are wanted. `None`: there is no row of the key.
    pub values: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// The rows of each range that is wanted, in the order of their keys.
    pub ranges: BTreeMap<Range, Vec<Row>>,
}

/// The writes of a request. `None`: the row is absent, or is removed.
#[derive(Debug, Default)]
pub struct Commit {
    /// The rows that the request has decided on. The commit writes nothing unless all of them are as they were. Counters may be among them.
    pub expected: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// The rows that it writes.
    pub writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// The counters that it adds to, after its writes. A counter is a row of eight bytes, a number as `i64::to_be_bytes` has it. A counter
    /// without a row is zero, and a counter of zero reads as one without a row. It does not read as less than zero; whether what was
    /// taken off below zero is missing later is left to the backend.
    pub additions: BTreeMap<Vec<u8>, i64>,
    /// The changes and transitions to tell once the commit is durable.
    pub told: Told,
}

impl Commit {
    /// True for a commit that changes nothing.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.additions.is_empty()
    }
}

/// The answer to a [`Commit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Committed {
    /// The commit is durable.
    Done,
    /// A row that was expected has changed, and nothing was written.
    Conflict,
}

/// A run of a request over rows.
pub(crate) enum Attempt<T> {
    /// The rows are too few.
    Lacks {
        /// The rows that it lacks, as far as it knows.
        lacking: Wanted,
        /// All rows that it has read or lacks.
        all: Wanted,
    },
    /// It has read all its rows.
    Ends {
        answer: Result<T>,
        /// Its writes. `None`: it writes nothing.
        commit: Option<Commit>,
        /// True for a page: any row of it may have changed by the time that the caller reads it.
        is_page: bool,
        all: Wanted,
    },
}

pub(crate) fn try_on<T>(
    rows: &Rows,
    now: Timestamp,
    request: impl Fn(&mut Step<'_>) -> Result<T>,
) -> Attempt<T> {
    let mut step = Step::over(rows, now);
    let mut answer = request(&mut step);
    let (reads, commit) = step.finish_run();
    let Reads { lacking, all, only_looks, longest_key, .. } = reads;
    if longest_key > LONGEST_KEY {
        answer = Err(BackendError::too_long(longest_key, LONGEST_KEY));
    }
    match lacking == Wanted::default() {
        true => Attempt::Ends { answer, is_page: only_looks && commit.is_none(), commit, all },
        false => Attempt::Lacks { lacking, all },
    }
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
    pub(super) fn value(&self, key: &[u8]) -> Option<Option<&[u8]>> {
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

/// The key of a counter, and its value.
pub(crate) type Sum = (Vec<u8>, i64);

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

/// The counters after a commit. `None`: it is in conflict with the rows of the map.
pub(crate) fn sums(map: &(impl Map + ?Sized), commit: &Commit) -> Result<Option<Vec<Sum>>> {
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
pub(crate) fn write(map: &mut (impl MapMut + ?Sized), commit: &Commit, sums: Vec<Sum>) -> Result<()> {
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

/// Carries out a request in a map that nobody else uses.
pub(crate) fn run_alone<T>(
    map: &mut (impl MapMut + ?Sized),
    now: Timestamp,
    request: impl Fn(&mut Step<'_>) -> Result<T>,
) -> Result<(T, Told)> {
    let mut rows = Rows::default();
    loop {
        match try_on(&rows, now, &request) {
            // Nobody else writes, so all rows are of one moment.
            Attempt::Lacks { lacking, .. } => rows.add(read_rows(map, lacking)?),
            Attempt::Ends { answer, commit, .. } => {
                let (answer, made) = (answer?, commit.unwrap_or_default());
                match commit_rows(map, &made)? {
                    Committed::Done => return Ok((answer, made.told)),
                    Committed::Conflict => rows = Rows::default(),
                }
            }
        }
    }
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
        match self.0.entry(key.to_vec()) {
            Entry::Vacant(entry) => drop(entry.insert(value.to_vec())),
            Entry::Occupied(mut entry) => value.clone_into(entry.get_mut()),
        }
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.0.remove(key);
        Ok(())
    }
}
