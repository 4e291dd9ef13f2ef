//! Promises about reads, and about one commit after the other.

use tokio::sync::broadcast::error::TryRecvError;

use super::Check;
use super::stage::{COUNTER, Stage, adds, answered, between, commit, rows, same};
use crate::backend::{Commit, Committed, Lane, Part, Range, Requests, Told, Wanted};
use crate::event::FleetEvent;
use crate::id::{AttemptId, Name, PromptId};
use crate::request::{Change, NodeMessage, NodeNews, Piece};

pub(super) const PROMISES: &[(&str, Check)] = &[
    ("a row that was written is read, and one that was not is absent", |stage| Box::pin(single(stage))),
    ("keys sort by their bytes", |stage| Box::pin(order(stage))),
    ("a range ends before its end, and at its limit", |stage| Box::pin(ends(stage))),
    ("keys of two thousand bytes and values of a megabyte are kept", |stage| Box::pin(large(stage))),
    ("sizes come in place of values, if they are wanted", |stage| Box::pin(sizes(stage))),
    ("a commit that expects what is there happens", |stage| Box::pin(expected(stage))),
    ("a commit that is in conflict writes nothing", |stage| Box::pin(in_conflict(stage))),
    ("counters are added to, and do not fall below zero", |stage| Box::pin(counters(stage))),
    ("a counter that has changed is a conflict", |stage| Box::pin(expected_counters(stage))),
    ("a commit is told before its answer, and one in conflict is not told", |stage| Box::pin(told(stage))),
    ("another process reads what was answered, and hears of it", |stage| Box::pin(elsewhere(stage))),
    ("a message of a node is delivered once to the fleets of its process", |stage| {
        Box::pin(delivered(stage))
    }),
    ("the clock does not stand still", |stage| Box::pin(clock(stage))),
];

async fn single(stage: &Stage) {
    same("a row of an empty store", stage.row(b"\x02a").await, None);
    stage.write([(b"\x02a".as_slice(), b"one".as_slice()), (b"\x02b", b"")]).await;
    same("a row", stage.row(b"\x02a").await, Some(b"one".to_vec()));
    same("an empty row", stage.row(b"\x02b").await, Some(Vec::new()));
    same("a row that begins as another one", stage.row(b"\x02").await, None);
    stage.write([(b"\x02a".as_slice(), b"two".as_slice())]).await;
    same("a row that was written again", stage.row(b"\x02a").await, Some(b"two".to_vec()));
    stage.done(commit([], [(b"\x02a", None), (b"\x02c", None)])).await;
    same("a row that was removed", stage.row(b"\x02a").await, None);
}

async fn order(stage: &Stage) {
    let ends: [&[u8]; 9] = [b"", b"\0", b"\0\0", b"\0\xff", b"\x01", b"a", b"aa", b"b", b"\xff"];
    let keys = ends.map(|end| [b"\x02", end].concat());
    stage.write(keys.iter().rev().map(|key| (key.as_slice(), key.as_slice()))).await;
    let seen = stage.range(between(b"\x02", b"\x03", 100)).await;
    same("a range", seen, keys.map(|key| (key.clone(), key)).to_vec());
}

async fn ends(stage: &Stage) {
    let keys: [&[u8]; 4] = [b"\x02a", b"\x02b", b"\x02c", b"\x02d"];
    stage.write(keys.map(|key| (key, b"".as_slice()))).await;
    let ranges = [
        (between(b"\x02a", b"\x02c", 100), vec!["a", "b"]),
        (between(b"\x02b", b"\x03", 2), vec!["b", "c"]),
        (between(b"\x02a\0", b"\x02b\0", 100), vec!["b"]),
        (between(b"\x02e", b"\x03", 100), vec![]),
    ];
    let wanted = ranges.iter().map(|(range, _)| range.clone());
    // All of them in one read, with single rows.
    let seen = stage.read([b"\x02a".as_slice(), b"\x02x"], wanted).await;
    same("a row beside ranges", seen.values[b"\x02a".as_slice()].clone(), Some(Vec::new()));
    same("an absent row beside ranges", seen.values[b"\x02x".as_slice()].clone(), None);
    for (range, expected) in ranges {
        let rows = seen.ranges.get(&range).cloned().unwrap_or_default();
        let found: Vec<_> =
            rows.iter().map(|(key, _)| String::from_utf8_lossy(&key[1..]).into_owned()).collect();
        same("the keys of a range", found, expected.into_iter().map(str::to_owned).collect());
    }
}

async fn large(stage: &Stage) {
    let key: Vec<u8> = (0..2_000_u16).map(|byte| byte.to_be_bytes()[1].max(2)).collect();
    let value: Vec<u8> = (0..1_u32 << 20).map(|byte| byte.to_be_bytes()[3]).collect();
    stage.write([(key.as_slice(), value.as_slice())]).await;
    // Not printed if they differ.
    same("a large value", stage.row(&key).await.as_ref() == Some(&value), true);
    same("a key in a range", stage.range(between(b"\x02", b"\xff", 10)).await.len(), 1);
}

