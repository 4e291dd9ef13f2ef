//! The host `greenroom`, driven like the other hosts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::{join_all, try_join_all};
use greenroom::options::Restart;
use greenroom::transport::{Exit, memory};
use greenroom::{Event, NoArgs, Session, SessionBuilder, ToolContext, ToolDef, ToolServer};
use greenroom_testkit::{Fault, ScriptedCli};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::Notify;

use super::driver::{self, Plan, Shown};
use super::measure;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Result<T, E = BoxError> = std::result::Result<T, E>;

#[derive(Deserialize, schemars::JsonSchema)]
struct Echo {
    text: String,
}

/// The result of a call that is no echo; nobody looks at it.
#[derive(Deserialize, schemars::JsonSchema)]
struct Ignored {
    #[serde(rename = "text")]
    _text: String,
}

fn server(name: String) -> ToolServer {
    let awake = Arc::new(Notify::new());
    let sleeper = awake.clone();
    let echo = ToolDef::new("echo", "Say it again", async |args: Echo| args.text);
    let sleep = ToolDef::new("sleep", "Sleep until woken", move |_: Ignored| {
        let sleeper = sleeper.clone();
        async move { sleeper.notified().await }
    });
    let wake = ToolDef::new("wake", "Wake what sleeps", move |args: Echo| {
        let awake = awake.clone();
        async move {
            awake.notify_waiters();
            args.text
        }
    });
    ToolServer::new(name, "1.0.0").add_tool(echo).add_tool(sleep).add_tool(wake)
}

fn builder(plan: &Plan) -> SessionBuilder {
    let builder = (0..plan.servers)
        .fold(Session::builder(), |builder, n| builder.mcp_server(server(format!("bench{n}"))));
    builder.configure(|options| {
        options.limits.calls_in_flight = options.limits.calls_in_flight.max((plan.asleep + plan.window) * 2)
    })
}

async fn shown(session: &Session) -> Result<Shown> {
    let mut turn = session.prompt("go").await?;
    while turn.next().await.is_some() {}
    let result = turn.outcome().await?.into_result()?;
    Ok(serde_json::from_str(result.result.as_deref().unwrap_or_default())?)
}

/// One session over the pipes of a process.
pub(crate) async fn pipe(plan: Plan) -> Result<Shown> {
    processes(plan, 1).await.map(|(mut shown, _)| shown.remove(0))
}

/// Runs many sessions at once, each over the pipes of its own process. Returns the threads for each session too.
pub(crate) async fn processes(plan: Plan, sessions: usize) -> Result<(Vec<Shown>, f64)> {
    let driver = std::env::current_exe()?;
    let plan_text = serde_json::to_string(&plan)?;
    let start = || {
        builder(&plan)
            .cli_path(&driver)
            .env(super::ROLE, "driver")
            .env(super::PLAN, plan_text.clone())
            .configure(|options| {
                options.lock_dir = Some(concat!(env!("CARGO_TARGET_TMPDIR"), "/locks").into())
            })
            .start()
    };
    let before = threads();
    let mut running = Vec::new();
    for _ in 0..sessions {
        running.push(start().await?);
    }
    let threads = threads().saturating_sub(before) as f64 / sessions as f64;
    let shown = try_join_all(running.iter().map(shown)).await?;
    try_join_all(running.iter().map(Session::stop)).await?;
    Ok((shown, threads))
}

/// Runs many sessions at once, each over a pair in memory. Returns the calls per second of all sessions together, and
/// the threads for each session.
pub(crate) async fn in_memory(plan: Plan, sessions: usize) -> Result<(f64, f64)> {
    let (transport, mut listener) = memory();
    let before = threads();
    let played = plan.clone();
    let clis = async move {
        let mut playing = tokio::task::JoinSet::new();
        for _ in 0..sessions {
            let Some(mut cli) = listener.accept().await else { break };
            let plan = played.clone();
            playing.spawn(async move {
                let (reader, writer) = cli.take_pipes();
                let played = driver::play(plan, reader, writer).await;
                cli.exit(Exit::Code(0));
                played
            });
        }
        playing.join_all().await
    };
    let mut set = tokio::task::JoinSet::new();
    set.spawn(clis);
    let mut running = Vec::new();
    for _ in 0..sessions {
        running.push(builder(&plan).transport(transport.clone()).start().await?);
    }
    let threads = threads().saturating_sub(before) as f64 / sessions as f64;
    let begun = Instant::now();
    let shown = try_join_all(running.iter().map(shown)).await?;
    let took = begun.elapsed().as_secs_f64();
    join_all(running.iter().map(Session::stop)).await;
    if shown.iter().any(|shown| shown.wrong + shown.missing > 0) {
        return Err("answers are wrong or missing".into());
    }
    Ok(((shown.len() * plan.total()) as f64 / took, threads))
}

/// Number of allocations that the handler of `echo` needs in any case, for the arguments that it returns.
pub(crate) fn tool_allocations() -> Result<f64> {
    const CALLS: usize = 1_000;
    let arguments = json!({ "text": ".".repeat(64) }).to_string();
    let before = measure::allocations();
    for _ in 0..CALLS {
        let args: Echo = serde_json::from_str(std::hint::black_box(&arguments))?;
        std::hint::black_box(args.text);
    }
    Ok((measure::allocations() - before) as f64 / CALLS as f64)
}

