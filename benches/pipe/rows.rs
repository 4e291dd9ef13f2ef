//! The rows of the benchmark: what each does, and who does it.

use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::driver::{Plan, Shown};
use super::greenroom_host::{Held, Result, in_memory, pipe, processes};
use super::{bare, measure};

/// What a host is told to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Job {
    /// One session over the pipes of one process.
    Pipe,
    /// That many sessions over pairs in memory.
    InMemory { sessions: usize },
    /// That many sessions over the pipes of that many processes.
    Processes { sessions: usize },
}

/// One host in one row, as it tells it itself. Zero is what the row does not measure.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    /// Of the same run's calls that had nothing beside them.
    pub(crate) beside_p50_us: f64,
    pub(crate) beside_p99_us: f64,
    /// Processor time of the host for each call, and of the driver.
    pub(crate) cpu_us: f64,
    pub(crate) driver_us: f64,
    pub(crate) peak_mb: f64,
    /// Threads of the host for each session, beyond those that it has anyway.
    pub(crate) threads: f64,
    /// How often was allocated in the whole run, where it is counted.
    pub(crate) allocations: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) name: String,
    pub(crate) plan: Plan,
    pub(crate) job: Job,
    pub(crate) hosts: &'static [&'static str],
}

pub(crate) const GREENROOM: &str = "greenroom";
const ALL: &[&str] = &["limit", "value", "tokio", "tokio batched", GREENROOM];
const FEW: &[&str] = &["tokio", GREENROOM];
const OURS: &[&str] = &[GREENROOM];

/// All rows, in the order in which they are run.
pub(crate) fn specs() -> Vec<Spec> {
    let pipe = |name: &str, plan, hosts| Spec { name: name.to_owned(), plan, job: Job::Pipe, hosts };
    let large = Plan { payload: 256 << 10, calls: 800, ..Plan::default() };
    let small = Plan { calls: 100_000, ..Plan::default() };
    let one_by_one = Plan { calls: 10_000, ..Plan::default() };
    let beside = Plan { calls: 10_000, ..Plan::default() };
    let mut specs = vec![
        pipe("64 B, 1 in flight", one_by_one, ALL),
        pipe("64 B, 64 in flight", Plan { window: 64, ..small.clone() }, ALL),
        pipe("64 B, 1,024 in flight", Plan { window: 1024, ..small.clone() }, ALL),
        pipe("64 B, 10,000 in flight", Plan { window: 10_000, ..small.clone() }, ALL),
        pipe("256 KiB, 1 in flight", large.clone(), ALL),
        pipe("256 KiB, 64 in flight", Plan { window: 64, ..large.clone() }, ALL),
        pipe("256 KiB, 1,024 in flight", Plan { window: 1024, ..large }, ALL),
        pipe("100 servers, 64 B, 64 in flight", Plan { window: 64, servers: 100, ..small.clone() }, OURS),
        pipe("100,000 messages past, 64 B, 1 in flight", Plan { messages: 100_000, ..beside.clone() }, FEW),
        pipe("10,000 asleep, 64 B, 1 in flight", Plan { asleep: 10_000, ..beside }, OURS),
    ];
    // As many calls and as many in flight, in one session and in a thousand.
    for (sessions, window) in [(1, 1_000), (1_000, 1), (1, 10_000), (1_000, 10)] {
        specs.push(Spec {
            name: in_memory_name(sessions, window),
            plan: Plan { window, calls: 100_000 / sessions, ..Plan::default() },
            job: Job::InMemory { sessions },
            hosts: OURS,
        });
    }
    for (sessions, window) in [(1, 64), (200, 1)] {
        specs.push(Spec {
            name: format!("{sessions} process{}, {window} in flight in each", ["es", ""][sessions % 2]),
            plan: Plan { window, calls: 100_000 / sessions, ..Plan::default() },
            job: Job::Processes { sessions },
            hosts: OURS,
        });
    }
    specs
}

pub(crate) fn in_memory_name(sessions: usize, window: usize) -> String {
    format!("{sessions} in memory, {window} in flight in each")
}

