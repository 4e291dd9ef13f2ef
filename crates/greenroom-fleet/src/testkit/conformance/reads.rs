//! Promises about reads.

use super::Check;
use super::stage::{Stage, between, rows, same};
use crate::backend::{Commit, Part, Range};

pub(super) const PROMISES: &[(&str, Check)] = &[
    ("a row that was written is read, and one that was not is absent", |stage| Box::pin(single(stage))),
    ("keys sort by their bytes", |stage| Box::pin(order(stage))),
    ("a range ends before its end, and at its limit", |stage| Box::pin(ends(stage))),
    ("keys of two thousand bytes and values of a megabyte are kept", |stage| Box::pin(large(stage))),
    ("sizes come in place of values, if they are wanted", |stage| Box::pin(sizes(stage))),
];

async fn single(stage: &Stage) {
    same("a row of an empty store", stage.row(b"\x02a").await, None);
    stage.write([(b"\x02a".as_slice(), b"one".as_slice()), (b"\x02b", b"")]).await;
    same("a row", stage.row(b"\x02a").await, Some(b"one".to_vec()));
    same("an empty row", stage.row(b"\x02b").await, Some(Vec::new()));
    same("a row that begins as another one", stage.row(b"\x02").await, None);
    stage.write([(b"\x02a".as_slice(), b"two".as_slice())]).await;
    same("a row that was written again", stage.row(b"\x02a").await, Some(b"two".to_vec()));
    stage.done(Commit { writes: rows([(b"\x02a", None), (b"\x02c", None)]), ..Commit::default() }).await;
    same("a row that was removed", stage.row(b"\x02a").await, None);
}

async fn order(stage: &Stage) {
    let keys: [&[u8]; 9] = [
        b"\x02",
        b"\x02\0",
        b"\x02\0\0",
        b"\x02\0\xff",
        b"\x02\x01",
        b"\x02a",
        b"\x02aa",
        b"\x02b",
        b"\x02\xff",
    ];
    let backwards = keys.iter().rev().map(|key| (*key, *key));
    stage.write(backwards).await;
    let seen = stage.range(between(b"\x02", b"\x03", 100)).await;
    let expected = keys.map(|key| (key.to_vec(), key.to_vec())).to_vec();
    same("a range", seen, expected);
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
