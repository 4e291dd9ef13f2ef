//! A node that drains hands its names over.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::*;
use crate::scenes::{asks, outcome, secs, send};

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
    within("the drain", draining).await.unwrap();
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
        assert_eq!(outcome(second.fleet.turn(waits.prompt_id())).await.text(), Some("re: one"));
    }
    assert!(opened.elapsed() < secs(6), "{:?}", opened.elapsed());
    assert_eq!(outcome(second.fleet.turn(runs.prompt_id())).await.text(), Some("re: wait 6"));
    within("the drain", draining).await.unwrap();
}
