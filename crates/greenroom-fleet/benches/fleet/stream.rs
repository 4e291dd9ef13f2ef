//! Messages per second through a fleet, beside those of a bare session.

use std::time::{Duration, Instant};

use greenroom::Session;
use greenroom::testkit::ScriptedCli;
use greenroom::transport::{Exit, MemoryTransport};
use greenroom_fleet::backend::MemoryBackend;
use greenroom_fleet::{ActivationContext, Fleet, FleetSession};
use serde_json::json;
use tokio::task::JoinSet;

use super::{Result, folder, local, median, prompt, raw_commit, unbounded};

/// Complete messages in a turn, of some 300 bytes each.
const MESSAGES: usize = 40_000;
/// Messages that a fleet keeps in a transaction at most.
const BATCH: usize = 256;

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
                    end.send_bytes(lines.clone());
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
    let (in_memory, in_file) = (memory.session("a")?, file.session("a")?);
    let kinds = [
        ("fleet, memory backend, nobody reads", &in_memory, false),
        ("fleet, memory backend, one reader", &in_memory, true),
        ("fleet, local backend, nobody reads", &in_file, false),
        ("fleet, local backend, one reader", &in_file, true),
    ];
    let raw = redb::Database::create(folder.path().join("raw"))?;
    let (mut alone, mut limit) = (Vec::new(), Vec::new());
    let mut figures: [(Vec<f64>, Vec<f64>); 4] = Default::default();
    // The first round is not counted: it starts the sessions.
    for round in 0..=times {
        for ((_, of_fleet, reads), (rates, ratios)) in kinds.iter().zip(&mut figures) {
            let per_second = |time: Duration| MESSAGES as f64 / time.as_secs_f64();
            let bare = per_second(bare(&session).await?);
            let fleet = per_second(through(of_fleet, *reads).await?);
            if round > 0 {
                alone.push(bare);
                rates.push(fleet);
                ratios.push(fleet / bare);
            }
        }
    }
    for _ in 0..times {
        let start = Instant::now();
        for batch in 0..MESSAGES / BATCH {
            raw_commit(&raw, BATCH, 330, Some(batch * BATCH))?;
        }
        limit.push(MESSAGES as f64 / start.elapsed().as_secs_f64() / median(&alone));
    }
    println!("\n| messages of a turn | messages/s | to a bare session |\n|---|--:|--:|");
    println!("| bare session | {:.0} | 1.00 |", median(&alone));
    let limit = median(&limit);
    println!("| redb alone, {BATCH} rows a commit | {:.0} | {limit:.2} |", limit * median(&alone));
    for ((what, ..), (rates, ratios)) in kinds.iter().zip(&figures) {
        println!("| {what} | {:.0} | {:.2} |", median(rates), median(ratios));
    }
    session.stop().await?;
    memory.drain(Duration::from_secs(10)).await;
    file.drain(Duration::from_secs(10)).await;
    Ok(())
}
