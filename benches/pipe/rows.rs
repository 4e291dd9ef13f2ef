//! The rows of the benchmark: the work of each row, and its hosts.

use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::driver::{Plan, Shown};
use super::greenroom_host::{Held, Result, in_memory, pipe, processes};
use super::{bare, measure, sdks};

/// The job of a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Job {
    /// One session over the pipes of one process.
    Pipe,
    /// Many sessions over pairs in memory.
    InMemory { sessions: usize },
    /// Many sessions, each over the pipes of its own process.
    Processes { sessions: usize },
}

/// The figures of one host in one row, as the host tells them. Zero stands for a figure that the row does not measure.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    /// The times of this run's calls that had nothing beside them.
    pub(crate) beside_p50_us: f64,
    pub(crate) beside_p99_us: f64,
    /// Processor time of the host for each call, and of the driver.
    pub(crate) cpu_us: f64,
    pub(crate) driver_us: f64,
    pub(crate) peak_mb: f64,
    /// Threads of the host for each session, beyond the threads of a host without sessions.
    pub(crate) threads: f64,
    /// Number of allocations of the whole run, if they are counted.
    pub(crate) allocations: usize,
}

/// Sides that run in turn and are compared.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) name: String,
    pub(crate) sides: Vec<Side>,
}

#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub(crate) name: String,
    host: &'static str,
    plan: Plan,
    job: Job,
}

pub(crate) const GREENROOM: &str = "greenroom";
/// Hosts of greenroom with a subscriber: a registry that only keeps spans, and two subscribers that people use.
pub(crate) const REGISTRY: &str = "greenroom, spans";
pub(crate) const FMT: &str = "greenroom, fmt";
pub(crate) const OTEL: &str = "greenroom, otel";
/// The side that rows with many sessions are compared with.
pub(crate) const ONE_SESSION: &str = "1 session";
const ALL: &[&str] = &["limit", "value", "tokio", "tokio batched", GREENROOM];
const FEW: &[&str] = &["tokio", GREENROOM];
const OURS: &[&str] = &[GREENROOM];
const TRACED: &[&str] = &[GREENROOM, REGISTRY, FMT, OTEL];

impl Spec {
    /// A row of these hosts, each with this plan, over one pipe.
    fn pipe(name: &str, plan: Plan, hosts: &[&'static str]) -> Self {
        Self {
            name: name.to_owned(),
            sides: hosts.iter().map(|host| Side::pipe(host, plan.clone())).collect(),
        }
    }

    /// Adds the other SDKs.
    fn with_sdks(mut self, plan: &Plan) -> Self {
        self.sides.extend(sdks::installed().into_iter().map(|sdk| Side::pipe(sdk, sdks::plan(plan))));
        self
    }

    /// A row that compares one session with many sessions.
    fn sessions(name: String, many: usize, one: Plan, each: Plan, job: fn(usize) -> Job) -> Self {
        let side = |name: String, plan: Plan, job| Side { name, host: GREENROOM, plan, job };
        let sides = vec![
            side(ONE_SESSION.to_owned(), one, job(1)),
            side(format!("{many} sessions"), each, job(many)),
        ];
        Self { name, sides }
    }
}

impl Side {
    pub(crate) fn pipe(host: &'static str, plan: Plan) -> Self {
        Self { name: host.to_owned(), host, plan, job: Job::Pipe }
    }

    pub(crate) fn in_memory(sessions: usize, plan: Plan) -> Self {
        Self { name: String::new(), host: GREENROOM, plan, job: Job::InMemory { sessions } }
    }

