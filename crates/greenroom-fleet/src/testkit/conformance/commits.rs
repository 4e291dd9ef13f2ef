//! Promises about one commit after the other.

use std::collections::BTreeMap;

use tokio::sync::broadcast::error::TryRecvError;

use super::Check;
use super::stage::{Stage, answered, rows, same};
use crate::backend::{Commit, Committed, Lane, Requests, Told, Wanted};
use crate::event::FleetEvent;
use crate::id::{AttemptId, Name, PromptId};
use crate::request::Change;

pub(super) const PROMISES: &[(&str, Check)] = &[
    ("a commit that expects what is there happens", |stage| Box::pin(expected(stage))),
    ("a commit that is in conflict writes nothing", |stage| Box::pin(in_conflict(stage))),
    ("counters are added to, and do not fall below zero", |stage| Box::pin(counters(stage))),
    ("a counter that has changed is a conflict", |stage| Box::pin(expected_counters(stage))),
    ("a commit is told before its answer, and one in conflict is not told", |stage| Box::pin(told(stage))),
    ("another process reads what was answered, and hears of it", |stage| Box::pin(elsewhere(stage))),
    ("the clock does not stand still", |stage| Box::pin(clock(stage))),
];

/// A counter of a tenant.
const COUNTER: &[u8] = b"\x1da";

fn counter(value: i64) -> Option<Vec<u8>> {
    Some(value.to_be_bytes().to_vec())
}

async fn expected(stage: &Stage) {
    stage.write([(b"\x02a".as_slice(), b"1".as_slice()), (b"\x02b", b"2")]).await;
    let commit = Commit {
        expected: rows([(b"\x02a", Some(b"1")), (b"\x02b", Some(b"2")), (b"\x02c", None), (b"\x02d", None)]),
        writes: rows([(b"\x02a", Some(b"3")), (b"\x02c", Some(b"4")), (b"\x02e", Some(b"5"))]),
        ..Commit::default()
    };
    stage.done(commit).await;
    for (key, value) in [
        ("\x02a", Some("3")),
        ("\x02b", Some("2")),
        ("\x02c", Some("4")),
        ("\x02d", None),
        ("\x02e", Some("5")),
    ] {
        same("a row after the commit", stage.row(key.as_bytes()).await, value.map(|value| value.into()));
    }
    // An equal value is the expected one, also if the row was written meanwhile.
    stage.write([(b"\x02b".as_slice(), b"other".as_slice())]).await;
    stage.write([(b"\x02b".as_slice(), b"2".as_slice())]).await;
    let removes = Commit {
        expected: rows([(b"\x02b", Some(b"2"))]),
        writes: rows([(b"\x02b", None)]),
        ..Commit::default()
    };
    stage.done(removes).await;
    same("a row that was removed", stage.row(b"\x02b").await, None);
}

async fn in_conflict(stage: &Stage) {
    stage.write([(b"\x02a".as_slice(), b"1".as_slice()), (b"\x02b", b"2")]).await;
    let wrong = [
        ("another value", rows([(b"\x02a", Some(b"0"))])),
        ("another value of a row that is written", rows([(b"\x02b", Some(b"0"))])),
        ("a row that is there", rows([(b"\x02a", None)])),
        ("a row that is there and written", rows([(b"\x02b", None)])),
        ("a row that is absent", rows([(b"\x02x", Some(b""))])),
        ("a row that is absent and written", rows([(b"\x02c", Some(b""))])),
        ("one of several", rows([(b"\x02a", Some(b"1")), (b"\x02b", Some(b"0")), (b"\x02c", None)])),
    ];
    for (what, expected) in wrong {
        let commit = Commit {
            expected,
            writes: rows([(b"\x02b", Some(b"3")), (b"\x02c", Some(b"4")), (b"\x02d", Some(b"5"))]),
            additions: BTreeMap::from([(COUNTER.to_vec(), 1)]),
            ..Commit::default()
        };
        same(what, stage.commit(commit).await, Committed::Conflict);
        same("a row after a conflict", stage.row(b"\x02b").await, Some(b"2".to_vec()));
        for key in [b"\x02c", b"\x02d", b"\x02x"] {
            same("an absent row after a conflict", stage.row(key).await, None);
        }
        same("a counter after a conflict", stage.counter(COUNTER).await, 0);
    }
}

