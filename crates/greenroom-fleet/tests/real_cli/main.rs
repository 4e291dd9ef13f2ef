//! Fleets of real `claude` CLIs, which talk to a scripted model on loopback: no network, no account.
//!
//! `GREENROOM_CLI` names the executable, as for the tests of greenroom itself.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in the helpers of tests, too")]

mod cli_turns;
mod hosts;
#[path = "../storm/life.rs"]
#[allow(dead_code, reason = "the driver of the storm uses the rest")]
mod life;
mod limits;
mod parked;
#[path = "../storm/program/protocol.rs"]
#[allow(dead_code, reason = "the program of the storm uses the rest")]
mod protocol;
#[path = "../../../../tests/support/real_cli.rs"]
mod real;
#[path = "../postgres/server.rs"]
#[allow(dead_code, reason = "the tests on PostgreSQL use the rest")]
mod server;
#[path = "../../../../tests/support/wait.rs"]
mod wait;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use greenroom::options::EnvPolicy;
use greenroom::{Session, SessionBuilder};
use greenroom_fleet::backend::LocalBackend;
use greenroom_fleet::{
    Fleet, FleetEvent, FleetLimits, FleetPrompt, InterruptedBy, PassivatedBy, PromptId, PromptOutcome,
    SnapshotQuery,
};
use greenroom_testkit::{ModelTurn, Script, ScriptedModel};
use life::Life;
use protocol::{Line, REAL, RealCli, Reply, Wish};
use tempfile::TempDir;
use wait::{found, in_time};

/// A scripted model, and a folder for the CLIs' home and for the fleet.
struct Stage {
    cli: PathBuf,
    model: Arc<ScriptedModel>,
    folder: TempDir,
}

impl Stage {
    async fn new(script: Script) -> Option<Self> {
        let cli = real::real_cli()?;
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("home")).unwrap();
        Some(Self { cli, model: Arc::new(ScriptedModel::start(script).await.unwrap()), folder })
    }

    /// Opens the fleet's file, as a start of the service does.
    async fn open(&self, change: impl FnOnce(&mut FleetLimits)) -> (Fleet, LocalBackend) {
        self.open_with(|_| {}, change).await
    }

    /// The same, with another environment of the CLIs.
    async fn open_with(
        &self,
        change_env: impl FnOnce(&mut BTreeMap<String, String>),
        change: impl FnOnce(&mut FleetLimits),
    ) -> (Fleet, LocalBackend) {
        let backend = LocalBackend::open(self.folder.path().join("fleet.redb")).await.unwrap();
        let (cli, mut env) = (self.cli.clone(), real::env(&self.model, &self.folder.path().join("home")));
        change_env(&mut env);
        let profile = move |_: &_| -> SessionBuilder {
            let builder = Session::builder().cli_path(&cli).envs(env.clone()).allow_tool("Task");
            builder.configure(|options| options.env_policy = EnvPolicy::Clean)
        };
        let builder = Fleet::builder().backend(backend.clone()).profile("default", profile).configure(change);
        (in_time("the opening", builder.start()).await.unwrap(), backend)
    }

    /// Starts the program of the storm with the real CLI, and waits until its fleet is open.
    async fn begin(&self, number: u64) -> Life {
        let env = real::env(&self.model, &self.folder.path().join("home"));
        let real = serde_json::to_string(&RealCli { program: self.cli.clone(), env }).unwrap();
        let mut life = Life::begin(self.folder.path(), number, 1, &[(REAL, real)]);
        in_time("the opening", async { while !matches!(life.next().await.unwrap(), Line::Ready) {} }).await;
        life
    }

    /// Waits until the model is asked to count, which takes it ten minutes.
    async fn counts(&self) {
        let asked = || (!self.requests_with("Count to a million.").is_empty()).then_some(());
        found("the request", asked).await;
    }

    /// The texts of all requests to the model that speak of this.
    fn requests_with(&self, text: &str) -> Vec<String> {
        let requests = self.model.requests().into_iter();
        requests.map(|request| request.body().to_string()).filter(|body| body.contains(text)).collect()
    }
}

async fn asks(fleet: &Fleet, name: &str, prompt: &str) -> String {
    let mut turn = fleet.tenant("default").unwrap().session(name).unwrap().prompt(prompt).await.unwrap();
    let outcome = in_time("the turn", turn.outcome()).await.unwrap();
    outcome.text().unwrap_or_else(|| panic!("no answer: {outcome:?}")).to_owned()
}

