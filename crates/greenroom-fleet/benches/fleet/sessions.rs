//! The start, the stop and the turn of a fleet's session, beside those of a bare session with the same CLI in memory.

use std::path::Path;
use std::time::{Duration, Instant};

use greenroom::{Session, SessionBuilder};
use greenroom_fleet::backend::MemoryBackend;
use greenroom_fleet::{FeedRetention, Fleet, FleetError, FleetSession};
use greenroom_testkit::{ModelTurn, Script, ScriptedCli};
use redb::Database;

use super::{Result, folder, least, local, median, millis, prompt, raw_commit, timed, unbounded};

/// Starts in a run, and turns.
const STARTS: usize = 40;
const TURNS: usize = 100;

fn cli() -> ScriptedCli {
    ScriptedCli::play(Script::new().otherwise(ModelTurn::new().text("It arrives on Monday.")))
}

/// A session with the files of its own that one of a fleet has.
fn bare(cli: &ScriptedCli, folder: &Path) -> Result<SessionBuilder> {
    let (work, config) = (folder.join("work"), folder.join("config"));
    std::fs::create_dir_all(&work)?;
    std::fs::create_dir_all(&config)?;
    let builder = Session::builder().transport(cli.transport()).cwd(work);
    Ok(builder
        .env("CLAUDE_CONFIG_DIR", config.to_string_lossy())
        .conversation(uuid::Uuid::new_v4().to_string()))
}

/// A session of the fleet, known and passive.
async fn known(fleet: &Fleet) -> Result<FleetSession> {
    let session = fleet.tenant("acme")?.session(format!("customer-{}", uuid::Uuid::new_v4()))?;
    let later = std::time::SystemTime::now() + Duration::from_secs(3600);
    let turn = session.prompt(greenroom_fleet::FleetPrompt::new(prompt()).not_before(later)).await?;
    fleet.operator().withdraw(turn.prompt_id()).await?;
    Ok(session)
}

/// Starts the session, and returns the time. A name whose actor is about to end refuses, and is asked again.
async fn warm(session: &FleetSession) -> Result<Duration> {
    let mut refused = 0;
    loop {
        let start = Instant::now();
        match session.warm().await {
            Ok(()) => return Ok(start.elapsed()),
            Err(FleetError::State(_)) if refused < 1000 => refused += 1,
            Err(error) => return Err(error.into()),
        }
        tokio::task::yield_now().await;
    }
}

struct Row {
    what: &'static str,
    figures: Vec<f64>,
}

/// Figures by name, in the order in which the names came.
#[derive(Default)]
struct Rows(Vec<Row>);

impl Rows {
    fn add(&mut self, what: &'static str, time: Duration) {
        let figure = millis(time);
        match self.0.iter_mut().find(|row| row.what == what) {
            Some(row) => row.figures.push(figure),
            None => self.0.push(Row { what, figures: vec![figure] }),
        }
    }

    /// Prints each row with what it takes longer than the limit, by the medians.
    fn print(&self, limits: &[(&'static str, &'static str)]) {
        let of = |what: &str| self.0.iter().find(|row| row.what == what).map(|row| row.figures.as_slice());
        println!("|---|--:|--:|--:|--:|");
        for row in &self.0 {
            let limit = limits.iter().find(|(what, _)| *what == row.what).and_then(|(_, limit)| of(limit));
            let (middle, least) = (median(&row.figures), least(&row.figures));
            let beyond = limit.map_or(String::new(), |limit| {
                let pairs = row.figures.iter().zip(limit);
                let beyond: Vec<f64> = pairs.map(|(of, to)| of - to).collect();
                format!("{:.3} | {:.2}", median(&beyond), middle / median(limit))
            });
            let beyond = if beyond.is_empty() { " | ".to_owned() } else { beyond };
            println!("| {} | {middle:.3} | {least:.3} | {beyond} |", row.what);
        }
    }
}

const COMMIT: &str = "a commit of redb alone, one row";

