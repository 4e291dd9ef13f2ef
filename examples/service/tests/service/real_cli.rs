//! The service on the real `claude` CLI, which talks to a scripted model on loopback.
//!
//! `GREENROOM_CLI` names the executable. Without it the test says on stderr that it was not run; with
//! `GREENROOM_REQUIRE_CLI=1` a missing CLI is a failure.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use greenroom::options::EnvPolicy;
use greenroom::testkit::{ModelTurn, ScriptedModel};

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
    let data = Arc::new(tempfile::tempdir().unwrap());
    let start = || {
        let (cli, model) = (cli.clone(), model.clone());
        Service::at(data.clone(), 2, move |builder, _| {
            let builder =
                builder.cli_path(&cli).envs(model.env()).env("PATH", std::env::var("PATH").unwrap());
            builder.configure(|options| options.env_policy = EnvPolicy::Clean)
        })
    };

    let service = start();
    assert_eq!(service.outcome("ada", "Where is my lamp?").await["text"], "On Monday.");
    let told = model.requests().pop().unwrap().tool_results();
    assert_eq!(told[0].text, "ada's lamp arrives on Monday");
    in_time("the stop", service.users.stop()).await;

    let service = start();
    assert_eq!(service.outcome("bob", "Hello.").await["text"], "Hello, bob.");
    assert!(!model.requests().pop().unwrap().body().to_string().contains("Where is my lamp?"));
    assert_eq!(service.outcome("ada", "When was that?").await["text"], "As I said: on Monday.");
    let asked = model.requests().pop().unwrap().body().to_string();
    assert!(asked.contains("Where is my lamp?") && asked.contains("When was that?"), "{asked}");
    in_time("the stop", service.users.stop()).await;
}
