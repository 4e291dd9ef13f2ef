//! Reads and commits, each of them one statement.

use std::collections::BTreeMap;

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Encode, Postgres, Row as _, Type};

use super::error;
use crate::id::Timestamp;
use crate::registry::{Commit, Part, Range, Result, Row, Rows, Wanted, counter, is_counter};

/// The place of the moment among the rows of an answer, and of rows that are wanted by themselves. Those of ranges have the number of
/// their range.
const MOMENT: i32 = -2;
const SINGLE: i32 = -1;

const READ: &str = "
    SELECT -2 AS place, ''::bytea AS key, int8send(now_ms()) AS value
    UNION ALL SELECT -1, key, value FROM rows WHERE key = ANY ($1)
    UNION ALL SELECT -1, key, int8send(sum(value)::bigint) FROM counters WHERE key = ANY ($2) GROUP BY key
    UNION ALL SELECT w.place, r.key, r.value
    FROM unnest($3::integer[], $4::bytea[], $5::bytea[], $6::bigint[], $7::boolean[]) AS w(place, first, behind, most, sizes)
    CROSS JOIN LATERAL (
        SELECT key, CASE WHEN w.sizes THEN int8send(length(value)) ELSE value END AS value
        FROM rows WHERE key >= w.first AND key < w.behind ORDER BY key LIMIT w.most
    ) AS r";

const COMMIT: &str = "CALL fleet_commit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, NULL)";

/// A statement with what it is asked.
pub(super) type Statement = Query<'static, Postgres, PgArguments>;

pub(super) fn read(wanted: &Wanted) -> Statement {
    let (counters, keys): (Vec<_>, Vec<_>) = wanted.keys.iter().cloned().partition(|key| is_counter(key));
    let ranges = || wanted.ranges.iter();
    sqlx::query(READ)
        .bind(keys)
        .bind(counters)
        .bind((0..).take(wanted.ranges.len()).collect::<Vec<i32>>())
        .bind(ranges().map(|range| range.from.clone()).collect::<Vec<_>>())
        .bind(ranges().map(|range| range.to.clone()).collect::<Vec<_>>())
        .bind(ranges().map(|range| i64::try_from(range.limit).unwrap_or(i64::MAX)).collect::<Vec<_>>())
        .bind(ranges().map(|range| range.part == Part::Sizes).collect::<Vec<_>>())
}

/// The moment and the rows of an answer.
pub(super) fn rows(answer: Vec<PgRow>, wanted: Wanted) -> Result<(Timestamp, Rows)> {
    let mut now = Timestamp::default();
    let mut values: BTreeMap<_, _> = wanted.keys.into_iter().map(|key| (key, None)).collect();
    let mut ranges: Vec<(Range, Vec<Row>)> =
        wanted.ranges.into_iter().map(|range| (range, Vec::new())).collect();
    for row in answer {
        let column = || Ok::<_, sqlx::Error>((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
        let (place, key, value): (i32, Vec<u8>, Vec<u8>) = column().map_err(error::of_request)?;
        match place {
            MOMENT => now = Timestamp(counter(Some(&value))?.unsigned_abs()),
            // A counter whose parts make zero reads as one without a row.
            SINGLE if is_counter(&key) && counter(Some(&value))? <= 0 => {}
            SINGLE => drop(values.insert(key, Some(value))),
            place => {
                let range = usize::try_from(place).ok().and_then(|place| ranges.get_mut(place));
                range.ok_or_else(|| error::of_request(sqlx::Error::RowNotFound))?.1.push((key, value));
            }
        }
    }
    for (_, rows) in &mut ranges {
        rows.sort_unstable();
    }
    Ok((now, Rows { values, ranges: ranges.into_iter().collect() }))
}

/// `commit_rows` in the schema says what it does with each of the lists.
pub(super) fn commit(commit: Commit) -> Result<Statement> {
    let Commit { expected, mut writes, additions, told: _ } = commit;
    let (mut kept, mut changed, mut put) = <(Vec<Row>, Vec<Row>, Vec<Row>)>::default();
    let (mut fresh, mut removed, mut counted, mut cleared) = <(Vec<_>, Vec<_>, Vec<_>, Vec<_>)>::default();
    let mut added = BTreeMap::new();
    for (key, before) in expected {
        match before {
            before if is_counter(&key) => counted.push((key, counter(before.as_deref())?)),
            None => fresh.push((key.clone(), writes.remove(&key).flatten())),
            Some(before) if writes.get(&key).is_some_and(|after| after.as_ref() != Some(&before)) => {
                changed.push((key, before));
            }
            Some(before) => {
                writes.remove(&key);
                kept.push((key, before));
            }
        }
    }
    for (key, value) in writes {
        match value {
            value if is_counter(&key) => {
                added.insert(key.clone(), counter(value.as_deref())?);
                cleared.push(key);
            }
            Some(value) => put.push((key, value)),
            None => removed.push(key),
        }
    }
    for (key, by) in additions {
        // A counter that is written as well begins there.
        let sum = added.get(&key).map_or(by, |begun: &i64| (begun + by).max(0));
        added.insert(key, sum);
    }
    // A counter of zero has no part.
    added.retain(|_, by| *by != 0);
    let statement = pairs(pairs(sqlx::query(COMMIT), kept), changed);
    let statement = pairs(pairs(statement, fresh), put).bind(removed);
    Ok(pairs(pairs(statement, counted).bind(cleared), added))
}

/// Adds two lists to a statement: keys, and a value for each.
fn pairs<V>(statement: Statement, pairs: impl IntoIterator<Item = (Vec<u8>, V)>) -> Statement
where
    Vec<V>: Encode<'static, Postgres> + Type<Postgres> + 'static,
{
    let (keys, values): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    statement.bind(keys).bind(values)
}