    pub(crate) fn processes(sessions: usize, plan: Plan) -> Self {
        Self { name: String::new(), host: GREENROOM, plan, job: Job::Processes { sessions } }
    }
}

/// All rows, in the order in which they are run.
pub(crate) fn specs() -> Vec<Spec> {
    let large = Plan { payload: 256 << 10, calls: 800, ..Plan::default() };
    let small = Plan { calls: 100_000, ..Plan::default() };
    let one_by_one = Plan { calls: 10_000, ..Plan::default() };
    let many = Plan { window: 64, ..small.clone() };
    let many_large = Plan { window: 64, ..large.clone() };
    let mut specs = vec![
        Spec::pipe("64 B, 1 in flight", one_by_one.clone(), ALL).with_sdks(&one_by_one),
        Spec::pipe("64 B, 64 in flight", many.clone(), ALL).with_sdks(&many),
        Spec::pipe("64 B, 1,024 in flight", Plan { window: 1024, ..small.clone() }, ALL),
        Spec::pipe("64 B, 10,000 in flight", Plan { window: 10_000, ..small.clone() }, ALL),
        Spec::pipe("256 KiB, 1 in flight", large.clone(), ALL),
        Spec::pipe("256 KiB, 64 in flight", many_large.clone(), ALL).with_sdks(&many_large),
        Spec::pipe("256 KiB, 1,024 in flight", Plan { window: 1024, ..large }, ALL),
        Spec::pipe(
            "100 servers, 64 B, 64 in flight",
            Plan { window: 64, servers: 100, ..small.clone() },
            OURS,
        ),
        Spec::pipe(
            "100,000 messages past, 64 B, 1 in flight",
            Plan { messages: 100_000, ..one_by_one.clone() },
            FEW,
        ),
        Spec::pipe("traced, 64 B, 64 in flight", Plan { window: 64, ..small.clone() }, TRACED),
        Spec::pipe("traced, 64 B, 10,000 in flight", Plan { window: 10_000, ..small.clone() }, TRACED),
        Spec::pipe("10,000 asleep, 64 B, 1 in flight", Plan { asleep: 10_000, ..one_by_one.clone() }, OURS),
        Spec::pipe("traced, 10,000 asleep, 64 B, 1 in flight", Plan { asleep: 10_000, ..one_by_one }, TRACED),
    ];
    for each in [1, 10] {
        let one = Plan { window: 1_000 * each, ..small.clone() };
        let name = format!("in memory, {} in flight in all", one.window);
        // Enough calls for each session that the turns themselves do not count.
        let plan = Plan { window: each, calls: 1_000, ..small.clone() };
        specs.push(Spec::sessions(name, 1_000, one, plan, |sessions| Job::InMemory { sessions }));
    }
    let ten = Plan { window: 10, ..small.clone() };
    let each = Plan { calls: 1_000, ..ten.clone() };
    let name = "in memory, 10 in flight in each session".to_owned();
    specs.push(Spec::sessions(name, 1_000, ten, each, |sessions| Job::InMemory { sessions }));
    let (one, each) = (Plan { window: 200, ..small.clone() }, Plan { calls: small.calls / 200, ..small });
    let name = "processes, 200 in flight in all".to_owned();
    specs.push(Spec::sessions(name, 200, one, each, |sessions| Job::Processes { sessions }));
    specs
}

/// Does the work of a host.
pub(crate) fn host(role: &str, plan: Plan, job: Job) -> Result<Run> {
    if plan.one_processor {
        // This is the host's only thread so far.
        measure::stay_on_one_processor()?;
    }
    let calls = plan.total();
    let shown: Vec<Shown> = match (role, job) {
        ("limit", Job::Pipe) => vec![bare::scan(bare::driver_command(&plan)?)?],
        ("value", Job::Pipe) => vec![bare::value(bare::driver_command(&plan)?)?],
        ("tokio", Job::Pipe) => vec![on_runtime(bare::on_tokio(bare::driver_command(&plan)?))??],
        ("tokio batched", Job::Pipe) => {
            vec![on_runtime(bare::on_tokio_batched(bare::driver_command(&plan)?))??]
        }
        (GREENROOM | REGISTRY | FMT | OTEL, Job::Pipe) => vec![on_runtime(pipe(plan))??],
        (GREENROOM, Job::Processes { sessions }) => {
            let (shown, threads) = on_runtime(processes(plan, sessions))??;
            return told(&shown, calls).map(|run| Run { threads, ..run });
        }
        (GREENROOM, Job::InMemory { sessions }) => {
            let (per_second, threads) = on_runtime(in_memory(plan, sessions))??;
            return Ok(Run { per_second, threads, peak_mb: measure::peak_mb(), ..Run::default() });
        }
        (sdk, Job::Pipe) if sdks::SDKS.contains(&sdk) => {
            let sdks::Host { shown, cpu_seconds, peak_mb } = sdks::run(sdk, &plan)?;
            return told(&[shown], calls).map(|run| Run {
                cpu_us: cpu_seconds * 1e6 / calls as f64,
                peak_mb,
                ..run
            });
        }
        (role, job) => return Err(format!("the host {role} does not do {job:?}").into()),
    };
    told(&shown, calls)
}

/// Runs a host as a task on a runtime of many threads. The waiting thread is none of the runtime's workers.
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

/// Runs this program in a role, and reads the figures that it prints.
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

/// Runs a side once.
pub(crate) fn run(side: &Side) -> Result<Run> {
    let job = serde_json::to_string(&side.job)?;
    ask(side.host, &[(super::PLAN, serde_json::to_string(&side.plan)?), (super::JOB, job)])
}

/// Number of allocations of greenroom for one call over the pipe of a process, as the difference of two runs.
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

/// Memory of idle sessions, idle servers and calls in flight.
pub(crate) fn held() -> Result<Held> {
    ask("held", &[(super::COUNT, "1".to_owned())])
}

/// Number of allocations of the tool itself for one call.
pub(crate) fn tool_allocations() -> Result<f64> {
    ask("tool", &[(super::COUNT, "1".to_owned())])
}
