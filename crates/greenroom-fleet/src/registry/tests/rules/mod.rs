//! Each request by itself, in memory and on a file. A rule depends on nothing of a backend but what the conformance suite checks, so it is
//! not checked on PostgreSQL again.

mod causes;
mod commands;
mod erasure;
mod fences;
mod holds;
mod lost;
mod money;
mod ownership;
mod people;
mod prompts;
mod reads;
mod repeats;
mod stage;
mod terms;
mod turns;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::backend::{Backend, LocalBackend, MemoryBackend};
use stage::{Checked, Stage};

/// The time that a rule may take on a slow machine.
const PATIENCE: Duration = Duration::from_secs(30);

type Check = fn(Stage) -> BoxFuture<'static, Checked>;

#[tokio::test(start_paused = true)]
async fn every_rule_holds_in_memory() {
    every_rule_holds(async || Arc::new(MemoryBackend::new()) as _).await;
}

#[tokio::test]
async fn every_rule_holds_on_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let files = std::cell::Cell::new(0);
    let make = async || {
        files.set(files.get() + 1);
        let path = folder.path().join(format!("{}.redb", files.get()));
        Arc::new(LocalBackend::open(path).await.unwrap()) as _
    };
    every_rule_holds(make).await;
}

/// Checks every rule on a backend of its own.
async fn every_rule_holds(make: impl AsyncFn() -> Arc<dyn Backend>) {
    let mut broken = Vec::new();
    let promises = [
        prompts::PROMISES,
        ownership::PROMISES,
        reads::lists::PROMISES,
        turns::PROMISES,
        fences::PROMISES,
        holds::PROMISES,
        lost::PROMISES,
        people::PROMISES,
        people::parked::PROMISES,
        commands::PROMISES,
        erasure::PROMISES,
        terms::PROMISES,
        repeats::PROMISES,
        money::PROMISES,
        causes::PROMISES,
        reads::queries::PROMISES,
        reads::feeds::PROMISES,
    ];
    for (promise, check) in promises.into_iter().flatten().copied() {
        let stage = Stage::new(make().await);
        let run = AssertUnwindSafe(async move { check(stage.await?).await }).catch_unwind();
        let seen = match tokio::time::timeout(PATIENCE, run).await {
            Ok(Ok(Ok(()))) => continue,
            Ok(Ok(Err(seen))) => seen.0,
            Ok(Err(_)) => "a request panicked".to_owned(),
            Err(_) => format!("it took longer than {PATIENCE:?}"),
        };
        broken.push(format!("{promise}: {seen}"));
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
