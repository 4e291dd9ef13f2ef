//! The rows of the benchmark: what each does, who does it, and how the figures are printed.

use std::io;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::driver::{Plan, Shown};
use super::greenroom_host::{Held, Recovered, Result};
use super::{bare, chart, greenroom_host, measure};

/// One host in one row, as it tells it itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) cpu_us: f64,
    pub(crate) peak_mb: f64,
    pub(crate) allocations: f64,
}

/// A row, and the medians of each of its hosts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) hosts: Vec<(String, Run)>,
}

/// What a host is told to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Job {
    Pipe,
    InMemory { sessions: usize },
    Processes { sessions: usize },
    Held,
    Recovered,
}

const JOB: &str = "GREENROOM_BENCH_JOB";

struct Spec {
    name: &'static str,
    plan: Plan,
    job: Job,
    hosts: &'static [&'static str],
}

const ALL: &[&str] = &["limit", "tokio", "greenroom"];
const OURS: &[&str] = &["greenroom"];

fn specs() -> Vec<Spec> {
    let pipe = |name, plan, hosts| Spec { name, plan, job: Job::Pipe, hosts };
    let plan = Plan::default;
    let large = 256 << 10;
    vec![
        pipe("64B, 1 in flight", plan(), ALL),
        pipe("64B, 64 in flight", Plan { window: 64, calls: 200_000, ..plan() }, ALL),
        pipe("64B, 1024 in flight", Plan { window: 1024, calls: 200_000, ..plan() }, ALL),
        pipe("64B, 10000 in flight", Plan { window: 10_000, calls: 200_000, ..plan() }, ALL),
        pipe("256KiB, 1 in flight", Plan { payload: large, calls: 2_000, ..plan() }, ALL),
        pipe("256KiB, 64 in flight", Plan { payload: large, window: 64, calls: 4_000, ..plan() }, ALL),
        pipe(
            "64B, 64 in flight, 100 servers",
            Plan { window: 64, calls: 200_000, servers: 100, ..plan() },
            OURS,
        ),
        pipe("64B, 1 in flight, 100000 messages", Plan { calls: 5_000, messages: 100_000, ..plan() }, ALL),
        pipe("64B, 1 in flight, none asleep", Plan { calls: 5_000, ..plan() }, OURS),
        pipe("64B, 1 in flight, 10000 asleep", Plan { calls: 5_000, asleep: 10_000, ..plan() }, OURS),
        Spec {
            name: "64B, 16 in flight, 1 session in memory",
            plan: Plan { window: 16, calls: 200_000, ..plan() },
            job: Job::InMemory { sessions: 1 },
            hosts: OURS,
        },
        Spec {
            name: "64B, 16 in flight, 1000 sessions in memory",
            plan: Plan { window: 16, calls: 200, ..plan() },
            job: Job::InMemory { sessions: 1000 },
            hosts: OURS,
        },
        Spec {
            name: "64B, 16 in flight, 100 processes",
            plan: Plan { window: 16, calls: 2_000, ..plan() },
            job: Job::Processes { sessions: 100 },
            hosts: OURS,
        },
    ]
}

