//! How near greenroom comes to the pipe's own limit. `cargo bench --bench pipe` drives three hosts by the same CLI, one
//! after another and some times over, and prints medians and ratios:
//!
//! - `limit`: a blocking loop that scans for what it needs and promises nothing
//! - `tokio`: a loop on tokio with typed JSON
//! - `greenroom`
//!
//! `-- --rows 64B` runs the rows whose name contains that; `-- --times 1` runs each once; `-- --json FILE` and
//! `-- --chart FILE` write the figures and a chart of them. The figures are for reading: nothing here fails when a
//! machine is slow. `-- --guard` does fail, when a ratio of one run is far from what it should be.

#![allow(clippy::print_stdout, reason = "it prints figures")]

mod bare;
mod chart;
mod driver;
mod greenroom_host;
mod measure;
mod rows;

use greenroom_host::Result;

/// In the environment: what this process is. Nothing for the one that runs the others.
const ROLE: &str = "GREENROOM_BENCH_ROLE";
/// In the environment: what is to be done.
const PLAN: &str = "GREENROOM_BENCH_PLAN";

#[global_allocator]
static ALLOCATOR: measure::Counting = measure::Counting;

fn main() -> Result<()> {
    match std::env::var(ROLE).ok().as_deref() {
        None => rows::run_all(),
        Some("driver") => Ok(driver::run(serde_json::from_str(&std::env::var(PLAN)?)?)?),
        Some(role) => rows::host(role),
    }
}
