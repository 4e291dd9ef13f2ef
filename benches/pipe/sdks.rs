//! Hosts on other SDKs, which `benches/pipe/sdks/install` installs: what a user would take in place of greenroom. Each is a program
//! with one tool, `echo`. The SDK starts the driver as its CLI.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::driver::{Plan, Shown};
use super::greenroom_host::Result;

/// Environment variable of a host: the executable that it starts as the CLI.
const CLI: &str = "GREENROOM_BENCH_CLI";

pub(crate) const SDKS: &[&str] = &["Python SDK", "TypeScript SDK", "Rust SDK"];

/// The names of the SDKs that are installed.
pub(crate) fn installed() -> Vec<&'static str> {
    SDKS.iter()
        .copied()
        .filter(|sdk| program(sdk).iter().all(|file| file.exists() || !file.is_absolute()))
        .collect()
}

/// The program of an SDK's host, and its argument.
fn program(sdk: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let installed = root.join(".tools/sdks");
    match sdk {
        "Python SDK" => vec![installed.join("python/bin/python"), root.join("benches/pipe/sdks/host.py")],
        // Beside the installed modules, where node looks for them.
        "TypeScript SDK" => vec!["node".into(), installed.join("host.mjs")],
        _ => vec![installed.join("target/release/bench-rust-sdk")],
    }
}

/// The figures that a host prints.
#[derive(Deserialize)]
pub(crate) struct Host {
    pub(crate) shown: Shown,
    pub(crate) cpu_seconds: f64,
    pub(crate) peak_mb: f64,
}

/// The work of an SDK's host: it is slower, and its figures settle with fewer calls.
pub(crate) fn plan(plan: &Plan) -> Plan {
    Plan { calls: (plan.calls / 10).max(plan.window).max(400), opens: true, ..plan.clone() }
}

pub(crate) fn run(sdk: &str, plan: &Plan) -> Result<Host> {
    let program = program(sdk);
    #[allow(clippy::disallowed_methods, reason = "a host that is no part of the library")]
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]).stdin(Stdio::null()).stdout(Stdio::piped());
    // The CLI inherits them. The SDKs would ask it for its version.
    command
        .env(CLI, std::env::current_exe()?)
        .env(super::ROLE, "driver")
        .env(super::PLAN, serde_json::to_string(plan)?);
    command.env("CLAUDE_AGENT_SDK_SKIP_VERSION_CHECK", "1");
    let output = command.spawn()?.wait_with_output()?;
    if !output.status.success() {
        return Err(format!("the host on the {sdk} failed: {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
