//! A node that drains hands its names over.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use greenroom_fleet::admin::Admin;
use greenroom_fleet::{FleetPrompt, Placement, Refused};

use super::*;
use crate::scenes::{asks, named, outcome, refused, secs, send};

const HANDOVER: Duration = Duration::from_millis(1500);

#[tokio::test(start_paused = true)]
async fn a_draining_node_hands_its_names_over_at_once() {
    let world = World::new();
    let first = Node::new(&world).await;
    let idle: Vec<_> = (0..5).map(|n| format!("idle-{n}")).collect();
    for name in idle.iter().map(String::as_str).chain(["busy"]) {
        asks(&first.fleet, name, "one").await;
    }
    let second = Node::new(&world).await;
    let runs = send(&second.fleet, "busy", "wait 8").await;
    let waits = send(&second.fleet, "busy", "two").await;
    world.clis.read(7).await;
    let drains = Instant::now();
    let fleet = first.fleet.clone();
    let draining = tokio::spawn(async move { fleet.drain(secs(20)).await });
    sleep(Duration::from_millis(10)).await;
    for name in &idle {
        assert_eq!(asks(&second.fleet, name, "two").await, "re: two");
    }
    assert!(drains.elapsed() <= HANDOVER, "{:?}", drains.elapsed());
    // The running turn ends there, and the prompt behind it runs here.
    assert_eq!(outcome(runs).await.text(), Some("re: wait 8"));
    let ended = Instant::now();
    assert_eq!(outcome(waits).await.text(), Some("re: two"));
    assert!(ended.elapsed() <= HANDOVER, "{:?}", ended.elapsed());
    in_time("the drain", draining).await.unwrap();
    assert!(drains.elapsed() <= secs(8) + HANDOVER, "{:?}", drains.elapsed());
    assert_eq!((second.lost_nodes(), world.clis.starts_of("busy")), (0, 2));
    // Panics if a name had two CLIs.
    world.clis.most_live();
}

#[tokio::test(start_paused = true)]
async fn prompts_that_wait_for_a_slot_of_a_draining_node_run_elsewhere() {
    let world = World::new();
    let small = |builder: FleetBuilder| builder.configure(|limits| limits.live = 1);
    let first = Node::with(&world, FaultedBackend::new(world.backend.clone()), small).await;
    let runs = send(&first.fleet, "runs", "wait 6").await;
    world.clis.read(1).await;
    let waits = [send(&first.fleet, "a", "one").await, send(&first.fleet, "b", "one").await];
    let second = Node::with(&world, FaultedBackend::new(world.backend.clone()), small).await;
    let opened = Instant::now();
    let fleet = first.fleet.clone();
    let draining = tokio::spawn(async move { fleet.drain(secs(20)).await });
    for waits in waits {
        assert_eq!(outcome(second.fleet.operator().turn(waits.prompt_id())).await.text(), Some("re: one"));
    }
    assert!(opened.elapsed() < secs(6), "{:?}", opened.elapsed());
    assert_eq!(outcome(second.fleet.operator().turn(runs.prompt_id())).await.text(), Some("re: wait 6"));
    in_time("the drain", draining).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_draining_node_accepts_prompts_that_another_node_runs() {
    let world = World::new();
    let first = Node::new(&world).await;
    let runs = send(&first.fleet, "runs", "wait 20").await;
    world.clis.read(1).await;
    let fleet = first.fleet.clone();
    let draining = tokio::spawn(async move { fleet.drain(secs(60)).await });
    first.log.wait("the drain", |event| matches!(event, FleetEvent::Draining)).await;
    assert_eq!(refused(&named(&first.fleet, "a"), "one").await.0, Refused::Draining, "it is alone");

    let second = Node::new(&world).await;
    assert_eq!(asks(&first.fleet, "a", "one").await, "re: one");
    let repeated = FleetPrompt::new("two").key("k");
    assert_eq!(asks(&first.fleet, "a", repeated.clone()).await, "re: two");
    assert!(send(&first.fleet, "a", repeated).await.is_duplicate());

    let fleet = second.fleet.clone();
    let holds = send(&second.fleet, "holds", "wait 5").await;
    world.clis.read(4).await;
    let other = tokio::spawn(async move { fleet.drain(secs(60)).await });
    second.log.wait("the drain", |event| matches!(event, FleetEvent::Draining)).await;
    sleep(secs(6)).await;
    assert_eq!(
        refused(&named(&first.fleet, "b"), "one").await.0,
        Refused::Draining,
        "the other one drains too"
    );
    assert!(outcome(holds).await.is_completed());
    assert!(outcome(runs).await.is_completed());
    in_time("the drain", other).await.unwrap();
    in_time("the drain", draining).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_draining_node_refuses_prompts_for_which_its_host_has_no_other_node() {
    let world = World::new();
    let on_host = |host| move |builder: FleetBuilder| builder.host(host).placement(Placement::OnHost);
    let node = |host| Node::with(&world, FaultedBackend::new(world.backend.clone()), on_host(host));
    let first = node("here").await;
    let there = node("there").await;
    assert_eq!(asks(&there.fleet, "theirs", "one").await, "re: one");
    let runs = send(&first.fleet, "runs", "wait 20").await;
    world.clis.read(2).await;
    let fleet = first.fleet.clone();
    let draining = tokio::spawn(async move { fleet.drain(secs(60)).await });
    first.log.wait("the drain", |event| matches!(event, FleetEvent::Draining)).await;
    for name in ["new", "runs"] {
        assert_eq!(refused(&named(&first.fleet, name), "one").await.0, Refused::Draining, "{name}");
    }
    assert_eq!(asks(&first.fleet, "theirs", "two").await, "re: two");
    assert!(outcome(runs).await.is_completed());
    in_time("the drain", draining).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_an_operator_asks_to_drain_hands_its_names_over() {
    let world = World::new();
    let first = Node::new(&world).await;
    assert_eq!(asks(&first.fleet, "a", "one").await, "re: one");
    let second = Node::new(&world).await;
    let admin = Admin::new(world.backend.clone());
    let owns = admin.nodes().await.unwrap().into_iter().find(|node| node.record.owns == 1).unwrap();
    assert!(owns.holds_lease && owns.lease_age <= secs(5), "{owns:?}");
    let asked = Instant::now();
    assert!(admin.drain(owns.record.id).await.unwrap());
    in_time("the end of the node", first.fleet.wait()).await;
    assert!(asked.elapsed() <= secs(6), "{:?}", asked.elapsed());
    assert_eq!(first.log.count(|event| matches!(event, FleetEvent::Left { .. })), 1);
    assert_eq!(asks(&second.fleet, "a", "two").await, "re: two");
    assert!(!admin.drain(owns.record.id).await.unwrap(), "it has left");
    let left = admin.nodes().await.unwrap();
    assert_eq!(left.len(), 1);
    assert!(!left[0].record.asked_to_drain);
}