async fn close(fleet: Fleet, backend: LocalBackend) {
    in_time("the drain", fleet.drain(Duration::from_secs(20))).await;
    backend.close().await;
}

#[tokio::test]
async fn a_session_that_was_woken_remembers() {
    let Some(stage) = Stage::new(Script::new().otherwise(ModelTurn::new().text("Noted."))).await else {
        return;
    };
    let (fleet, backend) = stage.open(|_| {}).await;
    assert_eq!(asks(&fleet, "a", "My lamp is green.").await, "Noted.");
    in_time("sleep", fleet.tenant("default").unwrap().session("a").unwrap().passivate()).await.unwrap();
    assert_eq!(fleet.operator().snapshot(SnapshotQuery::active()).await.unwrap().live, 0);
    let mut events = fleet.operator().events().unwrap();
    assert_eq!(asks(&fleet, "a", "Which colour has my lamp?").await, "Noted.");
    let resumed = loop {
        match in_time("the start", events.next()).await.unwrap().unwrap() {
            FleetEvent::Activated { resumed, .. } => break resumed,
            _ => continue,
        }
    };
    assert!(resumed);
    let asked = stage.requests_with("Which colour has my lamp?");
    assert!(
        asked.last().unwrap().contains("My lamp is green."),
        "the model is told the turn before the sleep"
    );
    close(fleet, backend).await;
}

#[tokio::test]
async fn six_names_wake_in_turn_on_two_slots_and_remember() {
    let Some(stage) = Stage::new(Script::new().otherwise(ModelTurn::new().text("Noted."))).await else {
        return;
    };
    let evict_soon = |limits: &mut FleetLimits| {
        (limits.live, limits.idle_before_eviction) = (2, Duration::from_millis(1));
    };
    let (fleet, backend) = stage.open(evict_soon).await;
    let mut events = fleet.operator().events().unwrap();
    let names = ["a", "b", "c", "d", "e", "f"];
    for name in names {
        asks(&fleet, name, &format!("I am number {name}{name}{name}.")).await;
    }
    for name in names {
        asks(&fleet, name, &format!("Who is {name}{name}{name}?")).await;
        let live = fleet.operator().snapshot(SnapshotQuery::active()).await.unwrap().live;
        assert!(live <= 2, "{live}");
        let asked = stage.requests_with(&format!("Who is {name}{name}{name}?"));
        let last = asked.last().unwrap();
        assert!(last.contains(&format!("I am number {name}{name}{name}.")));
        let others = names.iter().filter(|other| **other != name);
        for other in others {
            assert!(!last.contains(&format!("I am number {other}{other}{other}.")), "{name} hears {other}");
        }
    }
    close(fleet, backend).await;
    let mut evictions = 0;
    while let Some(event) = in_time("the events", events.next()).await {
        let event = event.unwrap();
        evictions +=
            usize::from(matches!(event, FleetEvent::Passivating { why: PassivatedBy::Eviction, .. }));
    }
    assert!(evictions >= 8, "{evictions}");
}

#[tokio::test]
async fn a_deploy_keeps_prompts_and_conversations() {
    let slow = ModelTurn::new().pause_before(Duration::from_secs(600)).text("Too late.");
    let script = Script::new().turn(ModelTurn::new().text("Noted.")).turn(slow);
    let Some(stage) = Stage::new(script.otherwise(ModelTurn::new().text("Here I am."))).await else { return };
    let (fleet, backend) = stage.open(|_| {}).await;
    let a = fleet.tenant("default").unwrap().session("a").unwrap();
    asks(&fleet, "a", "My lamp is green.").await;
    let mut events = fleet.operator().events().unwrap();
    let long =
        a.prompt(FleetPrompt::new("Count to a million.").continue_with("Go on counting.", 1)).await.unwrap();
    in_time("the turn", async {
        while !matches!(events.next().await.unwrap().unwrap(), FleetEvent::Begun { .. }) {}
    })
    .await;
    stage.counts().await;
    let waits = a.prompt("Which colour has my lamp?").await.unwrap();
    let (long, waits) = (long.prompt_id(), waits.prompt_id());
    // The turn takes ten minutes: the drain does not wait for its end.
    in_time("the drain", fleet.drain(Duration::from_secs(3))).await;
    backend.close().await;

    let (fleet, backend) = stage.open(|_| {}).await;
    let outcome = in_time("the continuation", fleet.operator().turn(long).outcome()).await.unwrap();
    assert_eq!(outcome.text(), Some("Here I am."), "{outcome:?}");
    let outcome = in_time("the queued prompt", fleet.operator().turn(waits).outcome()).await.unwrap();
    assert_eq!(outcome.text(), Some("Here I am."));
    let asked = stage.requests_with("Which colour has my lamp?");
    let last = asked.last().unwrap();
    assert!(last.contains("My lamp is green.") && last.contains("Go on counting."), "{last}");
    close(fleet, backend).await;
}

