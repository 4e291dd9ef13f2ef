//! Runs rows several times over, and prints medians, and ratios to the hosts that ran in turn with them.

use serde::{Deserialize, Serialize};

use super::greenroom_host::{Held, Recovered, Result};
use super::rows::{self, Run, Spec};

/// A row with the figures of each of its hosts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) hosts: Vec<HostRow>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HostRow {
    pub(crate) host: String,
    /// The medians.
    pub(crate) run: Run,
    /// Ratios of the calls per second to the hosts `limit` and `tokio`, and of the p50 to `tokio`: medians of the
    /// ratios of each repetition.
    pub(crate) to_limit: Option<f64>,
    pub(crate) to_tokio: Option<f64>,
    pub(crate) p50_to_tokio: Option<f64>,
    /// Ratio of the calls per second to a single session.
    pub(crate) to_one: Option<f64>,
    /// Ratio of the p99 of calls beside something to calls with nothing beside them.
    pub(crate) p99_to_beside: Option<f64>,
    /// Ratio of the processor time of a call with a subscriber to a call without.
    #[serde(default)]
    pub(crate) cpu_to_untraced: Option<f64>,
}

/// All figures of one run of the benchmark.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) rows: Vec<Row>,
    pub(crate) allocations: Option<f64>,
    /// Number of these allocations that the tool's handler makes.
    pub(crate) tool_allocations: Option<f64>,
    pub(crate) held: Option<Held>,
    pub(crate) recovered: Option<Recovered>,
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
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
        beside_p50_us: of(|run| run.beside_p50_us),
        beside_p99_us: of(|run| run.beside_p99_us),
        cpu_us: of(|run| run.cpu_us),
        driver_us: of(|run| run.driver_us),
        peak_mb: of(|run| run.peak_mb),
        threads: of(|run| run.threads),
        allocations: 0,
    }
}

/// The median of the ratios of two hosts that ran in turn.
fn ratio(ours: &[Run], theirs: Option<&Vec<Run>>, of: fn(&Run) -> f64) -> Option<f64> {
    let ratios = ours.iter().zip(theirs?).map(|(ours, theirs)| of(ours) / of(theirs));
    Some(median(ratios.collect())).filter(|ratio| ratio.is_finite())
}

/// Runs a row `times` times, its sides in turn, so that a slow moment of the machine slows all sides.
pub(crate) fn row(spec: &Spec, times: usize) -> Result<Row> {
    let mut runs: Vec<Vec<Run>> = spec.sides.iter().map(|_| Vec::new()).collect();
    for _ in 0..times {
        for (side, runs) in spec.sides.iter().zip(&mut runs) {
            runs.push(rows::run(side)?);
        }
    }
    let of = |name: &str| spec.sides.iter().position(|side| side.name == name).map(|at| &runs[at]);
    let hosts = spec.sides.iter().zip(&runs).map(|(side, runs)| HostRow {
        host: side.name.clone(),
        run: middle(runs),
        to_limit: ratio(runs, of("limit"), |run| run.per_second),
        to_tokio: ratio(runs, of("tokio"), |run| run.per_second),
        to_one: ratio(runs, of(rows::ONE_SESSION), |run| run.per_second),
        p50_to_tokio: ratio(runs, of("tokio"), |run| run.p50_us),
        p99_to_beside: Some(median(runs.iter().map(|run| run.p99_us / run.beside_p99_us).collect()))
            .filter(|ratio| ratio.is_finite()),
        cpu_to_untraced: ratio(runs, of(rows::GREENROOM), |run| run.cpu_us)
            .filter(|_| [rows::REGISTRY, rows::FMT, rows::OTEL].contains(&side.name.as_str()))
            // In a run with something beside the calls, most processor time goes into that.
            .filter(|_| runs.iter().all(|run| run.beside_p50_us == 0.0)),
    });
    Ok(Row { name: spec.name.clone(), hosts: hosts.collect() })
}

pub(crate) fn heading() {
    println!(
        "{:41} {:13} {:>8} {:>8} {:>8} {:>8} {:>6} {:>6} {:>5} {:>7} {:>7} {:>9}",
        "",
        "",
        "calls/s",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "CPU µs",
        "driver",
        "MB",
        "x limit",
        "x tokio",
        "p50/tokio"
    );
}

pub(crate) fn print(row: &Row) {
    // Empty where nothing was measured.
    let figure = |value: f64, digits: usize| match value {
        0.0 => String::new(),
        value => format!("{value:.digits$}"),
    };
    let part = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.2}"));
    let mut name = row.name.as_str();
    for HostRow { host, run, to_limit, to_tokio, p50_to_tokio, to_one, p99_to_beside, cpu_to_untraced } in
        &row.hosts
    {
        println!(
            "{name:41} {host:13} {:>8.0} {:>8} {:>8} {:>8} {:>6} {:>6} {:>5} {:>7} {:>7} {:>9}",
            run.per_second,
            figure(run.p50_us, 1),
            figure(run.p99_us, 1),
            figure(run.p999_us, 1),
            figure(run.cpu_us, 2),
            figure(run.driver_us, 2),
            figure(run.peak_mb, 1),
            part(*to_limit),
            part(*to_tokio),
            part(*p50_to_tokio)
        );
        if let Some(ratio) = p99_to_beside {
            let (p50, p99) = (run.beside_p50_us, run.beside_p99_us);
            println!(
                "{:55} with nothing beside: p50 {p50:.1} µs, p99 {p99:.1} µs; p99 is {ratio:.2} of it",
                ""
            );
        }
        if let Some(ratio) = cpu_to_untraced {
            println!("{:55} {ratio:.2} x the CPU without a subscriber", "");
        }
        if let Some(ratio) = to_one {
            println!("{:55} {:.2} threads for each session; {ratio:.2} x one session", "", run.threads);
        }
        name = "";
    }
}

pub(crate) fn print_rest(figures: &Figures) {
    if let (Some(all), Some(tool)) = (figures.allocations, figures.tool_allocations) {
        println!("\nallocations for a call, 64 in flight: {all:.2}, of which {tool:.2} are the tool's own");
    }
    if let Some(held) = &figures.held {
        println!(
            "held on the heap: idle session {} bytes, idle server {} bytes, call in flight {} bytes; threads for each \
             session in memory: {}",
            held.session, held.server, held.call, held.threads
        );
    }
    if let Some(recovered) = &figures.recovered {
        println!(
            "from the death of a server to its next answer: {:.0} µs; from the death of the CLI to the resumed session: \
             {:.0} µs (medians)",
            recovered.server_us, recovered.cli_us
        );
    }
}
