//! Played through the Python SDK and through greenroom, a scenario sends the model the same requests.
//!
//! Each scenario is played twice, on the same CLI, against the same scripted model, in the same empty home and working
//! directory: by `scenario.py` with the SDK, and by `scenarios.rs` with greenroom. What the model is told in each
//! request (system prompt, tools, messages, tool results), what the application reads, and what its callbacks are asked
//! must be equal. Each difference that there is stands in `listed.rs`, with its reason. One that is not listed fails
//! the test, and so does a listed one that is no more.
//!
//! `GREENROOM_CLI` names the CLI, and `GREENROOM_PYTHON` a Python that has the packages of `requirements.txt`.
//! `.ci/run` sets both. With `GREENROOM_REQUIRE_CLI=1` each test fails if one of them is missing; otherwise all pass,
//! and one line on stderr says that they were not run.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in the helpers of tests, too")]

mod compare;
mod listed;
mod python;
#[path = "../support/real_cli.rs"]
mod real;
mod scenarios;
#[path = "../support/stage.rs"]
mod stage;
#[path = "../support/timeline.rs"]
mod timeline;
mod told;
#[path = "../support/wait.rs"]
mod wait;

use std::path::Path;

use greenroom_testkit::{Script, ScriptedModel};
use serde_json::{Value, json};
use tempfile::{Builder, TempDir};

use crate::stage::{Stage, in_time};
use crate::told::Told;

/// Plays a scenario twice and compares.
pub(crate) async fn compare(name: &str, script: Script, ours: impl AsyncFnOnce(&Stage, &Told)) {
    let (Some(cli), Some(python)) = (real::real_cli(), python::python()) else { return };
    let root = tempfile::tempdir().unwrap();
    let theirs = {
        let stage = set(&cli, &script, root.path()).await;
        let told = in_time("the scenario in Python", python::play(&python, name, &stage)).await;
        seen(&stage, told, root.path())
    };
    let ours = {
        let stage = set(&cli, &script, root.path()).await;
        let told = Told::default();
        in_time("the scenario in greenroom", ours(&stage, &told)).await;
        seen(&stage, told.into_value(), root.path())
    };
    listed::check(name, theirs, &ours);
}

/// Both get the very same folders, one after the other, so that paths are no difference.
async fn set(cli: &Path, script: &Script, root: &Path) -> Stage {
    let folder = |name| -> TempDir { Builder::new().prefix(name).rand_bytes(0).tempdir_in(root).unwrap() };
    let model = ScriptedModel::start(script.clone()).await.unwrap();
    let home = folder("home");
    scenarios::furnish(home.path());
    Stage { cli: cli.to_owned(), model, home, cwd: folder("cwd") }
}

/// Everything that is compared.
fn seen(stage: &Stage, told: Value, root: &Path) -> Value {
    let requests = stage.model.requests();
    assert!(!requests.is_empty(), "the model was not asked");
    let requests = requests.iter().map(|request| {
        let mut body = request.body().clone();
        let tools = std::mem::take(&mut body["tools"]);
        body["tool_order"] = json!(request.tool_names());
        body["tools"] = tools.as_array().into_iter().flatten().map(named).collect();
        body["of_an_agent"] = json!(request.agent_id().is_some());
        body
    });
    let requests: Vec<Value> = requests.collect();
    let seen = json!({ "requests": requests, "turns_left": stage.model.turns_left(), "told": told });
    compare::normal(&seen, root.to_str().unwrap())
}

/// A tool by its name, so that a difference says which tool it is in.
fn named(tool: &Value) -> (String, Value) {
    (tool["name"].as_str().unwrap_or_default().to_owned(), tool.clone())
}