/// What a process does that is a host.
pub(crate) fn host(role: &str, plan: Plan, job: Job) -> Result<Run> {
    let calls = plan.total();
    let shown: Vec<Shown> = match (role, job) {
        ("limit", Job::Pipe) => vec![bare::scan(bare::driver_command(&plan)?)?],
        ("value", Job::Pipe) => vec![bare::value(bare::driver_command(&plan)?)?],
        ("tokio", Job::Pipe) => vec![on_runtime(bare::on_tokio(bare::driver_command(&plan)?))??],
        ("tokio batched", Job::Pipe) => {
            vec![on_runtime(bare::on_tokio_batched(bare::driver_command(&plan)?))??]
        }
        (GREENROOM, Job::Pipe) => vec![on_runtime(pipe(plan))??],
        (GREENROOM, Job::Processes { sessions }) => {
            let (shown, threads) = on_runtime(processes(plan, sessions))??;
            return told(&shown, calls).map(|run| Run { threads, ..run });
        }
        (GREENROOM, Job::InMemory { sessions }) => {
            let (per_second, threads) = on_runtime(in_memory(plan, sessions))??;
            return Ok(Run { per_second, threads, peak_mb: measure::peak_mb(), ..Run::default() });
        }
        (role, job) => return Err(format!("the host {role} does not do {job:?}").into()),
    };
    told(&shown, calls)
}

/// Runs it as a task on a runtime of many threads: the thread that waits for it is none of those that work.
pub(crate) fn on_runtime<T: Send + 'static>(host: impl Future<Output = T> + Send + 'static) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn_on(host, runtime.handle());
    Ok(runtime.block_on(tasks.join_next()).ok_or("there is no task")??)
}

fn told(shown: &[Shown], calls_of_each: usize) -> Result<Run> {
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
        beside_p50_us: worst(|shown| shown.beside_p50_us),
        beside_p99_us: worst(|shown| shown.beside_p99_us),
        cpu_us: measure::cpu_seconds() * 1e6 / (shown.len() * calls_of_each) as f64,
        driver_us: worst(|shown| shown.driver_us),
        peak_mb: measure::peak_mb(),
        threads: 0.0,
        allocations: measure::allocations(),
    })
}

/// Runs this program in that role and reads what it tells.
pub(crate) fn ask<T: for<'a> Deserialize<'a>>(role: &str, environment: &[(&str, String)]) -> Result<T> {
    #[allow(clippy::disallowed_methods, reason = "a benchmark")]
    let mut command = Command::new(std::env::current_exe()?);
    command.env(super::ROLE, role).envs(environment.iter().cloned()).stdout(Stdio::piped());
    let output = command.spawn()?.wait_with_output()?;
    if !output.status.success() {
        return Err(format!("the host {role} failed: {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Runs that row once with that host.
pub(crate) fn run(spec: &Spec, host: &str) -> Result<Run> {
    let job = serde_json::to_string(&spec.job)?;
    ask(host, &[(super::PLAN, serde_json::to_string(&spec.plan)?), (super::JOB, job)])
}

/// How often greenroom allocates for one call, with the pipe of a process: what more calls have more.
pub(crate) fn allocations_per_call() -> Result<f64> {
    let counted = |calls| -> Result<(f64, f64)> {
        let plan = Plan { window: 64, calls, ..Plan::default() };
        let run: Run = ask(
            GREENROOM,
            &[
                (super::PLAN, serde_json::to_string(&plan)?),
                (super::JOB, serde_json::to_string(&Job::Pipe)?),
                (super::COUNT, "1".to_owned()),
            ],
        )?;
        Ok((run.allocations as f64, plan.total() as f64))
    };
    let ((few, few_calls), (many, many_calls)) = (counted(20_000)?, counted(60_000)?);
    Ok((many - few) / (many_calls - few_calls))
}

/// What idle sessions, idle servers and calls in flight hold.
pub(crate) fn held() -> Result<Held> {
    ask("held", &[(super::COUNT, "1".to_owned())])
}
