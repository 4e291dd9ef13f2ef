//! A scripted model, a home and a working directory for the real CLI, and what its tests do again and again.

#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]

use std::path::PathBuf;

use greenroom::report::Events;
use greenroom::transport::ChildProcess;
use greenroom::{Event, NoArgs, Outcome, Session, SessionBuilder, ToolContext, ToolDef, ToolServer};
use greenroom_testkit::{ModelRequest, ModelTurn, Script, ScriptedModel, ToolResultSeen};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::real;
use crate::timeline;
pub(crate) use crate::wait::{SOON, found, in_time};

/// A scripted model, and a home and a working directory for the CLIs that talk to it.
pub(crate) struct Stage {
    pub(crate) cli: PathBuf,
    pub(crate) model: ScriptedModel,
    pub(crate) home: TempDir,
    pub(crate) cwd: TempDir,
}

impl Stage {
    pub(crate) async fn new(script: Script) -> Option<Self> {
        let cli = real::real_cli()?;
        let model = ScriptedModel::start(script).await.unwrap();
        Some(Self { cli, model, home: tempfile::tempdir().unwrap(), cwd: tempfile::tempdir().unwrap() })
    }

    /// A session that tells its timeline if the test fails.
    pub(crate) fn builder(&self) -> SessionBuilder {
        let builder = real::builder(&self.cli, &self.model, self.home.path(), self.cwd.path());
        timeline::watched(builder, ChildProcess::new())
    }

    /// A session with one tool server whose tools need no permission.
    pub(crate) async fn start(&self, server: ToolServer) -> Session {
        start(self.builder().mcp_server(server).allow_server_tools("calc")).await
    }

    /// The model's newest request.
    pub(crate) fn last_request(&self) -> ModelRequest {
        self.model.requests().pop().expect("the model was asked")
    }

    /// The one tool result that the model was told in its newest request.
    pub(crate) fn last_result(&self) -> ToolResultSeen {
        let mut results = self.last_request().tool_results();
        assert_eq!(results.len(), 1, "{results:?}");
        results.remove(0)
    }
}

pub(crate) async fn start(builder: SessionBuilder) -> Session {
    in_time("the start", builder.start()).await.unwrap()
}

pub(crate) async fn stop(session: &Session) {
    in_time("the stop", session.stop()).await.unwrap();
}

pub(crate) async fn outcome(session: &Session, prompt: &str) -> Outcome {
    let mut turn = in_time("accepting the prompt", session.prompt(prompt)).await.unwrap();
    in_time("the turn", turn.outcome()).await.unwrap()
}

/// Prompts, and expects this answer.
pub(crate) async fn answers(session: &Session, prompt: &str, expected: &str) {
    let outcome = outcome(session, prompt).await;
    assert_eq!(outcome.text(), Some(expected), "{outcome:?}");
}

/// The first event that fits; those before it are dropped.
pub(crate) async fn event<T>(events: &mut Events, what: &str, fits: impl Fn(&Event) -> Option<T>) -> T {
    in_time(what, async {
        loop {
            let event = events.next().await.unwrap_or_else(|| panic!("the session ended without {what}"));
            if let Some(found) = fits(&event) {
                return found;
            }
        }
    })
    .await
}

pub(crate) fn text(text: &str) -> ModelTurn {
    ModelTurn::new().text(text)
}

pub(crate) fn call(tool: &str, input: Value) -> ModelTurn {
    ModelTurn::new().call(format!("mcp__calc__{tool}"), input)
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Add {
    pub(crate) a: f64,
    pub(crate) b: f64,
}

/// A tool that the model sees at once, and not only when it searches for it.
pub(crate) fn loaded(tool: ToolDef) -> ToolDef {
    tool.always_load(true)
}

pub(crate) fn calc() -> ToolServer {
    let add = ToolDef::new("add", "Add two numbers", async |args: Add| args.a + args.b);
    ToolServer::new("calc", "1.0.0").add_tool(loaded(add))
}

/// A tool that says when it is called, waits for its cancellation, and says that it came.
pub(crate) fn hang() -> (ToolDef, mpsc::UnboundedReceiver<&'static str>) {
    let (said, hear) = mpsc::unbounded_channel();
    let hang = ToolDef::new("hang", "Wait for ever", move |_: NoArgs, cx: ToolContext| {
        let said = said.clone();
        async move {
            said.send("called").unwrap();
            cx.cancelled().await;
            said.send("cancelled").unwrap();
        }
    });
    (loaded(hang), hear)
}

pub(crate) async fn hears(hear: &mut mpsc::UnboundedReceiver<&'static str>, expected: &str) {
    assert_eq!(in_time(expected, hear.recv()).await, Some(expected));
}
