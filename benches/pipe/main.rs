//! How near greenroom comes to the pipe's own limit. `cargo bench --bench pipe` drives these hosts by the same CLI, one
//! after another and some times over, and prints medians and ratios:
//!
//! - `limit`: a blocking loop that scans for what it needs and promises nothing
//! - `value`: a blocking loop on JSON without types, the one that people write first
//! - `tokio`: the loop that people write on tokio, with typed JSON: a line, then its answer
//! - `tokio batched`: the same with large buffers, which writes when there is nothing left to read
//! - `greenroom`, also with a subscriber for its spans: a registry alone, `fmt` at info into a sink,
//!   and OpenTelemetry without an exporter
//!
//! `-- --rows '64 B'` runs the rows whose name contains that; `-- --times 1` runs each once. `-- --json FILE` writes the
//! figures, `-- --chart FILE` a chart of them and `-- --table FILE` tables; with `-- --read FILE` they are those of a run
//! before, and nothing is run. They are for reading: nothing fails when a machine is slow.
//!
//! `-- --guard` measures what does not depend on the machine, and fails when that is far from what it should be.

#![allow(clippy::print_stdout, reason = "it prints figures")]

mod bare;
mod chart;
mod driver;
mod greenroom_host;
mod guard;
mod measure;
mod report;
mod rows;
mod table;
mod traced;

use greenroom_host::Result;

/// In the environment: what this process is. Nothing for the one that runs the others.
const ROLE: &str = "GREENROOM_BENCH_ROLE";
/// In the environment: what is to be done.
const PLAN: &str = "GREENROOM_BENCH_PLAN";
/// In the environment: in which way a host does it.
const JOB: &str = "GREENROOM_BENCH_JOB";
/// In the environment: that allocations are counted.
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
    // What was measured before may be drawn again.
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

/// Where the arguments say.
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
