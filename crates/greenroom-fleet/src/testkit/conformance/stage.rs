//! The stage of a check: a store that two processes may have open, and shorthand for reads and commits.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use crate::backend::{Backend, Commit, Committed, Lane, Part, Range, Row, Rows, Wanted};
use crate::error::BackendError;
use crate::registry::counter;

/// The answer to a read or a commit.
pub(super) fn answered<T>(answer: Result<T, BackendError>) -> T {
    answer.unwrap_or_else(|error| panic!("a read or a commit failed: {error}"))
}

/// Fails unless both are equal.
pub(super) fn same<T: PartialEq + Debug>(what: &str, seen: T, expected: T) {
    assert!(seen == expected, "{what}: {seen:?} in place of {expected:?}");
}

/// A store.
pub(super) struct Stage {
    pub(super) backend: Arc<dyn Backend>,
    /// The store as another process has it open, if there can be another process.
    pub(super) other: Arc<dyn Backend>,
}

impl Stage {
    /// Reads a row.
    pub(super) async fn row(&self, key: &[u8]) -> Option<Vec<u8>> {
        let row = self.read([key], []).await.values.remove(key);
        row.unwrap_or_else(|| panic!("the answer has no word on the row {key:?}"))
    }

    /// Reads a counter.
    pub(super) async fn counter(&self, key: &[u8]) -> i64 {
        let value = self.row(key).await;
        counter(value.as_deref()).unwrap_or_else(|_| panic!("a counter is {value:?}"))
    }

    /// Reads a range.
    pub(super) async fn range(&self, range: Range) -> Vec<Row> {
        let rows = self.read([], [range.clone()]).await.ranges.remove(&range);
        rows.unwrap_or_else(|| panic!("the answer has no word on {range:?}"))
    }

    pub(super) async fn read<'a>(
        &self,
        keys: impl IntoIterator<Item = &'a [u8]>,
        ranges: impl IntoIterator<Item = Range>,
    ) -> Rows {
        let keys = keys.into_iter().map(<[u8]>::to_vec).collect();
        let wanted = Wanted { keys, ranges: ranges.into_iter().collect() };
        answered(self.backend.read(Lane::Requests, wanted).await)
    }

    /// Writes rows without a condition.
    pub(super) async fn write<'a>(&self, rows: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) {
        let writes = rows.into_iter().map(|(key, value)| (key.to_vec(), Some(value.to_vec()))).collect();
        self.done(Commit { writes, ..Commit::default() }).await;
    }

    /// A commit that is in conflict with nothing.
    pub(super) async fn done(&self, commit: Commit) {
        same("a commit without a conflict", self.commit(commit).await, Committed::Done);
    }

    pub(super) async fn commit(&self, commit: Commit) -> Committed {
        answered(self.backend.commit(Lane::Requests, commit).await)
    }
}

/// All rows from one key to another one.
pub(super) fn between(from: &[u8], to: &[u8], limit: usize) -> Range {
    Range { from: from.to_vec(), to: to.to_vec(), limit, part: Part::Values }
}

/// A counter of a tenant.
pub(super) const COUNTER: &[u8] = b"\x1da";

/// A commit that adds to a counter.
pub(super) fn adds(key: &[u8], by: i64) -> Commit {
    Commit { additions: BTreeMap::from([(key.to_vec(), by)]), ..Commit::default() }
}

/// A commit that expects rows and writes others.
pub(super) fn commit<const E: usize, const W: usize>(
    expected: [(&[u8], Option<&[u8]>); E],
    writes: [(&[u8], Option<&[u8]>); W],
) -> Commit {
    Commit { expected: rows(expected), writes: rows(writes), ..Commit::default() }
}

/// A list of rows, as a commit has them.
pub(super) fn rows<const N: usize>(rows: [(&[u8], Option<&[u8]>); N]) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    rows.into_iter().map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec))).collect()
}