async fn counters(stage: &Stage) {
    let add = |by: i64| Commit { additions: BTreeMap::from([(COUNTER.to_vec(), by)]), ..Commit::default() };
    for (by, sum) in [(5, 5), (-2, 3), (4, 7), (-7, 0)] {
        stage.done(add(by)).await;
        same("the sum", stage.counter(COUNTER).await, sum);
    }
    same("the row of a counter of zero", stage.row(COUNTER).await, None);
    stage.done(add(2)).await;
    same("the row of a counter", stage.row(COUNTER).await, counter(2));
    // Removed, and added to in the same commit.
    let anew = Commit { writes: BTreeMap::from([(COUNTER.to_vec(), None)]), ..add(6) };
    stage.done(anew).await;
    same("a counter that begins anew", stage.counter(COUNTER).await, 6);
    stage.done(Commit { writes: BTreeMap::from([(COUNTER.to_vec(), None)]), ..Commit::default() }).await;
    same("a counter that was removed", stage.row(COUNTER).await, None);
}

async fn expected_counters(stage: &Stage) {
    let expects = |value: Option<Vec<u8>>| Commit {
        expected: BTreeMap::from([(COUNTER.to_vec(), value)]),
        additions: BTreeMap::from([(COUNTER.to_vec(), 3)]),
        ..Commit::default()
    };
    stage.done(expects(None)).await;
    same("a counter that is not zero", stage.commit(expects(None)).await, Committed::Conflict);
    same("another sum", stage.commit(expects(counter(2))).await, Committed::Conflict);
    stage.done(expects(counter(3))).await;
    same("the sum", stage.counter(COUNTER).await, 6);
}

async fn told(stage: &Stage) {
    let (mut changes, mut transitions) = (stage.backend.changes(), stage.backend.transitions());
    let name = Name::new("a").unwrap_or_else(|error| panic!("{error}"));
    let accepted = |prompt| FleetEvent::Accepted { name: name.clone(), tenant: "t".to_owned(), prompt };
    let commit = |expected: Option<&[u8]>, prompt| Commit {
        expected: rows([(b"\x02a", expected)]),
        writes: rows([(b"\x02a", Some(b"1"))]),
        told: Told { changes: vec![Change::Ended(prompt)], transitions: vec![accepted(prompt)] },
        ..Commit::default()
    };
    let (first, second) = (PromptId::new(), PromptId::new());
    stage.done(commit(None, first)).await;
    same("a change", changes.try_recv(), Ok(Change::Ended(first)));
    same("a transition", transitions.try_recv(), Ok(accepted(first)));
    same("a conflict", stage.commit(commit(None, second)).await, Committed::Conflict);
    same("a transition of a conflict", transitions.try_recv(), Err(TryRecvError::Empty));
    stage.done(commit(Some(b"1"), second)).await;
    same("the next transition", transitions.try_recv(), Ok(accepted(second)));
}

async fn elsewhere(stage: &Stage) {
    let other = Stage { backend: stage.other.clone(), other: stage.backend.clone() };
    let mut changes = other.backend.changes();
    // Hints may be lost while a listener connects, so there is another one.
    loop {
        let prompt = PromptId::new();
        let value = AttemptId::new().0.as_bytes().to_vec();
        let told = Told { changes: vec![Change::Ended(prompt)], transitions: Vec::new() };
        let writes = rows([(b"\x02a", Some(value.as_slice()))]);
        stage.done(Commit { writes, told, ..Commit::default() }).await;
        same("the row of another process", other.row(b"\x02a").await, Some(value));
        let change = tokio::time::timeout(std::time::Duration::from_secs(1), changes.recv()).await;
        if matches!(change, Ok(Ok(Change::Ended(_) | Change::Missed))) {
            return;
        }
    }
}

async fn clock(stage: &Stage) {
    let begin = stage.backend.now();
    while stage.backend.now() <= begin {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}

/// Leaves rows for [`find_rows`].
pub(super) async fn leave_rows(stage: &Stage) {
    let commit = Commit {
        writes: rows([(b"\x02a", Some(b"1")), (b"\x02b", Some(b""))]),
        additions: BTreeMap::from([(COUNTER.to_vec(), 3)]),
        ..Commit::default()
    };
    stage.done(commit).await;
}

pub(super) async fn find_rows(stage: &Stage) {
    same("a row", stage.row(b"\x02a").await, Some(b"1".to_vec()));
    same("an empty row", stage.row(b"\x02b").await, Some(Vec::new()));
    same("a counter", stage.counter(COUNTER).await, 3);
    // No lane is without connections.
    for lane in [Lane::Lease, Lane::Nodes, Lane::Transcripts, Lane::Readers, Lane::Requests] {
        answered(stage.backend.read(lane, Wanted::default()).await);
    }
}
