//! Limits of the API over several nodes: one prompt finds a limit, and one tries again.

use greenroom_fleet::{FleetTurn, Health, SnapshotQuery, Timestamp};
use tokio::time::sleep;

use super::*;
use crate::clis::ApiFailure;
use crate::scenes::{outcome, secs, send};

fn held(event: &FleetEvent) -> bool {
    matches!(event, FleetEvent::Degraded { credential: Some(_), .. })
}

/// Limits all names until a moment, in whole seconds after now.
fn limit(world: &World, after: u64) -> Timestamp {
    let at = world.backend.now().0.div_ceil(1000) + after;
    let (backend, until) = (world.backend.clone(), Timestamp(at * 1000));
    world.clis.fail_api(move |_| (backend.now() < until).then_some(ApiFailure::limit(at)));
    until
}

/// Ten prompts on each of two nodes.
async fn prompts(nodes: &[Node; 2]) -> Vec<FleetTurn> {
    let mut turns = Vec::new();
    for n in 0..10 {
        turns.push(send(&nodes[0].fleet, &format!("first-{n}"), "one").await);
        turns.push(send(&nodes[1].fleet, &format!("second-{n}"), "one").await);
    }
    turns
}

// Guards: waited-out
#[tokio::test(start_paused = true)]
async fn a_limit_that_one_node_finds_holds_the_prompts_of_all_nodes() {
    let world = World::new();
    let nodes = two(&world, false).await;
    let read = world.clis.prompts().len();
    let until = limit(&world, 30);
    let found = send(&nodes[0].fleet, "found", "one").await;
    for node in &nodes {
        node.log.wait("the limit", held).await;
    }
    let turns = prompts(&nodes).await;
    sleep(secs(20)).await;
    assert_eq!(world.clis.prompts().len() - read, 1, "one prompt has found it");
    for node in &nodes {
        let health = node.fleet.operator().snapshot(SnapshotQuery::active()).await.unwrap().health;
        let Health::Degraded { causes } = health else { panic!("it is degraded") };
        assert_eq!((causes.len(), causes[0].until), (1, Some(until)));
    }
    for turn in turns.into_iter().chain([found]) {
        assert_eq!(outcome(turn).await.text(), Some("re: one"));
    }
    assert_eq!(world.clis.prompts().len() - read, 22, "one prompt was sent twice");
    for node in &nodes {
        assert_eq!(node.log.count(held), 1);
    }
}

// Guards: waited-out
#[tokio::test(start_paused = true)]
async fn a_node_that_hears_of_no_limit_begins_no_prompt_of_the_credential() {
    let world = World::new();
    let nodes = two(&world, true).await;
    // The second node does not look either.
    nodes[1].backend.plan(|request| if request.method == "holds" { Fault::Fail } else { Fault::Pass });
    let read = world.clis.prompts().len();
    limit(&world, 30);
    let found = send(&nodes[0].fleet, "found", "one").await;
    nodes[0].log.wait("the limit", held).await;
    let turns = prompts(&nodes).await;
    sleep(secs(20)).await;
    assert_eq!(world.clis.prompts().len() - read, 1, "the backend has refused each begin");
    assert_eq!(nodes[1].log.count(held), 1);
    for turn in turns.into_iter().chain([found]) {
        assert_eq!(outcome(turn).await.text(), Some("re: one"));
    }
}

// Guards: waited-out
#[tokio::test(start_paused = true)]
async fn a_node_that_is_lost_while_it_tries_leaves_the_try_to_another() {
    let world = World::new();
    let nodes = two(&world, false).await;
    world.clis.fail_api(|_| Some(ApiFailure::OVERLOADED));
    let found = send(&nodes[0].fleet, "found", "one").await;
    nodes[1].log.wait("the failure", held).await;
    world.clis.fail_api(|_| None);
    assert!(nodes[0].fleet.operator().withdraw(found.prompt_id()).await.unwrap());
    // The next try hangs on the first node.
    let read = world.clis.prompts().len();
    drop(send(&nodes[0].fleet, "tries", "deaf").await);
    world.clis.read(read + 1).await;
    let turn = send(&nodes[1].fleet, "other", "one").await;
    sleep(secs(10)).await;
    let hold = world.backend.holds(None, 10).await.unwrap().remove(0);
    assert!(hold.trying.is_some(), "{hold:?}");
    assert_eq!(world.clis.prompts().len(), read + 1, "the other prompt waits");
    nodes[0].kill(&world).await;
    assert!(outcome(turn).await.is_completed());
}
