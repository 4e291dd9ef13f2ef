//! Names that are passive: their memory, their disk, and the opening of a file that has many of them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use futures_util::{StreamExt, TryStreamExt, stream};
use greenroom_fleet::Timestamp;
use greenroom_fleet::backend::{LocalBackend, Requests};
use redb::Database;
use serde::{Deserialize, Serialize};

use super::{FILE, ROLE, Result, accept, folder, median, millis, on};

/// Names in a file.
const NAMES: usize = 100_000;
/// Requests at once, as many as the writer of the file takes in a transaction.
const AT_ONCE: usize = 256;

/// The figures of a process that opens a file.
#[derive(Serialize, Deserialize)]
struct Opened {
    /// Milliseconds of `LocalBackend::open`, and of `Fleet::start` after it.
    backend: f64,
    fleet: f64,
    /// Kilobytes of anonymous memory: before, when the fleet has started, and after each name was read once.
    before: f64,
    started: f64,
    read: f64,
}

pub(super) async fn measure(times: usize) -> Result<()> {
    let folder = folder()?;
    let path = |name: &str| folder.path().join(name);
    let filled = path("filled");
    let first = Instant::now();
    let (names, prompts) = fill(&filled).await?;
    eprintln!("{NAMES} names were made in {:.0} s", first.elapsed().as_secs_f64());
    let (only_names, with_prompts, empty, raw) = (path("names"), path("prompts"), path("empty"), path("raw"));
    for (file, text) in [(&only_names, Some(names)), (&with_prompts, Some(prompts)), (&empty, None)] {
        let backend = LocalBackend::open(file).await?;
        if let Some(text) = text {
            backend.import(text).await?;
        }
        backend.close().await;
    }
    let bytes = |file: &Path| Ok::<_, std::io::Error>(std::fs::metadata(file)?.len() as f64);
    let each = |more: f64, less: f64| (more - less) / NAMES as f64;
    println!("\n| {NAMES} passive names | figure | beside it |\n|---|--:|--:|");
    let nothing = bytes(&empty)?;
    for (what, file) in [("name alone", &only_names), ("name with a prompt and its outcome", &with_prompts)] {
        let (stored, file) = (stored(file)?, bytes(file)?);
        let figure = each(file, nothing);
        println!("| disk of a {what}, bytes | {figure:.0} | rows: {:.0} |", stored / NAMES as f64);
    }
    let mut memory = [Vec::new(), Vec::new()];
    // Leaves the files closed.
    ask("open", &empty)?;
    ask("open", &only_names)?;
    for _ in 0..times {
        let (none, many) = (ask("open", &empty)?, ask("open", &only_names)?);
        memory[0].push(each(many.started - many.before, none.started - none.before) * 1024.0);
        memory[1].push(each(many.read - many.before, none.read - none.before) * 1024.0);
    }
    let [started, read] = memory.map(|figures| median(&figures));
    println!("| memory of a name, bytes, when the fleet has opened | {started:.0} | |");
    println!("| memory of a name, bytes, when each name was read (redb's cache) | {read:.0} | |");
    for (what, crash) in [("a close", false), ("a `kill -9`", true)] {
        for (of, file) in [("names", &only_names), ("names with a prompt each", &with_prompts)] {
            let mut figures: [Vec<f64>; 3] = Default::default();
            ask("open", file)?;
            for _ in 0..times {
                if crash {
                    run("crash", file)?;
                }
                std::fs::copy(file, &raw)?;
                let start = Instant::now();
                let database = Database::open(&raw)?;
                figures[0].push(millis(start.elapsed()));
                drop(database);
                let opened = ask("open", file)?;
                figures[1].push(opened.backend);
                figures[2].push(opened.fleet);
            }
            let [raw, backend, fleet] = figures.map(|figures| median(&figures));
            println!("| open {of} after {what}, ms | {backend:.0} + {fleet:.0} | raw redb: {raw:.0} |");
        }
    }
    Ok(())
}

/// Makes names with a prompt each, which ends. Returns exports: of the names alone, and with the prompts.
async fn fill(file: &Path) -> Result<(String, String)> {
    let backend = LocalBackend::open(file).await?;
    let one = async |number: usize| {
        let accept = accept(&format!("customer-{number:06}"))?;
        let prompt = accept.prompt;
        let accepted = backend.accept(accept).await?;
        let withdrawn = backend.withdraw(prompt).await?;
        drop((accepted, withdrawn));
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    };
    stream::iter((0..NAMES).map(one)).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    let with_prompts = backend.export().await?;
    while backend.forget(Timestamp(u64::MAX), 1024).await? > 0 {}
    let names = backend.export().await?;
    backend.close().await;
    Ok((names, with_prompts))
}

/// Bytes of the keys and the rows in a file.
fn stored(file: &Path) -> Result<f64> {
    let database = Database::open(file)?;
    let transaction = database.begin_write()?;
    let bytes = transaction.stats()?.stored_bytes();
    transaction.abort()?;
    Ok(bytes as f64)
}

/// Does what the parent process asks for.
pub(super) async fn role(role: &str, file: &Path) -> Result<()> {
    let before = anonymous()?;
    let start = Instant::now();
    let kept = LocalBackend::open(file).await?;
    let backend = millis(start.elapsed());
    let start = Instant::now();
    let fleet = on(kept.clone()).start().await?;
    let opened = millis(start.elapsed());
    if role == "crash" {
        // The joining of the node was a commit, and the file is not closed: as after a `kill -9`.
        std::process::exit(0);
    }
    let started = anonymous()?;
    let query = || greenroom_fleet::NameQuery::new().limit(greenroom_fleet::NameQuery::MOST);
    let mut next = fleet.operator().names(query()).await?.next;
    while let Some(last) = next {
        next = fleet.operator().names(query().after(last)).await?.next;
    }
    let opened = Opened { backend, fleet: opened, before, started, read: anonymous()? };
    println!("{}", serde_json::to_string(&opened)?);
    fleet.drain(std::time::Duration::from_secs(5)).await;
    kept.close().await;
    Ok(())
}

fn ask(role: &str, file: &Path) -> Result<Opened> {
    let told = run(role, file)?;
    Ok(serde_json::from_str(&told)?)
}

#[allow(clippy::disallowed_methods, reason = "a process of the benchmark's own")]
fn run(role: &str, file: &Path) -> Result<String> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(ROLE, role).env(FILE, file).stderr(Stdio::inherit());
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("the process '{role}' ended with {}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Anonymous memory of this process in kilobytes.
fn anonymous() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).ok_or("no RssAnon")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}
