//! CLIs that a killed node has left, as real processes.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use greenroom_fleet::admin::Admin;
use greenroom_fleet::backend::Requests;
use greenroom_fleet::{
    Accept, Accepted, AttemptId, Claim, Claimed, Join, Name, NameFilter, NameQuery, NameState, NodeId,
    Ownership, PromptContent, PromptId,
};
use serde_json::{Value, json};

use super::*;
use crate::backends::accept;
use crate::scenes::outcome;

/// A CLI of a service whose guardian was killed as well.
struct LeftCli(Child);

impl Drop for LeftCli {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A node of a host owns the name `a`, for which a prompt waits, and runs a process. It never renews its lease, which is long enough for
/// another node to open meanwhile. `process`: the record of the process, for the claim.
async fn earlier_owner(
    backend: &impl Backend,
    host: &str,
    process: impl Fn(AttemptId) -> Value,
) -> (AttemptId, Ownership, PromptId) {
    let (node, attempt) = (NodeId::new(), AttemptId::new());
    backend.join(Join { node, host: host.into(), lease: Duration::from_secs(3), capacity: 8 }).await.unwrap();
    let prompt = serde_json::to_value(greenroom::Prompt::from("hello")).unwrap();
    let content = PromptContent { prompt, continuation: None };
    let accept =
        Accept { name: "default/a".parse().unwrap(), profile: "default".into(), content, ..accept("a") };
    let Accepted::New(prompt) = backend.accept(accept).await.unwrap() else { panic!("refused") };
    let name = "default/a".parse::<Name>().unwrap();
    let claim =
        Claim { name: name.clone(), node, attempt, losses: 3, quota: greenroom_fleet::Quota::default() };
    let Claimed::Won(record) = backend.claim(claim).await.unwrap() else { panic!("not won") };
    let owner = Ownership { name, node, term: record.term };
    assert!(backend.record_process(owner.clone(), Some(process(attempt))).await.unwrap().done().is_some());
    (attempt, owner, prompt.id)
}

/// [`earlier_owner`] with its CLI.
async fn earlier_node(backend: &impl Backend, host: &str) -> (LeftCli, PromptId) {
    let (attempt, _, prompt) = earlier_owner(backend, host, |attempt| json!({ "claim": attempt })).await;
    let cli = Command::new("cat")
        .env("GREENROOM_FLEET_ACTIVATION", attempt.to_string())
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    (LeftCli(cli), prompt)
}

#[tokio::test]
async fn a_cli_of_a_lost_node_of_this_host_ends_before_the_next_one_starts() {
    let world = World::new();
    let (mut cli, prompt) = earlier_node(&world.backend, "local").await;
    // A process without an environment has begun to end; it is a zombie a moment later.
    let (environment, ran) = (format!("/proc/{}/environ", cli.0.id()), Arc::new(Mutex::new(None)));
    let runs = ran.clone();
    world
        .clis
        .on_read(move |_, _| *runs.lock().unwrap() = Some(std::fs::read(&environment).unwrap_or_default()));
    let node = Node::on_host(&world, "local").await;
    assert!(cli.0.try_wait().unwrap().is_none(), "its node may live");
    assert!(outcome(node.fleet.operator().turn(prompt)).await.is_completed());
    let environment = ran.lock().unwrap().take().unwrap();
    assert!(environment.is_empty(), "it ran beside the next one");
    assert_eq!(cli.0.wait().unwrap().signal(), Some(9));
    assert_eq!(node.log.count(|event| matches!(event, FleetEvent::ProcessKilled { .. })), 1);
    assert!(world.backend.left_processes(10).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_cli_of_a_lost_node_of_another_host_is_left_alone() {
    let world = World::new();
    let (mut cli, prompt) = earlier_node(&world.backend, "there").await;
    let node = Node::on_host(&world, "here").await;
    assert!(outcome(node.fleet.operator().turn(prompt)).await.is_completed());
    assert_eq!(cli.0.try_wait().unwrap(), None, "a process of the same number may be anybody's here");
    let left = world.backend.left_processes(10).await.unwrap();
    assert_eq!(left.len(), 1, "for the next fleet there: {left:?}");

    // A fleet that opens there ends it.
    let builder =
        world.builder().host("there").configure(|limits| limits.left_processes = Duration::from_millis(10));
    let back = start(builder).await;
    assert_eq!(cli.0.wait().unwrap().signal(), Some(9));
    assert!(world.backend.left_processes(10).await.unwrap().is_empty());
    drop(back);
}

#[tokio::test(start_paused = true)]
async fn no_cli_starts_while_the_record_of_an_earlier_one_cannot_be_read() {
    let world = World::new();
    let (_, owner, prompt) = earlier_owner(&world.backend, "local", |_| json!("no identity")).await;
    let node = Node::new(&world).await;
    node.log.wait("the quarantine", |event| matches!(event, FleetEvent::Quarantined { .. })).await;
    assert_eq!(world.clis.starts_of("a"), 0, "a second CLI may run beside the first one");
    let admin = Admin::new(world.backend.clone());
    let stuck = admin.names(NameQuery::new().only(NameFilter::Stuck)).await.unwrap().names;
    let NameState::Quarantined { why, .. } = &stuck[0].state else { panic!("{stuck:?}") };
    assert!(why.contains(&format!("with the term {} cannot be read", owner.term)), "{why}");
    assert!(why.contains("remove_process"), "{why}");

    assert_eq!(admin.left_processes(owner.name.clone()).await.unwrap().len(), 1);
    assert!(admin.remove_process(owner.name.clone(), owner.term).await.unwrap());
    assert!(admin.unquarantine(owner.name).await.unwrap());
    assert!(outcome(node.fleet.operator().turn(prompt)).await.is_completed());
}
