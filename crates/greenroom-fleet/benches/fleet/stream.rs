//! Messages per second through a fleet, beside those of a bare session.

use std::time::{Duration, Instant};

use greenroom::Session;
use greenroom::transport::{Exit, MemoryTransport};
use greenroom_fleet::backend::MemoryBackend;
use greenroom_fleet::{ActivationContext, Fleet, FleetSession};
use greenroom_testkit::ScriptedCli;
use serde_json::json;
use tokio::task::JoinSet;

use super::{Result, folder, local, median, prompt, raw_commit, unbounded};

/// Complete messages in a turn, of some 300 bytes each.
const MESSAGES: usize = 40_000;
/// Bytes of a message.
const BYTES: usize = 330;
/// Messages that a fleet keeps in a transaction at most.
const BATCH: usize = 2048;
/// Bytes that a fleet keeps in a row at most.
const ROW: usize = 16_000;

/// A CLI that answers each prompt with many messages, which it has ready.
fn cli(tasks: &mut JoinSet<()>) -> MemoryTransport {
    let (transport, mut listener) = ScriptedCli::by_hand();
    tasks.spawn(async move {
        while let Some(mut end) = listener.try_accept().await {
            end.handshake().await;
            let message = json!({ "type": "assistant", "session_id": end.session_id(), "uuid": "u",
                "parent_tool_use_id": null, "message": { "role": "assistant", "model": "m",
                "content": [{ "type": "text", "text": "x".repeat(150) }] } });
            let lines = format!("{message}\n").repeat(MESSAGES);
            while let Some(frame) = end.recv().await {
                if frame["type"] == "user" {
                    for part in lines.as_bytes().chunks(64 << 10) {
                        end.send_bytes(part);
                    }
                    end.finish_turn(&frame, "done");
                } else if frame["type"] == "control_request" {
                    end.answer(&frame, json!({}));
                }
            }
            end.exit(Exit::Code(0));
        }
    });
    transport
}

async fn bare(session: &Session) -> Result<Duration> {
    let start = Instant::now();
    let mut turn = session.prompt(prompt()).await?;
    let mut count = 0;
    while turn.next().await.is_some() {
        count += 1;
    }
    check(count)?;
    Ok(start.elapsed())
}

async fn through(session: &FleetSession, reads: bool) -> Result<Duration> {
    let start = Instant::now();
    let mut turn = session.prompt(prompt()).await?;
    if reads {
        let mut count = 0;
        while let Some(item) = turn.next().await {
            count += usize::from(item?.message().is_some());
        }
        check(count)?;
    } else {
        turn.outcome().await?;
    }
    Ok(start.elapsed())
}

/// All messages and the result were there.
fn check(count: usize) -> Result<()> {
    if count == MESSAGES + 1 { Ok(()) } else { Err(format!("{count} messages came").into()) }
}

pub(super) async fn measure(times: usize) -> Result<()> {
    let folder = folder()?;
    let mut tasks = JoinSet::new();
    let session = Session::builder().transport(cli(&mut tasks)).start().await?;
    let profile = |transport: MemoryTransport| {
        move |_: &ActivationContext| Session::builder().transport(transport.clone())
    };
    let memory = unbounded(Fleet::builder().backend(MemoryBackend::new()))
        .profile("default", profile(cli(&mut tasks)))
        .start()
        .await?;
    let file = local(&folder.path().join("fleet"))
        .await?
        .profile("default", profile(cli(&mut tasks)))
        .start()
        .await?;
    let (in_memory, in_file) = (memory.tenant("acme")?.session("a")?, file.tenant("acme")?.session("a")?);
    let fleets = [
        ("fleet, memory backend, nobody reads", &in_memory, false),
        ("fleet, memory backend, one reader", &in_memory, true),
        ("fleet, local backend, nobody reads", &in_file, false),
        ("fleet, local backend, one reader", &in_file, true),
    ];
    let raw = redb::Database::create(folder.path().join("raw"))?;
    let mut alone = Row::of("bare session".to_owned());
    let mut rows = vec![Row::of(format!("redb alone, {BATCH} messages a commit, in rows of 16 KB"))];
    rows.extend(fleets.iter().map(|(what, ..)| Row::of((*what).to_owned())));
    // The first round is not counted: it starts the sessions.
    for round in 0..=times {
        for (at, row) in rows.iter_mut().enumerate() {
            let beside = Figure::of(bare(&session)).await?;
            let figure = Figure::of(async {
                match at.checked_sub(1) {
                    None => alone_on_disk(&raw, round),
                    Some(at) => through(fleets[at].1, fleets[at].2).await,
                }
            });
            let figure = figure.await?;
            if round > 0 {
                row.add(&figure, &beside);
                alone.add(&beside, &beside);
            }
        }
    }
    println!(
        "\n| messages of a turn | messages/s | to a bare session | best messages/s | best to best | CPU µs a message |"
    );
    println!("|---|--:|--:|--:|--:|--:|");
    for row in std::iter::once(&alone).chain(&rows) {
        let (rate, ratio, most) = (median(&row.rates), median(&row.ratios), best(&row.rates));
        let (to_best, cpu) = (most / best(&alone.rates), median(&row.cpu));
        println!("| {} | {rate:.0} | {ratio:.2} | {most:.0} | {to_best:.2} | {cpu:.1} |", row.what);
    }
    session.stop().await?;
    memory.drain(Duration::from_secs(10)).await;
    file.drain(Duration::from_secs(10)).await;
    Ok(())
}

/// Figures of one kind of turn.
struct Row {
    what: String,
    rates: Vec<f64>,
    /// Ratios to the bare session right before.
    ratios: Vec<f64>,
    cpu: Vec<f64>,
}

impl Row {
    fn of(what: String) -> Self {
        Self { what, rates: Vec::new(), ratios: Vec::new(), cpu: Vec::new() }
    }

    fn add(&mut self, figure: &Figure, beside: &Figure) {
        self.rates.push(figure.rate);
        self.ratios.push(figure.rate / beside.rate);
        self.cpu.push(figure.cpu);
    }
}

/// Messages per second, and microseconds of processor time for each message in the whole process.
struct Figure {
    rate: f64,
    cpu: f64,
}

impl Figure {
    async fn of(turn: impl Future<Output = Result<Duration>>) -> Result<Self> {
        let before = processor_time()?;
        let time = turn.await?;
        let cpu = processor_time()? - before;
        Ok(Self { rate: MESSAGES as f64 / time.as_secs_f64(), cpu: cpu / MESSAGES as f64 })
    }
}

/// Microseconds that the threads of this process have run.
fn processor_time() -> Result<f64> {
    let mut nanoseconds = 0.0;
    for thread in std::fs::read_dir("/proc/self/task")? {
        // A thread that has ended meanwhile is left out.
        let Ok(told) = std::fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        nanoseconds += told.split_whitespace().next().unwrap_or_default().parse::<f64>()?;
    }
    Ok(nanoseconds / 1e3)
}

fn best(rates: &[f64]) -> f64 {
    rates.iter().copied().fold(0.0, f64::max)
}

/// Commits the bytes of a turn as the local backend does, with nothing else in the transactions.
fn alone_on_disk(raw: &redb::Database, round: usize) -> Result<Duration> {
    let start = Instant::now();
    for batch in 0..MESSAGES.div_ceil(BATCH) {
        let rows = (BATCH * BYTES).div_ceil(ROW);
        raw_commit(raw, rows, ROW, Some((round * MESSAGES + batch) * rows))?;
    }
    Ok(start.elapsed())
}
