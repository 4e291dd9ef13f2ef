//! Measures how near greenroom comes to the limit of the pipe. `cargo bench --bench pipe` drives these hosts with one
//! CLI, in turn and several times over, and prints medians and ratios:
//!
//! - `limit`: a blocking loop that scans for what it needs and promises nothing
//! - `value`: a blocking loop on JSON without types, the one that people write first
//! - `tokio`: the loop that people write on tokio, with typed JSON: a line, then its answer
//! - `tokio batched`: the loop on tokio with large buffers, which writes when there is nothing left to read
//! - `Python SDK`, `TypeScript SDK`, `Rust SDK`: other SDKs with the same tool, where `benches/pipe/sdks/install` has installed
//!   them
//! - `greenroom`, also with a subscriber for its spans: a registry alone, `fmt` at info into a sink,
//!   and OpenTelemetry without an exporter
//!
//! `-- --rows '64 B'` runs the rows whose name contains `64 B`; `-- --times 1` runs each row once. `-- --json FILE`
//! writes the figures, `-- --chart FILE` a chart of the figures and `-- --table FILE` tables; `-- --read FILE` reads
//! the figures of an earlier run instead of running anything. Figures are for reading: a slow machine fails nothing.
//!
//! `-- --guard` measures only figures that do not depend on the machine, and fails if one is out of its bounds.

#![allow(clippy::print_stdout, reason = "it prints figures")]

mod bare;
mod chart;
mod driver;
mod greenroom_host;
mod guard;
mod measure;
mod report;
mod rows;
mod sdks;
mod table;
mod traced;

use greenroom_host::Result;

/// Environment variable: the role of this process. Unset in the process that starts the others.
const ROLE: &str = "GREENROOM_BENCH_ROLE";
/// Environment variable: the [`Plan`](driver::Plan), as JSON.
const PLAN: &str = "GREENROOM_BENCH_PLAN";
/// Environment variable: the [`Job`](rows::Job) of a host, as JSON.
const JOB: &str = "GREENROOM_BENCH_JOB";
/// Environment variable: set if allocations are counted.
const COUNT: &str = "GREENROOM_BENCH_COUNT";

#[global_allocator]
static ALLOCATOR: measure::Counting = measure::Counting;

fn main() -> Result<()> {
    let role = std::env::var(ROLE).unwrap_or_default();
    measure::count(std::env::var_os(COUNT).is_some());
    let told = match role.as_str() {
        "" => return run_all(),
        "driver" => return Ok(driver::run(from_env(PLAN)?)?),
        "held" => serde_json::to_string(&rows::on_runtime(greenroom_host::held())??)?,
        "tool" => serde_json::to_string(&greenroom_host::tool_allocations()?)?,
        "recovered" => serde_json::to_string(&rows::on_runtime(greenroom_host::recovered())??)?,
        host => {
            traced::install(host)?;
            serde_json::to_string(&rows::host(host, from_env(PLAN)?, from_env(JOB)?)?)?
        }
    };
    println!("{told}");
    Ok(())
}

fn from_env<T: for<'a> serde::Deserialize<'a>>(name: &str) -> Result<T> {
    Ok(serde_json::from_str(&std::env::var(name)?)?)
}

fn run_all() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        arguments.iter().position(|argument| argument == name).and_then(|at| arguments.get(at + 1))
    };
    if arguments.iter().any(|argument| argument == "--guard") {
        return guard::run();
    }
    let only = value("--rows").map_or("", String::as_str);
    let times: usize = value("--times").map_or(Ok(5), |times| times.parse())?;
    let mut figures = report::Figures::default();
    // The figures of an earlier run can be drawn again.
    if let Some(file) = value("--read") {
        figures = serde_json::from_str(&std::fs::read_to_string(file)?)?;
        return write(&figures, value);
    }
    report::heading();
    for spec in rows::specs().into_iter().filter(|spec| spec.name.contains(only)) {
        let row = report::row(&spec, times)?;
        report::print(&row);
        figures.rows.push(row);
    }
    if only.is_empty() {
        figures.allocations = Some(rows::allocations_per_call()?);
        figures.tool_allocations = Some(rows::tool_allocations()?);
        figures.held = Some(rows::held()?);
        figures.recovered = Some(rows::ask("recovered", &[])?);
        report::print_rest(&figures);
    }
    write(&figures, value)
}

/// Writes the figures to the files that the arguments name.
fn write<'a>(figures: &report::Figures, value: impl Fn(&str) -> Option<&'a String>) -> Result<()> {
    if let Some(file) = value("--json") {
        std::fs::write(file, serde_json::to_string_pretty(figures)?)?;
    }
    if let Some(file) = value("--chart") {
        std::fs::write(file, chart::draw(figures))?;
    }
    if let Some(file) = value("--table") {
        table::put(file.as_ref(), figures)?;
    }
    Ok(())
}
