//! Nodes that are killed, or cut off from their backend.

use greenroom_fleet::backend::Requests;
use greenroom_fleet::{FleetPrompt, InterruptedBy, PromptOutcome};
use tokio::time::{Instant, sleep};

use super::*;
use crate::scenes::{asks, outcome, secs, send};

fn is_lost(outcome: &PromptOutcome) -> bool {
    matches!(outcome, PromptOutcome::Interrupted { by: InterruptedBy::OwnerLost { .. }, .. })
}

#[tokio::test(start_paused = true)]
async fn names_of_a_killed_node_run_elsewhere_soon_after_its_lease() {
    let world = World::new();
    let first = Node::new(&world).await;
    let names: Vec<_> = (0..10).map(|n| format!("name-{n}")).collect();
    for name in names.iter().map(String::as_str).chain(["goes on"]) {
        asks(&first.fleet, name, "one").await;
    }
    // It is the owner of all of them before another node is there.
    let second = Node::new(&world).await;
    let mut turns = Vec::new();
    for name in &names {
        let runs = send(&second.fleet, name, "hold").await;
        turns.push((runs, send(&second.fleet, name, "two").await));
    }
    let goes_on = FleetPrompt::new("hold").continue_with("go on", 1);
    let goes_on = send(&first.fleet, "goes on", goes_on).await.prompt_id();
    world.clis.read(11 + 11).await;
    sleep(secs(3)).await;
    let killed = Instant::now();
    first.kill(&world).await;
    for (runs, waits) in turns {
        assert!(is_lost(&outcome(second.fleet.operator().turn(runs.prompt_id())).await));
        assert_eq!(outcome(waits).await.text(), Some("re: two"));
    }
    assert_eq!(outcome(second.fleet.operator().turn(goes_on)).await.text(), Some("re: go on"));
    let took = killed.elapsed();
    assert!(took <= secs(32), "{took:?}");
    assert_eq!(second.lost_nodes(), 1);
    // Panics if a name had two CLIs.
    world.clis.most_live();
}

// Guards: one-owner
#[tokio::test(start_paused = true)]
async fn a_node_that_is_cut_off_ends_its_clis_before_others_start_theirs() {
    let world = World::new();
    let first = Node::new(&world).await;
    asks(&first.fleet, "a", "one").await;
    let second = Node::new(&world).await;
    let runs = send(&second.fleet, "a", "hold").await;
    let waits = send(&second.fleet, "a", "two").await;
    world.clis.read(2).await;
    let cut = Instant::now();
    first.backend.plan(|_| Fault::Hang);
    world.clis.gone().await;
    let gone = cut.elapsed();
    assert!(gone <= secs(24), "{gone:?}");
    assert!(is_lost(&outcome(runs).await));
    assert_eq!(outcome(waits).await.text(), Some("re: two"));
    let took = cut.elapsed();
    assert!(took >= secs(25) && took <= secs(32), "{took:?}");
    assert_eq!((world.clis.starts_of("a"), world.clis.most_live()), (2, 1));
    // The one that was cut off has fenced itself, and writes nothing afterwards.
    in_time("the end of the first node", first.fleet.wait()).await;
    first.backend.disable();
    first.backend.release();
    assert_eq!(asks(&second.fleet, "a", "three").await, "re: three");
    assert_eq!(world.clis.starts_of("a"), 2);
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_backend_loses_no_node() {
    let world = World::new();
    let nodes = [Node::new(&world).await, Node::new(&world).await, Node::new(&world).await];
    let turns = [send(&nodes[0].fleet, "a", "wait 60").await, send(&nodes[1].fleet, "b", "wait 60").await];
    world.clis.read(2).await;
    sleep(secs(7)).await;
    for node in &nodes {
        node.backend.plan(|_| Fault::Fail);
    }
    sleep(secs(17)).await;
    // It comes back for one node after the other.
    for node in &nodes {
        node.backend.disable();
        sleep(secs(1)).await;
    }
    for turn in turns {
        assert_eq!(outcome(turn).await.text(), Some("re: wait 60"));
    }
    sleep(secs(120)).await;
    let lost: Vec<_> = nodes.iter().map(Node::lost_nodes).collect();
    assert_eq!(lost, [0; 3]);
    assert_eq!(world.backend.nodes(None, 10).await.unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_opens_after_a_kill_has_the_names_after_the_lease() {
    let world = World::new();
    let first = Node::new(&world).await;
    let runs = send(&first.fleet, "a", "hold").await.prompt_id();
    let waits = send(&first.fleet, "a", "two").await.prompt_id();
    world.clis.read(1).await;
    let killed = Instant::now();
    first.kill(&world).await;
    let opens = Instant::now();
    let second = Node::new(&world).await;
    // The first one counts as alive, so nothing is taken from it, and the opening waits for nothing.
    assert!(opens.elapsed() < secs(1), "{:?}", opens.elapsed());
    let waiting = second.fleet.operator().turn(runs).record().await.unwrap();
    assert!(matches!(waiting.state, greenroom_fleet::PromptState::Begun { .. }), "{waiting:?}");
    assert_eq!(outcome(second.fleet.operator().turn(waits)).await.text(), Some("re: two"));
    assert!(is_lost(&outcome(second.fleet.operator().turn(runs)).await));
    // The killed node tries to leave for 2 s, and only then the second one opens.
    assert!(killed.elapsed() <= secs(2 + 32), "{:?}", killed.elapsed());
    assert_eq!((world.clis.starts_of("a"), world.clis.most_live()), (2, 1));
}
