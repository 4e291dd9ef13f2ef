//! Nodes that are stopped in the middle of a request.

use std::time::Duration;

use greenroom_fleet::{InterruptedBy, PromptOutcome};
use rustix::process::Signal;

use crate::journal::Journal;
use crate::proxy::{Flow, Side};
use crate::scene::Scene;
use crate::server::Server;
use crate::wait::in_time;

const LEASE: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_stopped_after_its_begin_writes_nothing_when_it_wakes() {
    let Some(server) = Server::of_its_own() else { return };
    let mut scene = Scene::new(server, LEASE);
    scene.start(1).await;
    // The commit of a begin is the first one that writes this.
    let held = scene.node(1).proxy.hold_at("\"is\":\"begun\"", Side::After);
    let prompt = scene.accepted(1, "a", "only once").await;
    in_time("the commit at the proxy", held).await;
    scene.node(1).signal(Signal::STOP);
    scene.start(2).await;
    // The other node finds the lease over, and ends the turn.
    match scene.outcome(2, prompt).await {
        PromptOutcome::Interrupted { by: InterruptedBy::OwnerLost { .. }, .. } => {}
        other => panic!("{other:?}"),
    }
    wake(&mut scene).await;
    let mut journal = Journal::new(&scene.scratch);
    journal.read();
    assert!(journal.starts >= 1 && journal.faults.is_empty(), "{journal:?}");
    assert_eq!(journal.texts.get("only once"), None, "the CLI was given the prompt");
}

/// The first node goes on, finds that it is dead, and ends.
async fn wake(scene: &mut Scene) {
    scene.node(1).proxy.set(Flow::Pass, Flow::Pass);
    scene.node(1).signal(Signal::CONT);
    while scene.runs(1) {
        scene.hear().await;
    }
}

/// A commit with this text is on its way when the node is stopped, and comes to the server when another node has taken the name over.
async fn a_late_commit_changes_nothing(text: &str) {
    let Some(server) = Server::of_its_own() else { return };
    let mut scene = Scene::new(server, LEASE);
    scene.start(1).await;
    let held = scene.node(1).proxy.hold_at(text, Side::Before);
    let prompt = scene.accepted(1, "a", "at most once").await;
    in_time("the commit at the proxy", held).await;
    scene.node(1).signal(Signal::STOP);
    scene.start(2).await;
    // Nobody waits for the node that is stopped: the turn ends elsewhere, and so does the next one.
    let outcome = scene.outcome(2, prompt).await;
    let next = scene.accepted(2, "a", "the next").await;
    let of_next = scene.outcome(2, next).await;
    assert!(of_next.is_completed(), "{text}: {of_next:?}");
    wake(&mut scene).await;
    assert_eq!(scene.outcome(2, prompt).await, outcome, "{text}");
    assert_eq!(scene.outcome(2, next).await, of_next, "{text}");
    let mut journal = Journal::new(&scene.scratch);
    journal.read();
    assert!(journal.faults.is_empty(), "{text}: {journal:?}");
    assert!(journal.texts.values().all(|times| *times == 1), "{text}: {:?}", journal.texts);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_arrives_when_its_node_is_dead_changes_nothing() {
    // A begin, and a finish. A node that is stopped in a claim owns nothing yet: another one claims the name without waiting for it.
    for text in ["begun", "ended"] {
        a_late_commit_changes_nothing(&format!("\"is\":\"{text}\"")).await;
    }
}
