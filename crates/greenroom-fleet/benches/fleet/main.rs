//! Measures what a fleet on one machine costs, beside the limit of each figure in the same run.
//! `cargo bench -p greenroom-fleet --bench fleet` prints tables; `docs/performance.md` explains them.
//!
//! `-- --rows turn` runs the parts whose name contains `turn`: `names`, `accepts`, `starts`, `turns`, `messages`.
//! `-- --times 9` sets the number of runs of each row. Figures are for reading: a slow machine fails nothing.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it prints figures")]

mod names;
mod sessions;
mod stream;
mod writes;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use greenroom_fleet::backend::{Backend, LocalBackend};
use greenroom_fleet::{Accept, FleetBuilder, FleetLimits, PromptContent, PromptId, QueueBounds, Quota};
use redb::{Database, TableDefinition};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Environment variable: the role of this process. Unset in the process that starts the others.
const ROLE: &str = "GREENROOM_FLEET_BENCH_ROLE";
/// Environment variable: the fleet's file of a role.
const FILE: &str = "GREENROOM_FLEET_BENCH_FILE";

fn main() -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    if let Ok(role) = std::env::var(ROLE) {
        let file = PathBuf::from(std::env::var(FILE)?);
        return runtime.block_on(names::role(&role, &file));
    }
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        arguments.iter().position(|argument| argument == name).and_then(|at| arguments.get(at + 1))
    };
    let only = value("--rows").map_or("", String::as_str);
    let times: usize = value("--times").map_or(Ok(5), |times| times.parse())?;
    let runs = |part: &str| part.contains(only);
    runtime.block_on(async {
        if runs("names") {
            names::measure(times).await?;
        }
        if runs("accepts") {
            writes::measure(times).await?;
        }
        if runs("starts") {
            sessions::starts(times).await?;
        }
        if runs("turns") {
            sessions::turns(times).await?;
        }
        if runs("messages") {
            stream::measure(times).await?;
        }
        Ok(())
    })
}

/// A folder on the disk that the build is on: `/tmp` may be in memory, where a commit costs nothing.
fn folder() -> Result<tempfile::TempDir> {
    Ok(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?)
}

/// A fleet on the file, with bounds that no row reaches.
async fn local(file: &Path) -> Result<FleetBuilder> {
    Ok(on(LocalBackend::open(file).await?))
}

fn on(backend: impl Backend) -> FleetBuilder {
    unbounded(greenroom_fleet::Fleet::builder().backend(backend))
}

fn unbounded(builder: FleetBuilder) -> FleetBuilder {
    let mut quota = Quota::default();
    quota.reminders = u32::MAX;
    builder.default_quota(quota).configure(|limits: &mut FleetLimits| {
        limits.queue = bounds();
        limits.turn_bytes = u64::MAX;
        limits.live = 16;
    })
}

fn bounds() -> QueueBounds {
    QueueBounds {
        name: u32::MAX,
        tenant: u32::MAX,
        fleet: u32::MAX,
        reminders: u32::MAX,
        ..Default::default()
    }
}

/// A prompt of 200 bytes for a name, as the fleet asks its backend to accept it.
fn accept(name: &str) -> Result<Accept> {
    Ok(Accept {
        prompt: PromptId::new(),
        name: format!("acme/{name}").parse()?,
        profile: "default".to_owned(),
        conversation: uuid::Uuid::new_v4(),
        host: None,
        key: None,
        labels: Default::default(),
        content: PromptContent { prompt: serde_json::to_value(prompt())?, continuation: None },
        continuations: 0,
        not_before: None,
        wait: Duration::from_secs(3600),
        quota: greenroom_fleet::Quota::default(),
        bounds: bounds(),
    })
}

fn prompt() -> greenroom::Prompt {
    greenroom::Prompt::from("x".repeat(200))
}

/// Rows of a raw database, which writes nothing else.
const RAW: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("raw");

/// Commits a durable transaction with `rows` new rows of `bytes` bytes. Their keys are random, or in order from `first` on.
fn raw_commit(database: &Database, rows: usize, bytes: usize, first: Option<usize>) -> Result<()> {
    let value = vec![b'x'; bytes];
    let transaction = database.begin_write()?;
    {
        let mut table = transaction.open_table(RAW)?;
        for row in 0..rows {
            match first {
                Some(first) => table.insert(&(first + row).to_be_bytes()[..], &value[..])?,
                None => table.insert(&uuid::Uuid::new_v4().as_bytes()[..], &value[..])?,
            };
        }
    }
    Ok(transaction.commit()?)
}

/// The time of a piece of work.
async fn timed<T>(work: impl Future<Output = Result<T>>) -> Result<(Duration, T)> {
    let start = Instant::now();
    let done = work.await?;
    Ok((start.elapsed(), done))
}

/// The middle of the figures, and the least of them.
fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn least(figures: &[f64]) -> f64 {
    figures.iter().copied().fold(f64::INFINITY, f64::min)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
