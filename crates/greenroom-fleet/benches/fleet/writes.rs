//! Prompts that are accepted per second, beside the transactions of redb alone.

use std::time::{Duration, Instant, SystemTime};

use futures_util::future::try_join_all;
use greenroom_fleet::backend::{LocalBackend, Requests};
use greenroom_fleet::{Accepted, FeedRetention, Fleet, FleetPrompt};
use redb::Database;

use super::{Result, accept, folder, local, median, prompt, raw_commit};

/// Callers at once, and the prompts that they send in all in a run.
const CALLERS: [(usize, usize); 3] = [(1, 200), (16, 1_600), (64, 3_200)];
/// The rows that each accept for a new name writes besides those that the accepts of a group share, and their mean size.
const ROWS: (usize, usize) = (7, 200);

pub(super) async fn measure(times: usize) -> Result<()> {
    let folder = folder()?;
    let path = |name: &str| folder.path().join(name);
    let raw = Database::create(path("raw"))?;
    raw_commit(&raw, 1, 1, None)?;
    let ordered = Database::create(path("ordered"))?;
    let backend = LocalBackend::open(path("backend")).await?;
    let with_feed = LocalBackend::open(path("with feed")).await?;
    with_feed.set_feed(Some(FeedRetention::new())).await?;
    let fleet =
        local(&path("fleet")).await?.profile("default", |_| greenroom::Session::builder()).start().await?;
    println!(
        "\n| accepts/s, durable | redb, a row each | redb, {} rows each | backend | fleet | backend to redb with the same rows | fleet to backend | with a feed to without |",
        ROWS.0
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    for (callers, prompts) in CALLERS {
        let mut figures: [Vec<f64>; 5] = Default::default();
        for _ in 0..times {
            let per_second = |time: Duration| prompts as f64 / time.as_secs_f64();
            figures[0].push(per_second(commits(&ordered, callers, prompts, None)?));
            figures[1].push(per_second(commits(&raw, callers, prompts, Some(ROWS))?));
            figures[2].push(per_second(by_backend(&backend, callers, prompts).await?));
            figures[3].push(per_second(by_fleet(&fleet, callers, prompts).await?));
            figures[4].push(per_second(by_backend(&with_feed, callers, prompts).await?));
        }
        let ratio = |of: usize, to: usize| {
            let pairs = figures[of].iter().zip(&figures[to]);
            median(&pairs.map(|(of, to)| of / to).collect::<Vec<_>>())
        };
        let (redb, same, feed) = (ratio(2, 1), ratio(3, 2), ratio(4, 2));
        let [row, rows, backend, fleet, _] = figures.map(|figures| median(&figures));
        println!(
            "| {callers} at once | {row:.0} | {rows:.0} | {backend:.0} | {fleet:.0} | {redb:.2} | {same:.2} | {feed:.2} |"
        );
    }
    fleet.drain(Duration::from_secs(10)).await;
    Ok(())
}

/// Transactions for groups of callers: with as many rows as accepts have, or with one row of 330 bytes for each, in order.
fn commits(raw: &Database, callers: usize, prompts: usize, rows: Option<(usize, usize)>) -> Result<Duration> {
    let start = Instant::now();
    for group in 0..prompts / callers {
        match rows {
            Some((rows, bytes)) => raw_commit(raw, callers * rows, bytes, None)?,
            None => raw_commit(raw, callers, 330, Some(group * callers))?,
        }
    }
    Ok(start.elapsed())
}

async fn by_backend(backend: &LocalBackend, callers: usize, prompts: usize) -> Result<Duration> {
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..callers {
        let backend = backend.clone();
        tasks.spawn(async move {
            for _ in 0..prompts / callers {
                let accepted = backend.accept(accept(&name())?).await?;
                if !matches!(accepted, Accepted::New(_)) {
                    return Err(format!("not accepted: {accepted:?}").into());
                }
            }
            Result::Ok(())
        });
    }
    try_join_all(tasks.join_all().await.into_iter().map(std::future::ready)).await?;
    Ok(start.elapsed())
}

/// Reminders for later, so that no session starts. Each wakes its name, which looks at its queue and is passive again.
async fn by_fleet(fleet: &Fleet, callers: usize, prompts: usize) -> Result<Duration> {
    let later = SystemTime::now() + Duration::from_secs(3600);
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..callers {
        let fleet = fleet.clone();
        tasks.spawn(async move {
            for _ in 0..prompts / callers {
                let session = fleet.tenant("acme")?.session(name())?;
                let turn = session.prompt(FleetPrompt::new(prompt()).not_before(later)).await?;
                drop(turn);
            }
            Result::Ok(())
        });
    }
    try_join_all(tasks.join_all().await.into_iter().map(std::future::ready)).await?;
    Ok(start.elapsed())
}

/// A name that no prompt was sent to.
fn name() -> String {
    format!("customer-{}", uuid::Uuid::new_v4())
}
