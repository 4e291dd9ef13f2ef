//! The Python SDK, as a child process.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tokio::process::Command;

use crate::real::{env, needed};
use crate::stage::Stage;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/differential/scenario.py");

/// A Python with the SDK; `None` if there is none and there need not be one.
pub(crate) fn python() -> Option<PathBuf> {
    needed("GREENROOM_PYTHON", "a Python with the SDK")
}

/// Plays a scenario, and returns what it was told.
pub(crate) async fn play(python: &Path, scenario: &str, stage: &Stage) -> Value {
    #[expect(clippy::disallowed_methods, reason = "a test's own child, which it waits for")]
    let child = Command::new(python)
        .args(["-I", PROGRAM, scenario])
        .env_clear()
        .envs(env(&stage.model, stage.home.path()))
        .env("GREENROOM_CLI", &stage.cli)
        .env("GREENROOM_CWD", stage.cwd.path())
        .env("GREENROOM_SERVER", env!("CARGO_BIN_EXE_greenroom-fake-cli"))
        .current_dir(stage.cwd.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let output = child.wait_with_output().await.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the scenario failed in Python: {}\n{stderr}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}