async fn sizes(stage: &Stage) {
    stage.write([(b"\x02a".as_slice(), b"four".as_slice()), (b"\x02b", b"")]).await;
    let values = between(b"\x02", b"\x03", 10);
    let range = Range { part: Part::Sizes, ..values.clone() };
    let seen = stage.read([b"\x02a".as_slice()], [range.clone(), values.clone()]).await;
    let sizes = [(b"\x02a".to_vec(), 4_u64.to_be_bytes().to_vec()), (b"\x02b".to_vec(), vec![0; 8])];
    same("sizes", seen.ranges.get(&range).cloned(), Some(sizes.to_vec()));
    same(
        "values beside them",
        seen.ranges.get(&values).map(|rows| rows[0].1.clone()),
        Some(b"four".to_vec()),
    );
}

fn counter(value: i64) -> Option<Vec<u8>> {
    Some(value.to_be_bytes().to_vec())
}

async fn expected(stage: &Stage) {
    stage.write([(b"\x02a".as_slice(), b"1".as_slice()), (b"\x02b", b"2")]).await;
    let expected = [
        (b"\x02a".as_slice(), Some(b"1".as_slice())),
        (b"\x02b", Some(b"2")),
        (b"\x02c", None),
        (b"\x02d", None),
    ];
    let writes =
        [(b"\x02a".as_slice(), Some(b"3".as_slice())), (b"\x02c", Some(b"4")), (b"\x02e", Some(b"5"))];
    stage.done(commit(expected, writes)).await;
    for (key, value) in rows(writes).into_iter().chain(rows([(b"\x02b", Some(b"2")), (b"\x02d", None)])) {
        same("a row after the commit", stage.row(&key).await, value);
    }
    // An equal value is the expected one, also if the row was written meanwhile.
    stage.write([(b"\x02b".as_slice(), b"other".as_slice())]).await;
    stage.write([(b"\x02b".as_slice(), b"2".as_slice())]).await;
    stage.done(commit([(b"\x02b", Some(b"2"))], [(b"\x02b", None)])).await;
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
        let writes = rows([(b"\x02b", Some(b"3")), (b"\x02c", Some(b"4")), (b"\x02d", Some(b"5"))]);
        let commit = Commit { expected, writes, ..adds(COUNTER, 1) };
        same(what, stage.commit(commit).await, Committed::Conflict);
        same("a row after a conflict", stage.row(b"\x02b").await, Some(b"2".to_vec()));
        for key in [b"\x02c", b"\x02d", b"\x02x"] {
            same("an absent row after a conflict", stage.row(key).await, None);
        }
        same("a counter after a conflict", stage.counter(COUNTER).await, 0);
    }
}

async fn counters(stage: &Stage) {
    for (by, sum) in [(5, 5), (-2, 3), (4, 7), (-7, 0)] {
        stage.done(adds(COUNTER, by)).await;
        same("the sum", stage.counter(COUNTER).await, sum);
    }
    same("the row of a counter of zero", stage.row(COUNTER).await, None);
    stage.done(adds(COUNTER, 2)).await;
    same("the row of a counter", stage.row(COUNTER).await, counter(2));
    // Removed, and added to in the same commit.
    stage.done(Commit { writes: rows([(COUNTER, None)]), ..adds(COUNTER, 6) }).await;
    same("a counter that begins anew", stage.counter(COUNTER).await, 6);
    stage.done(commit([], [(COUNTER, None)])).await;
    same("a counter that was removed", stage.row(COUNTER).await, None);
}

async fn expected_counters(stage: &Stage) {
    let expects =
        |value: Option<Vec<u8>>| Commit { expected: rows([(COUNTER, value.as_deref())]), ..adds(COUNTER, 3) };
    stage.done(expects(None)).await;
    same("a counter that is not zero", stage.commit(expects(None)).await, Committed::Conflict);
    same("another sum", stage.commit(expects(counter(2))).await, Committed::Conflict);
    stage.done(expects(counter(3))).await;
    same("the sum", stage.counter(COUNTER).await, 6);
}

async fn told(stage: &Stage) {
    let (mut changes, mut transitions) = (stage.backend.changes(), stage.backend.transitions());
    let name: Name = "t/a".parse().unwrap_or_else(|error| panic!("{error}"));
    let accepted = |prompt| FleetEvent::Accepted { name: name.clone(), prompt };
    let commit = |expected: Option<&[u8]>, prompt| Commit {
        told: Told { changes: vec![Change::Ended(prompt)], transitions: vec![accepted(prompt)] },
        ..commit([(b"\x02a", expected)], [(b"\x02a", Some(b"1"))])
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
        stage.done(Commit { told, ..commit([], [(b"\x02a", Some(value.as_slice()))]) }).await;
        same("the row of another process", other.row(b"\x02a").await, Some(value));
        let change = tokio::time::timeout(std::time::Duration::from_secs(1), changes.recv()).await;
        if matches!(change, Ok(Ok(Change::Ended(_) | Change::Missed))) {
            return;
        }
    }
}

async fn delivered(stage: &Stage) {
    let mut messages = stage.backend.channels().node_messages();
    let prompt = PromptId::new();
    for text in ["Hello", "\u{0}\u{1}\"é"] {
        let piece = Piece { number: 1, after: 7, starts: true, text: text.to_owned() };
        let message = NodeMessage { from: prompt.0, news: NodeNews::Writes(prompt, piece) };
        stage.backend.publish(message.clone());
        same("a message", messages.recv().await, Ok(message));
        same("a second one", messages.try_recv(), Err(TryRecvError::Empty));
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
    let writes = rows([(b"\x02a", Some(b"1")), (b"\x02b", Some(b""))]);
    stage.done(Commit { writes, ..adds(COUNTER, 3) }).await;
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