#[tokio::test]
async fn a_turn_that_a_drain_cuts_off_ends_as_interrupted_and_is_not_sent_again() {
    let slow = ModelTurn::new().pause_before(Duration::from_secs(600)).text("Too late.");
    let script = Script::new().turn(slow).otherwise(ModelTurn::new().text("Here I am."));
    let Some(stage) = Stage::new(script).await else { return };
    let (fleet, backend) = stage.open(|_| {}).await;
    let long = fleet
        .tenant("default")
        .unwrap()
        .session("a")
        .unwrap()
        .prompt("Count to a million.")
        .await
        .unwrap()
        .prompt_id();
    stage.counts().await;
    fleet.drain(Duration::from_secs(3)).await;
    backend.close().await;
    let (fleet, backend) = stage.open(|_| {}).await;
    let outcome = in_time("the outcome", fleet.operator().turn(long).outcome()).await.unwrap();
    assert!(
        matches!(outcome, PromptOutcome::Interrupted { by: InterruptedBy::Session { .. }, .. }),
        "{outcome:?}"
    );
    assert_eq!(asks(&fleet, "a", "Are you there?").await, "Here I am.");
    close(fleet, backend).await;
}

/// The reply of a service to a request.
async fn reply(life: &mut Life, wish: Wish) -> Reply {
    let wanted = life.ask(wish).await;
    in_time("the reply", async {
        loop {
            match life.next().await.expect("the service has ended") {
                Line::Reply { id, reply } if id == wanted => return reply,
                _ => {}
            }
        }
    })
    .await
}

async fn sends(life: &mut Life, text: &str) -> PromptId {
    let name = "acme/a".parse().unwrap();
    let wish = Wish::Prompt { name, key: text.to_owned(), text: text.to_owned(), continuations: 0 };
    match reply(life, wish).await {
        Reply::Accepted { prompt, .. } => prompt,
        other => panic!("{other:?}"),
    }
}

async fn ended(life: &mut Life, prompt: PromptId) -> PromptOutcome {
    match reply(life, Wish::Outcome(prompt)).await {
        Reply::Ended(outcome) => outcome,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_conversation_goes_on_after_kill_9_of_its_service_in_mid_turn() {
    let slow = ModelTurn::new().pause_before(Duration::from_secs(600)).text("Too late.");
    let script = Script::new().turn(ModelTurn::new().text("Noted.")).turn(slow);
    let Some(stage) = Stage::new(script.otherwise(ModelTurn::new().text("Here I am."))).await else { return };
    std::fs::create_dir(stage.folder.path().join("tmp")).unwrap();
    let mut life = stage.begin(1).await;
    let first = sends(&mut life, "My lamp is green.").await;
    assert_eq!(ended(&mut life, first).await.text(), Some("Noted."));
    let long = sends(&mut life, "Count to a million.").await;
    let waits = sends(&mut life, "Which colour has my lamp?").await;
    stage.counts().await;
    life.kill();
    assert!(!in_time("the kill", life.end()).await);

    let mut life = stage.begin(2).await;
    let outcome = ended(&mut life, long).await;
    assert!(
        matches!(outcome, PromptOutcome::Interrupted { by: InterruptedBy::OwnerLost { .. }, .. }),
        "{outcome:?}"
    );
    assert_eq!(ended(&mut life, waits).await.text(), Some("Here I am."));
    let asked = stage.requests_with("Which colour has my lamp?");
    assert!(
        asked.last().unwrap().contains("My lamp is green."),
        "the conversation has its memory: {asked:?}"
    );
    assert_eq!(ended(&mut life, first).await.text(), Some("Noted."), "an outcome stays");
    assert!(matches!(reply(&mut life, Wish::Drain).await, Reply::Done));
    assert!(in_time("the end", life.end()).await);
}
