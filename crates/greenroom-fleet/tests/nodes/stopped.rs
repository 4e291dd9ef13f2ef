//! A node that is stopped between the commit of a turn's begin and the first write to its CLI.

use std::time::Duration;

use greenroom_fleet::{InterruptedBy, PromptOutcome};
use rustix::process::Signal;

use crate::journal::Journal;
use crate::proxy::Flow;
use crate::scene::Scene;
use crate::server::Server;

const LEASE: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_stopped_after_its_begin_writes_nothing_when_it_wakes() {
    let Some(server) = Server::of_its_own() else { return };
    let mut scene = Scene::new(server, LEASE);
    scene.start(1).await;
    // The commit of a begin is the first one that writes this.
    let held = scene.node(1).proxy.hold_replies_after("\"is\":\"begun\"");
    let prompt = scene.accepted(1, "a", "only once").await;
    held.await;
    scene.node(1).signal(Signal::STOP);
    scene.start(2).await;
    // The other node finds the lease over, and ends the turn.
    match scene.outcome(2, prompt).await {
        PromptOutcome::Interrupted { by: InterruptedBy::OwnerLost { .. }, .. } => {}
        other => panic!("{other:?}"),
    }
    scene.node(1).proxy.set(Flow::Pass, Flow::Pass);
    scene.node(1).signal(Signal::CONT);
    while scene.runs(1) {
        scene.hear().await;
    }
    let mut journal = Journal::new(&scene.scratch);
    journal.read();
    assert!(journal.starts >= 1 && journal.faults.is_empty(), "{journal:?}");
    assert_eq!(journal.texts.get("only once"), None, "the CLI was given the prompt");
}
