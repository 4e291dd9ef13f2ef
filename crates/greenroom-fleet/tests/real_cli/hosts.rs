//! Two hosts on one database of PostgreSQL: a conversation goes on with its memory after its host was killed.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use greenroom::Session;
use greenroom::callback::InquiryAnswer;
use greenroom::options::EnvPolicy;
use greenroom_fleet::backend::{PostgresBackend, PostgresOptions};
use greenroom_fleet::{Fleet, FleetEvent, PromptId, QuestionQuery};
use greenroom_testkit::{ModelTurn, Script};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use super::{Stage, asks, in_time, real, server};

/// Set in the process of a host that is killed: its [`Host`] as JSON.
const HOST: &str = "GREENROOM_TEST_HOST";
const NOTED: &str = "the host has answered";

/// A host of a fleet, with a disk of its own.
#[derive(Serialize, Deserialize)]
struct Host {
    name: String,
    folder: PathBuf,
    cli: PathBuf,
    env: BTreeMap<String, String>,
    address: String,
    schema: String,
}

impl Host {
    fn new(stage: &Stage, name: &str, address: &str, schema: &str) -> Self {
        let folder = stage.folder.path().join(name);
        let home = folder.join("home");
        std::fs::create_dir_all(&home).unwrap();
        Self {
            name: name.to_owned(),
            cli: stage.cli.clone(),
            env: real::env(&stage.model, &home),
            folder,
            address: address.to_owned(),
            schema: schema.to_owned(),
        }
    }

    async fn fleet(&self) -> Fleet {
        let mut options = PostgresOptions::new(&self.address);
        options.schema.clone_from(&self.schema);
        let backend = PostgresBackend::connect(options).await.unwrap();
        let (cli, env) = (self.cli.clone(), self.env.clone());
        // A test has no `main` of its own.
        greenroom::guardian::use_program(env!("CARGO_BIN_EXE_greenroom-fleet-storm"));
        let builder = Fleet::builder()
            .backend(backend)
            .host(&self.name)
            .folder(self.folder.join("sessions"))
            .configure(|limits| limits.lease = Duration::from_secs(5))
            .profile("default", move |_| {
                let builder = Session::builder().cli_path(&cli).envs(env.clone());
                // The same on all hosts, as a service would deploy it.
                builder.cwd(Path::new("/")).configure(|options| options.env_policy = EnvPolicy::Clean)
            });
        in_time("the opening", builder.start()).await.unwrap()
    }
}

/// The process of the host that is killed. Without its variable there is nothing to do.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_killed_by_another_test() {
    let Ok(host) = std::env::var(HOST) else { return };
    let host: Host = serde_json::from_str(&host).unwrap();
    let fleet = host.fleet().await;
    asks(&fleet, "a", "My lamp is green.").await;
    // Not with `println!`, which is not shown for a test that has not ended.
    writeln!(std::io::stdout(), "{NOTED}").unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_goes_on_with_its_memory_after_its_host_was_killed() {
    let script = Script::new().otherwise(ModelTurn::new().text("Noted."));
    let Some(stage) = Stage::new(script).await else { return };
    let Some(address) = server::address() else { return };
    let schema = format!("real_{}", std::process::id());
    let first = Host::new(&stage, "one", &address, &schema);
    #[expect(clippy::disallowed_methods, reason = "a test's own child, which it kills")]
    let mut process = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "hosts::a_host_that_is_killed_by_another_test"])
        .env(HOST, serde_json::to_string(&first).unwrap())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    in_time("the first answer", async {
        while !lines.next_line().await.unwrap().expect("the host has ended").contains(NOTED) {}
    })
    .await;
    in_time("the kill", process.kill()).await.unwrap();

    let second = Host::new(&stage, "two", &address, &schema).fleet().await;
    assert_eq!(asks(&second, "a", "Which colour has my lamp?").await, "Noted.");
    let asked = stage.requests_with("Which colour has my lamp?");
    assert!(
        asked.last().unwrap().contains("My lamp is green."),
        "the model is told what host one was told: {asked:?}"
    );
    in_time("the drain", second.drain(Duration::from_secs(20))).await;
}

