//! The desk on the real `claude` CLI, which talks to a scripted model on loopback.
//!
//! `GREENROOM_CLI` names the executable. Without it the test says on stderr that it was not run; with
//! `GREENROOM_REQUIRE_CLI=1` a missing CLI is a failure.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use greenroom::SessionBuilder;
use greenroom::options::EnvPolicy;
use greenroom_fleet::backend::LocalBackend;
use greenroom_fleet::{BackendErrorKind, Name};
use greenroom_testkit::{ModelTurn, ScriptedModel};

use crate::support::*;

/// The real CLI's executable; `None` if there is none and there need not be one.
fn real_cli() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("GREENROOM_CLI") {
        return Some(path.into());
    }
    let required = std::env::var_os("GREENROOM_REQUIRE_CLI").is_some_and(|value| value == "1");
    assert!(!required, "GREENROOM_REQUIRE_CLI=1 and no GREENROOM_CLI that names the claude executable");
    // Not with `println!`, which is not shown for a test that passes.
    let (thread, mut stderr) = (std::thread::current(), std::io::stderr());
    let test = thread.name().unwrap_or_default();
    writeln!(stderr, "{test}: not run, for GREENROOM_CLI does not name the claude executable").unwrap();
    None
}

#[tokio::test]
async fn a_conversation_is_remembered_after_a_restart_of_the_service() {
    let Some(cli) = real_cli() else { return };
    let script = looks_and_says("On Monday.")
        .turn(ModelTurn::new().text("Hello, bob."))
        .turn(ModelTurn::new().text("As I said: on Monday."));
    let model = Arc::new(ScriptedModel::start(script).await.unwrap());
    let data = tempfile::tempdir().unwrap();
    let start = async || {
        let (cli, model) = (cli.clone(), model.clone());
        let backend = in_time("the file", async {
            loop {
                match LocalBackend::open(data.path().join("fleet.redb")).await {
                    // The thread of the last service closes the file a moment after its last handle is gone.
                    Err(error) if error.kind() == BackendErrorKind::InUse => tokio::task::yield_now().await,
                    opened => return opened.unwrap(),
                }
            }
        });
        let backend = backend.await;
        let connect = move |builder: SessionBuilder, _: &Name| {
            let builder =
                builder.cli_path(&cli).envs(model.env()).env("PATH", std::env::var("PATH").unwrap());
            builder.configure(|options| options.env_policy = EnvPolicy::Clean)
        };
        Service::at(backend, 2, connect).await
    };

    let service = start().await;
    let events = service.prompt("ada", "Where is my lamp?").await;
    let turn = events.turn.clone();
    assert_eq!(events.outcome().await["text"], "On Monday.");
    let told = model.requests().pop().unwrap().tool_results();
    assert_eq!(told[0].text, "ada's lamp from acme arrives on Monday");
    service.stop().await;
    drop(service);

    let service = start().await;
    assert_eq!(service.events(&turn, None).await.outcome().await["text"], "On Monday.");
    assert_eq!(service.outcome("bob", "Hello.").await["text"], "Hello, bob.");
    assert!(!model.requests().pop().unwrap().body().to_string().contains("Where is my lamp?"));
    assert_eq!(service.outcome("ada", "When was that?").await["text"], "As I said: on Monday.");
    let asked = model.requests().pop().unwrap().body().to_string();
    assert!(asked.contains("Where is my lamp?") && asked.contains("When was that?"), "{asked}");
    service.stop().await;
}
