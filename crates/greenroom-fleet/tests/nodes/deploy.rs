//! A rolling deploy: the nodes are replaced one after another while prompts come.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use greenroom_fleet::PromptOutcome;

use crate::protocol::{Reply, Wish};
use crate::scene::{Scene, prompt};
use crate::server::Server;
use crate::wait::SOON;

const NAMES: u64 = 24;

/// Prompts under way at a time, for all names together.
const LOAD: usize = 6;

/// Prompts that come all the time, and their outcomes.
struct Load {
    scene: Scene,
    /// Requests for prompts and then for their outcomes, by node and id: the prompt's number and when it was sent.
    open: BTreeMap<(u64, u64), (u64, Instant)>,
    sent: u64,
    completed: u64,
    /// The longest time from a prompt to its outcome since it was set to zero.
    longest: Duration,
    /// Nodes that take part.
    nodes: Vec<u64>,
}

impl Load {
    /// Sends prompts, a name after another, to a node after another.
    fn send(&mut self) {
        while self.open.len() < LOAD {
            let node = self.nodes[(self.sent as usize) % self.nodes.len()];
            let name = format!("customer-{}", self.sent % NAMES);
            let id = self.scene.node(node).ask(prompt(&name, &format!("prompt {}", self.sent)));
            self.open.insert((node, id), (self.sent, Instant::now()));
            self.sent += 1;
        }
    }

    async fn step(&mut self) {
        self.scene.hear().await;
        while let Some(((node, id), reply)) = self.scene.replies.pop_first() {
            let Some((number, since)) = self.open.remove(&(node, id)) else { continue };
            match reply {
                Reply::Accepted { prompt, .. } => {
                    // A node that leaves says no outcome any more.
                    let asked = if self.nodes.contains(&node) { node } else { self.nodes[0] };
                    let id = self.scene.node(asked).ask(Wish::Outcome(prompt));
                    self.open.insert((asked, id), (number, since));
                }
                Reply::Ended(PromptOutcome::Completed { .. }) => {
                    self.completed += 1;
                    self.longest = self.longest.max(since.elapsed());
                }
                other => panic!("prompt {number}: {other:?}"),
            }
        }
    }

    async fn complete(&mut self, more: u64) {
        let wanted = self.completed + more;
        while self.completed < wanted {
            self.send();
            self.step().await;
        }
    }
}

// Guards: drain-bounded
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_deploy_refuses_and_interrupts_nothing() {
    let Some(server) = Server::of_its_own() else { return };
    // Longer than a line is waited for: a prompt that waits for a lease fails the test.
    let mut scene = Scene::new(server, SOON * 2);
    for number in 1..=3 {
        scene.start(number).await;
    }
    let (open, longest) = (BTreeMap::new(), Duration::ZERO);
    let mut load = Load { scene, open, sent: 0, completed: 0, longest, nodes: vec![1, 2, 3] };
    load.complete(100).await;
    let usual = std::mem::take(&mut load.longest);
    for old in 1..=3 {
        let new = old + 3;
        load.scene.start(new).await;
        load.nodes.push(new);
        load.complete(30).await;
        // It gets no further prompts for outcomes; those under way are asked of it until it has ended.
        load.nodes.retain(|node| *node != old);
        let (under_way, open) =
            std::mem::take(&mut load.open).into_iter().partition(|((node, _), _)| *node == old);
        load.open = open;
        let under_way: BTreeMap<(u64, u64), (u64, Instant)> = under_way;
        for (number, since) in under_way.into_values() {
            // Sent once more with its key, to a node that stays.
            let node = load.nodes[0];
            let name = format!("customer-{}", number % NAMES);
            let id = load.scene.node(node).ask(prompt(&name, &format!("prompt {number}")));
            load.open.insert((node, id), (number, since));
        }
        let _: u64 = load.scene.node(old).ask(Wish::Drain);
        while load.scene.runs(old) {
            load.send();
            load.step().await;
        }
        // Each name had a turn since.
        load.complete(NAMES + LOAD as u64).await;
    }
    let handover = load.longest;
    while !load.open.is_empty() {
        load.step().await;
    }
    assert_eq!(load.completed, load.sent);
    println!(
        "deploy of 3 nodes: {} prompts completed, none refused or interrupted; the longest took {handover:.2?} with a handover, \
         and {usual:.2?} before",
        load.completed
    );
}