/// Bytes on the heap.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) session: usize,
    pub(crate) server: usize,
    pub(crate) call: usize,
    /// Threads of the process that each further session brings.
    pub(crate) threads: f64,
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

/// Measures the memory of idle sessions without a server, of idle servers and of calls in flight. The CLI's side holds
/// only the pipes.
pub(crate) async fn held() -> Result<Held> {
    const MANY: usize = 100;
    const CALLS: usize = 1_000;
    // Makes everything that is made once and kept.
    idle(1, 1, 1).await?;
    let bare = idle(0, 1, 0).await?;
    let sessions = idle(0, 1 + MANY, 0).await?;
    let one = idle(1, 1, 0).await?;
    let servers = idle(1 + MANY, 1, 0).await?;
    let calls = idle(1, 1, CALLS).await?;
    Ok(Held {
        session: (sessions.bytes - bare.bytes) / MANY,
        server: (servers.bytes - one.bytes) / MANY,
        call: calls.bytes.saturating_sub(one.bytes) / CALLS,
        threads: sessions.threads.saturating_sub(bare.threads) as f64 / MANY as f64,
    })
}

struct Idle {
    bytes: usize,
    threads: usize,
}

/// Sessions with idle servers, and with calls asleep in each.
async fn idle(servers: usize, sessions: usize, calls: usize) -> Result<Idle> {
    let plan = Plan { servers, ..Plan::default() };
    let (transport, mut listener) = memory();
    let (before, threads_before) = (measure::held(), threads());
    let mut running = Vec::new();
    let mut clis = Vec::new();
    for _ in 0..sessions {
        let starting = builder(&plan).transport(transport.clone()).start();
        let (session, cli) = tokio::join!(starting, async {
            let mut cli = listener.accept().await.ok_or("the transport is gone")?;
            let (mut reader, mut writer) = cli.take_pipes();
            let mut line = Vec::new();
            let mut lines = BufReader::new(&mut reader);
            lines.read_until(b'\n', &mut line).await?;
            let frame = serde_json::from_slice(&line)?;
            writer.write_all(driver::initialized(&frame).as_bytes()).await?;
            Ok::<_, BoxError>((cli, reader, writer))
        });
        running.push(session?);
        clis.push(cli?);
    }
    for (session, (_, _, writer)) in running.iter().zip(&mut clis) {
        let mut lines = Vec::new();
        let call = driver::Template::new(0, "sleep", plan.payload);
        (0..calls).for_each(|number| call.write(&mut lines, number));
        writer.write_all(&lines).await?;
        drop(lines);
        // All servers have answered, and all calls have come: nothing is still being made.
        while session.snapshot().await?.servers.iter().any(|server| server.calls.len() < calls) {
            tokio::task::yield_now().await;
        }
    }
    let idle = Idle {
        bytes: measure::held().saturating_sub(before),
        threads: threads().saturating_sub(threads_before),
    };
    for (cli, reader, writer) in clis {
        drop((reader, writer));
        cli.exit(Exit::Code(0));
    }
    join_all(running.iter().map(Session::stop)).await;
    Ok(idle)
}

/// Times to recover, in microseconds: medians.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Recovered {
    /// From the death of a tool server to its first answered call.
    pub(crate) server_us: f64,
    /// From the death of the CLI to the resumed session, with a CLI that takes no time to start.
    pub(crate) cli_us: f64,
}

pub(crate) async fn recovered() -> Result<Recovered> {
    const TIMES: usize = 200;
    let at_once = Restart {
        intensity: u32::MAX,
        backoff_min: Duration::ZERO,
        backoff_max: Duration::ZERO,
        ..Restart::default()
    };
    let made = Arc::new(AtomicUsize::new(0));
    let counted = made.clone();
    let which = ToolDef::new("which", "The generation", async |_: NoArgs, cx: ToolContext<usize>| {
        cx.state().to_string()
    });
    let server = ToolServer::new("bench0", "1.0.0")
        .add_tool(which)
        .state(move || counted.fetch_add(1, Ordering::Relaxed));
    let (transport, mut listener) = ScriptedCli::by_hand();
    let builder = Session::builder().mcp_server(server).transport(transport).configure(|options| {
        options.restarts.server = at_once.clone();
        options.restarts.cli = at_once;
    });
    let (session, mut end) = tokio::join!(builder.start(), async {
        let mut end = listener.accept().await;
        end.handshake().await;
        end
    });
    let session = session?;
    let mut servers = Vec::new();
    for _ in 0..TIMES {
        let old = made.load(Ordering::Relaxed);
        let begun = Instant::now();
        session.inject(Fault::KillServer("bench0".into()));
        loop {
            let answer = end.call("bench0", "which", json!({})).await;
            let text =
                answer["result"]["content"][0]["text"].as_str().and_then(|text| text.parse::<usize>().ok());
            if text.is_some_and(|generation| generation >= old) {
                break;
            }
        }
        servers.push(begun.elapsed());
    }
    let mut clis = Vec::new();
    let mut events = session.events();
    for _ in 0..TIMES {
        let begun = Instant::now();
        end.exit(Exit::Signal(9));
        end = listener.accept().await;
        end.handshake().await;
        while !matches!(events.next().await, Some(Event::CliRestarted { .. }) | None) {}
        clis.push(begun.elapsed());
    }
    let (stopped, ()) = tokio::join!(session.stop(), end.run_out());
    stopped?;
    let median = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1e6
    };
    Ok(Recovered { server_us: median(servers), cli_us: median(clis) })
}
