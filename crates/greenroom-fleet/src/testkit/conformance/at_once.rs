//! Promises about commits at once, of two processes if there can be two.

use futures_util::future::join_all;

use super::Check;
use super::stage::{COUNTER, Stage, adds, between, commit, rows, same};
use crate::backend::{Commit, Committed};

pub(super) const PROMISES: &[(&str, Check)] = &[
    ("a row that many write at once loses no write", |stage| Box::pin(increments(stage))),
    ("of two commits that are in each other's way one happens", |stage| Box::pin(either(stage))),
    ("counters that many add to at once lose nothing", |stage| Box::pin(additions(stage))),
    ("of commits that expect the same sum one happens", |stage| Box::pin(sums(stage))),
    ("a read is of one moment", |stage| Box::pin(one_moment(stage))),
];

impl Stage {
    /// The store, as one process has it for even numbers and the other process for odd ones.
    fn of(&self, number: usize) -> Stage {
        match number % 2 {
            0 => Stage { backend: self.backend.clone(), other: self.other.clone() },
            _ => Stage { backend: self.other.clone(), other: self.backend.clone() },
        }
    }
}

/// Eight that each add one ten times, by what they have read.
async fn increments(stage: &Stage) {
    let adding = (0..8).map(async |number| {
        let (stage, mut left) = (stage.of(number), 10);
        while left > 0 {
            let known = stage.row(b"\x02n").await;
            let before = known.as_deref().map_or("0", |value| std::str::from_utf8(value).unwrap_or_default());
            let next = (before.parse().unwrap_or(0) + 1).to_string();
            let next = commit([(b"\x02n", known.as_deref())], [(b"\x02n", Some(next.as_bytes()))]);
            left -= u32::from(stage.commit(next).await == Committed::Done);
        }
    });
    join_all(adding).await;
    same("the number after 80 additions", stage.row(b"\x02n").await, Some(b"80".to_vec()));
}

/// Two that each write a row if that of the other one is absent. Neither writes what the other one expects to be written.
async fn either(stage: &Stage) {
    for round in 0..50_u8 {
        let keys = [[2, round, 0], [2, round, 1]];
        let writing = (0..2).map(async |number| {
            let one = commit([(&keys[1 - number], None)], [(&keys[number], Some(b"1"))]);
            stage.of(number).commit(one).await
        });
        let count = join_all(writing).await.iter().filter(|done| **done == Committed::Done).count();
        assert!(count <= 1, "both commits of round {round} happened");
        let written = stage.range(between(&[2, round], &[2, round + 1], 10)).await.len();
        same("rows that were written", written, count);
    }
}

async fn additions(stage: &Stage) {
    let adding = (0..40).map(async |number| {
        let by = if number % 4 == 3 { -2 } else { 3 };
        let mut both = adds(COUNTER, by);
        both.additions.insert(b"\x1db".to_vec(), 1);
        stage.of(number).done(both).await
    });
    // Additions come first, so the sum does not come to zero in between.
    stage.done(adds(COUNTER, 100)).await;
    join_all(adding).await;
    same("one counter", stage.counter(COUNTER).await, 170);
    same("the other one", stage.counter(b"\x1db").await, 40);
}

/// Money that is left once is spent once.
async fn sums(stage: &Stage) {
    for round in 0..20_u8 {
        let key = vec![0x1d, round];
        let spending = (0..6).map(async |number| {
            let commit = Commit { expected: rows([(&key, None)]), ..adds(&key, 5) };
            stage.of(number).commit(commit).await
        });
        let count = join_all(spending).await.iter().filter(|done| **done == Committed::Done).count();
        same("commits that found the counter at zero", count, 1);
        same("the sum", stage.counter(&key).await, 5);
    }
}

/// A writer keeps two rows, a range and a counter alike.
async fn one_moment(stage: &Stage) {
    let writing = async {
        for round in 1..=40_u8 {
            let value = [round];
            let writes = rows([(b"\x02a", Some(&value)), (b"\x02b", Some(&value)), (b"\x05c", Some(&value))]);
            stage.done(Commit { writes, ..adds(COUNTER, 1) }).await;
        }
    };
    let reading = async {
        let other = stage.of(1);
        loop {
            let keys = [b"\x02a".as_slice(), b"\x02b", COUNTER];
            let seen = other.read(keys, [between(b"\x05", b"\x06", 10)]).await;
            let value = |key: &[u8]| seen.values.get(key).cloned().flatten();
            let (a, b) = (value(b"\x02a"), value(b"\x02b"));
            let in_range = seen.ranges.values().flatten().next().map(|(_, value)| value.clone());
            let counted = value(COUNTER).and_then(|value| value.last().map(|last| vec![*last]));
            same("two rows that are written together", a.clone(), b);
            same("a row in a range", in_range, a.clone());
            same("a counter beside them", counted, a.clone());
            if a == Some(vec![40]) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::join!(writing, reading);
}