/// The process of the host that is killed while a person decides. Without its variable there is nothing to do.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_asks_and_is_killed_by_another_test() {
    let Ok(host) = std::env::var(HOST) else { return };
    let host: Host = serde_json::from_str(&host).unwrap();
    let fleet = host.fleet().await;
    let mut events = fleet.operator().events().unwrap();
    let turn = fleet.tenant("default").unwrap().session("a").unwrap().prompt("Run it.").await.unwrap();
    while !matches!(events.next().await.unwrap().unwrap(), FleetEvent::Asked { .. }) {}
    // The CLI writes its transcript some time after it asks, and the host reads it with the next batch.
    tokio::time::sleep(Duration::from_secs(3)).await;
    writeln!(std::io::stdout(), "{NOTED} {}", turn.prompt_id()).unwrap();
    std::future::pending::<()>().await;
}

// Guards: waits-for-people
#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_answered_on_another_host_after_its_host_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ran.txt");
    let command = format!("echo ran >> {}", file.display());
    let bash =
        ModelTurn::new().call("Bash", serde_json::json!({ "command": command, "description": "Do it" }));
    let script = Script::new().turn(bash).otherwise(ModelTurn::new().text("It ran."));
    let Some(stage) = Stage::new(script).await else { return };
    let Some(address) = server::address() else { return };
    let schema = format!("asks_{}", std::process::id());
    let first = Host::new(&stage, "one", &address, &schema);
    #[expect(clippy::disallowed_methods, reason = "a test's own child, which it kills")]
    let mut process = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "hosts::a_host_that_asks_and_is_killed_by_another_test"])
        .env(HOST, serde_json::to_string(&first).unwrap())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let prompt: PromptId = in_time("the question", async {
        loop {
            let line = lines.next_line().await.unwrap().expect("the host has ended");
            if let Some((_, prompt)) = line.split_once(&format!("{NOTED} ")) {
                return serde_json::from_value(prompt.trim().into()).unwrap();
            }
        }
    })
    .await;
    in_time("the kill", process.kill()).await.unwrap();
    let requests = stage.model.requests().len();

    let second = Host::new(&stage, "two", &address, &schema).fleet().await;
    let questions = second.operator().questions(QuestionQuery::new()).await.unwrap();
    let [question] = &*questions else { panic!("{questions:?}") };
    second.operator().answer(question.id, InquiryAnswer::allow()).await.unwrap();
    let outcome = in_time("the outcome", second.operator().turn(prompt).outcome()).await.unwrap();
    assert_eq!(outcome.text(), Some("It ran."), "{outcome:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "ran\n");
    assert_eq!(stage.model.requests().len(), requests + 1, "only the result of the call goes to the model");
    in_time("the drain", second.drain(Duration::from_secs(20))).await;
}

/// Asks a node of `examples/fleet_node`, and ends its input. Returns what it has printed.
async fn asks_example(stage: &Stage, host: &str, schema: &str, address: &str, line: &str) -> String {
    let program = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("examples/fleet_node");
    assert!(
        program.exists(),
        "build it: cargo build -p greenroom-fleet --features postgres --example fleet_node"
    );
    let folder = stage.folder.path();
    let (home, programs) = (folder.join(host), folder.join("programs"));
    std::fs::create_dir_all(&home).unwrap();
    std::fs::create_dir_all(&programs).unwrap();
    // An error: the link is there.
    std::os::unix::fs::symlink(&stage.cli, programs.join("claude")).ok();
    let mut env = real::env(&stage.model, &home);
    let path = std::env::var("PATH").unwrap();
    env.insert("PATH".to_owned(), format!("{}:{path}", programs.display()));
    #[expect(clippy::disallowed_methods, reason = "a test's own child, which it awaits")]
    let mut node = tokio::process::Command::new(program)
        .args([address, host])
        .env_clear()
        .envs(env)
        .env("FLEET_SCHEMA", schema)
        .env("TMPDIR", &home)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdin = node.stdin.take().unwrap();
    stdin.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    let mut lines = BufReader::new(node.stdout.take().unwrap()).lines();
    let said = in_time("the answer", lines.next_line()).await.unwrap().expect("the node has ended");
    drop(stdin);
    assert!(in_time("the drain", node.wait()).await.unwrap().success());
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_remembers_on_another_host() {
    let script = Script::new().otherwise(ModelTurn::new().text("Noted."));
    let Some(stage) = Stage::new(script).await else { return };
    let Some(address) = server::address() else { return };
    let schema = format!("example_{}", std::process::id());
    for (host, says) in [("one", "My lamp is green."), ("two", "Which colour has my lamp?")] {
        let said = asks_example(&stage, host, &schema, &address, &format!("ann: {says}")).await;
        assert_eq!(said, "ann: Noted. (completed)");
    }
    let asked = stage.requests_with("Which colour has my lamp?");
    assert!(asked.last().unwrap().contains("My lamp is green."), "{asked:?}");
}