pub(super) async fn starts(times: usize) -> Result<()> {
    let folder = folder()?;
    let raw = Database::create(folder.path().join("raw"))?;
    let (own, of_fleet) = (cli(), cli());
    let transport = of_fleet.transport();
    let fleet = local(&folder.path().join("fleet"))
        .await?
        .profile("default", move |_| Session::builder().transport(transport.clone()))
        .start()
        .await?;
    let mut rows = Rows::default();
    for number in 0..times * STARTS {
        let start = Instant::now();
        raw_commit(&raw, 1, 330, None)?;
        rows.add(COMMIT, start.elapsed());
        let builder = bare(&own, &folder.path().join(number.to_string()))?;
        let (time, session) = timed(async { Ok(builder.start().await?) }).await?;
        rows.add("`Session::start` alone", time);
        let (time, ()) = timed(async { Ok(session.stop().await?) }).await?;
        rows.add("`Session::stop` alone", time);
        let session = known(&fleet).await?;
        for (activation, passivate) in [(FIRST, "passivation"), (AGAIN, "passivation again")] {
            rows.add(activation, warm(&session).await?);
            let (time, ()) = timed(async { Ok(session.passivate().await?) }).await?;
            rows.add(passivate, time);
        }
    }
    println!(
        "\n| activation and passivation, local backend | median ms | least ms | beyond it, ms | ratio |"
    );
    rows.print(&[
        (FIRST, "`Session::start` alone"),
        (AGAIN, "`Session::start` alone"),
        ("passivation", "`Session::stop` alone"),
        ("passivation again", "`Session::stop` alone"),
    ]);
    fleet.drain(Duration::from_secs(10)).await;
    Ok(())
}

const FIRST: &str = "activation, the first of a name";
const AGAIN: &str = "activation again";

pub(super) async fn turns(times: usize) -> Result<()> {
    let folder = folder()?;
    let raw = Database::create(folder.path().join("raw"))?;
    let (own, memory, file, feed) = (cli(), cli(), cli(), cli());
    let session = bare(&own, &folder.path().join("bare"))?.start().await?;
    let profile = |cli: &ScriptedCli| {
        let transport = cli.transport();
        move |_: &greenroom_fleet::ActivationContext| Session::builder().transport(transport.clone())
    };
    let memory_fleet = unbounded(Fleet::builder().backend(MemoryBackend::new()))
        .profile("default", profile(&memory))
        .start()
        .await?;
    let local_fleet =
        local(&folder.path().join("fleet")).await?.profile("default", profile(&file)).start().await?;
    let builder = local(&folder.path().join("fleet with a feed")).await?.feed(FeedRetention::new());
    let feed_fleet = builder.profile("default", profile(&feed)).start().await?;
    let (in_memory, in_file) = (known(&memory_fleet).await?, known(&local_fleet).await?);
    let with_feed = known(&feed_fleet).await?;
    // Starts their sessions.
    for session in [&in_memory, &in_file, &with_feed] {
        session.prompt(prompt()).await?.outcome().await?;
    }
    let mut rows = Rows::default();
    for _ in 0..times * TURNS {
        let start = Instant::now();
        raw_commit(&raw, 1, 330, None)?;
        rows.add(COMMIT, start.elapsed());
        let (time, _) = timed(async { Ok(session.prompt(prompt()).await?.outcome().await?) }).await?;
        rows.add(BARE, time);
        for (what, session) in [(IN_MEMORY, &in_memory), (IN_FILE, &in_file), (WITH_FEED, &with_feed)] {
            let (time, outcome) =
                timed(async { Ok(session.prompt(prompt()).await?.outcome().await?) }).await?;
            outcome.text().ok_or("the turn has no text")?;
            rows.add(what, time);
        }
    }
    println!("\n| a turn, from the prompt to its outcome | median ms | least ms | beyond it, ms | ratio |");
    rows.print(&[(IN_MEMORY, BARE), (IN_FILE, BARE), (WITH_FEED, IN_FILE)]);
    session.stop().await?;
    for fleet in [memory_fleet, local_fleet, feed_fleet] {
        fleet.drain(Duration::from_secs(10)).await;
    }
    Ok(())
}

const BARE: &str = "a turn of a bare session";
const IN_MEMORY: &str = "a turn of a fleet, memory backend";
const IN_FILE: &str = "a turn of a fleet, local backend";
const WITH_FEED: &str = "a turn of a fleet, local backend with a feed";