/// What a process does that is a host.
pub(crate) fn host(role: &str) -> Result<()> {
    let plan: Plan = serde_json::from_str(&std::env::var(super::PLAN)?)?;
    let job: Job = serde_json::from_str(&std::env::var(JOB)?)?;
    let told = match (role, job) {
        ("limit", Job::Pipe) => {
            serde_json::to_string(&measured(&plan, || Ok(vec![bare::scan(bare::driver_command(&plan)?)?]))?)?
        }
        ("tokio", Job::Pipe) => serde_json::to_string(&measured(&plan, || {
            Ok(vec![runtime()?.block_on(bare::tokio_loop(bare::driver_command(&plan)?))?])
        })?)?,
        (_, Job::Pipe) => serde_json::to_string(&measured(&plan, || {
            Ok(vec![runtime()?.block_on(greenroom_host::pipe(&plan))?])
        })?)?,
        (_, Job::Processes { sessions }) => serde_json::to_string(&measured(&plan, || {
            runtime()?.block_on(greenroom_host::processes(&plan, sessions))
        })?)?,
        (_, Job::InMemory { sessions }) => {
            let per_second = runtime()?.block_on(greenroom_host::in_memory(&plan, sessions))?;
            let peak_mb = measure::peak_mb();
            serde_json::to_string(&Run { per_second, peak_mb, ..Run::default() })?
        }
        (_, Job::Held) => {
            measure::count(true);
            serde_json::to_string(&runtime()?.block_on(greenroom_host::held())?)?
        }
        (_, Job::Recovered) => serde_json::to_string(&runtime()?.block_on(greenroom_host::recovered())?)?,
    };
    println!("{told}");
    Ok(())
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

fn measured(plan: &Plan, host: impl FnOnce() -> Result<Vec<Shown>>) -> Result<Run> {
    measure::count(std::env::var_os("GREENROOM_BENCH_COUNT").is_some());
    let shown = host()?;
    let calls = shown.len() * (plan.calls + (plan.calls / 10).max(1) + plan.asleep);
    let wrong: usize = shown.iter().map(|shown| shown.wrong + shown.missing).sum();
    if wrong > 0 {
        return Err(format!("{wrong} answers are wrong or missing").into());
    }
    let worst = |of: fn(&Shown) -> f64| shown.iter().map(of).fold(0.0, f64::max);
    Ok(Run {
        per_second: shown.iter().map(Shown::per_second).sum(),
        p50_us: worst(|shown| shown.p50_us),
        p99_us: worst(|shown| shown.p99_us),
        p999_us: worst(|shown| shown.p999_us),
        cpu_us: measure::cpu_seconds() * 1e6 / calls as f64,
        peak_mb: measure::peak_mb(),
        allocations: measure::allocations() as f64 / calls as f64,
    })
}

/// Runs this program as a host and reads what it tells.
fn ask<T: for<'a> Deserialize<'a>>(role: &str, plan: &Plan, job: &Job, count: bool) -> Result<T> {
    #[allow(clippy::disallowed_methods, reason = "a benchmark")]
    let mut command = Command::new(std::env::current_exe()?);
    command
        .env(super::ROLE, role)
        .env(super::PLAN, serde_json::to_string(plan)?)
        .env(JOB, serde_json::to_string(job)?)
        .stdout(Stdio::piped());
    if count {
        command.env("GREENROOM_BENCH_COUNT", "1");
    }
    let output = command.spawn()?.wait_with_output()?;
    if !output.status.success() {
        return Err(format!("the host {role} failed: {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The medians of some runs.
fn middle(runs: &[Run]) -> Run {
    let of = |field: fn(&Run) -> f64| median(runs.iter().map(field).collect());
    Run {
        per_second: of(|run| run.per_second),
        p50_us: of(|run| run.p50_us),
        p99_us: of(|run| run.p99_us),
        p999_us: of(|run| run.p999_us),
        cpu_us: of(|run| run.cpu_us),
        peak_mb: of(|run| run.peak_mb),
        allocations: of(|run| run.allocations),
    }
}

/// Everything that one benchmark has shown.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) rows: Vec<Row>,
    pub(crate) held: Option<Held>,
    pub(crate) recovered: Option<Recovered>,
}

pub(crate) fn run_all() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        arguments.iter().position(|argument| argument == name).and_then(|at| arguments.get(at + 1))
    };
    let only = value("--rows").map_or("", String::as_str);
    let times: usize = value("--times").map_or(Ok(5), |times| times.parse())?;
    let mut figures = Figures { rows: Vec::new(), held: None, recovered: None };
    println!(
        "{:44} {:10} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>7} {:>6}",
        "", "", "calls/s", "p50 µs", "p99 µs", "p99.9 µs", "CPU µs", "peak MB", "allocs", "ratio"
    );
    for spec in specs().into_iter().filter(|spec| spec.name.contains(only)) {
        let mut runs: Vec<Vec<Run>> = spec.hosts.iter().map(|_| Vec::new()).collect();
        // In turn, so that a slow moment of the machine is everybody's.
        for _ in 0..times {
            for (host, runs) in spec.hosts.iter().zip(&mut runs) {
                runs.push(ask(host, &spec.plan, &spec.job, false)?);
            }
        }
        let mut row = Row { name: spec.name.to_owned(), hosts: Vec::new() };
        for (host, runs) in spec.hosts.iter().zip(&runs) {
            let mut run = middle(runs);
            if *host == "greenroom" && matches!(spec.job, Job::Pipe) {
                run.allocations = ask::<Run>(host, &spec.plan, &spec.job, true)?.allocations;
            }
            row.hosts.push(((*host).to_owned(), run));
        }
        print(&row);
        figures.rows.push(row);
    }
    if only.is_empty() {
        let held: Held = ask("greenroom", &Plan::default(), &Job::Held, false)?;
        println!(
            "\nheld on the heap: idle session {} bytes, idle server {} bytes, call in flight {} bytes; threads for each \
             session in memory: {}",
            held.session, held.server, held.call, held.threads
        );
        figures.held = Some(held);
        let recovered: Recovered = ask("greenroom", &Plan::default(), &Job::Recovered, false)?;
        println!(
            "from the death of a server to its next answer: {:.0} µs; from the death of the CLI to the resumed session: \
             {:.0} µs (medians)",
            recovered.server_us, recovered.cli_us
        );
        figures.recovered = Some(recovered);
    }
    if let Some(file) = value("--json") {
        std::fs::write(file, serde_json::to_string_pretty(&figures)?)?;
    }
    if let Some(file) = value("--chart") {
        std::fs::write(file, chart::draw(&figures))?;
    }
    Ok(())
}

fn print(row: &Row) {
    let limit = row.hosts.first().map_or(f64::NAN, |(_, run)| run.per_second);
    for (host, run) in &row.hosts {
        println!(
            "{:44} {:10} {:>9.0} {:>9.1} {:>9.1} {:>9.1} {:>8.2} {:>8.1} {:>7.1} {:>6.2}",
            row.name,
            host,
            run.per_second,
            run.p50_us,
            run.p99_us,
            run.p999_us,
            run.cpu_us,
            run.peak_mb,
            run.allocations,
            run.per_second / limit
        );
    }
}
