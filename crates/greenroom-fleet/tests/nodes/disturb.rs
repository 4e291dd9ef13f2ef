//! Disturbances of nodes and of the server, and the watch over nodes that are lost.

use std::time::Duration;

use greenroom_fleet::backend::{PostgresBackend, PostgresOptions, Requests};
use greenroom_fleet::{NodeId, NodeState, Page};
use rustix::process::Signal;
use tokio::time::Instant;

use crate::driver::{Driver, LEASE, Loss, Waiting};
use crate::node::Trouble;
use crate::protocol::Wish;
use crate::proxy::Flow;

/// Within ten leases another node has to declare a lost node dead, so that its names can be claimed. On the paused clock it
/// takes one lease and a second (`a_node_that_stops_renewing_is_lost_after_its_lease`); here the machine is busy.
const CLAIMABLE: Duration = LEASE.saturating_mul(10);

impl Driver {
    /// One disturbance. At most half of the nodes are in trouble at a time, and two to four nodes run.
    pub(crate) async fn disturb(&mut self) {
        let well: Vec<usize> = (0..self.nodes.len())
            .filter(|at| self.nodes[*at].ready && self.nodes[*at].trouble == Trouble::None)
            .collect();
        if self.nodes.len() < 2 || (self.nodes.len() < 4 && self.dice.percent(30)) {
            return self.start().await;
        }
        if self.dice.percent(6) {
            return self.restart_server().await;
        }
        if well.len() * 2 <= self.nodes.len() {
            return;
        }
        let at = well[self.dice.below(well.len() as u64) as usize];
        let until = Instant::now() + LEASE.mul_f64(0.2 + self.dice.below(230) as f64 / 100.0);
        match self.dice.below(100) {
            0..25 => self.kill(at),
            25..55 => self.stop(at, until),
            55..85 => self.cut(at, until),
            _ => self.drain(at),
        }
    }

    fn kill(&mut self, at: usize) {
        self.trouble(at, Trouble::Draining, "is killed");
        self.nodes[at].ready = false;
        self.counts.kills += 1;
        self.nodes[at].signal(Signal::KILL);
        self.loses(at);
    }

    fn stop(&mut self, at: usize, until: Instant) {
        self.trouble(at, Trouble::Stopped(until), "is stopped");
        self.counts.stops += 1;
        self.nodes[at].signal(Signal::STOP);
        self.loses(at);
    }

    fn cut(&mut self, at: usize, until: Instant) {
        let (up, down, is_cut) = match self.dice.below(5) {
            0 => (Flow::Hold, Flow::Hold, true),
            1 => (Flow::Hold, Flow::Pass, true),
            // Requests arrive, and their replies do not: renewals too, so the node is alive for the others.
            2 => (Flow::Pass, Flow::Hold, false),
            _ => (Flow::Slow, Flow::Slow, false),
        };
        self.trouble(
            at,
            Trouble::Cut(until),
            &format!("is cut off: {up:?} to the server, {down:?} to the node"),
        );
        self.counts.cuts += 1;
        self.nodes[at].proxy.set(up, down);
        if self.dice.percent(30) {
            self.nodes[at].proxy.close();
        }
        if is_cut {
            self.loses(at);
        }
    }

    fn drain(&mut self, at: usize) {
        self.trouble(at, Trouble::Draining, "is drained");
        self.nodes[at].ready = false;
        self.counts.drains += 1;
        self.ask(at, Wish::Drain, Waiting::Other);
    }

    async fn restart_server(&mut self) {
        self.note("the server is killed".into());
        self.counts.restarts_of_the_server += 1;
        self.losses.clear();
        tokio::task::block_in_place(|| self.server.kill_and_start());
        self.server_since = Instant::now();
        self.note("the server is back".into());
    }

    fn trouble(&mut self, at: usize, trouble: Trouble, what: &str) {
        let number = self.nodes[at].number;
        self.note(format!("node {number} {what}"));
        self.nodes[at].trouble = trouble;
        self.is_disturbed(number);
    }

    /// The node is no witness of losses any more.
    pub(crate) fn is_disturbed(&mut self, number: u64) {
        for loss in self.losses.values_mut() {
            loss.witnesses.retain(|witness| *witness != number);
        }
    }

    /// Ends the troubles whose time is over.
    pub(crate) fn recover(&mut self) {
        let now = Instant::now();
        for at in 0..self.nodes.len() {
            match self.nodes[at].trouble {
                Trouble::Stopped(until) | Trouble::Cut(until) if until <= now => self.end_trouble(at),
                _ => {}
            }
        }
    }

    pub(crate) fn end_troubles(&mut self) {
        (0..self.nodes.len()).for_each(|at| self.end_trouble(at));
    }

    fn end_trouble(&mut self, at: usize) {
        match self.nodes[at].trouble {
            Trouble::None | Trouble::Draining => return,
            Trouble::Stopped(_) => self.nodes[at].signal(Signal::CONT),
            Trouble::Cut(_) => self.nodes[at].proxy.set(Flow::Pass, Flow::Pass),
        }
        let number = self.nodes[at].number;
        self.note(format!("node {number} goes on"));
        let node = &mut self.nodes[at];
        (node.trouble, node.well_since) = (Trouble::None, Instant::now());
        if let Some(id) = node.id {
            self.losses.remove(&id);
        }
    }

    /// The node renews its lease no more. Nodes that could renew and look for two leases will say that it is dead.
    fn loses(&mut self, at: usize) {
        let now = Instant::now();
        let is_long_ago = |since: Instant| now.saturating_duration_since(since) > LEASE * 2;
        let Some(id) = self.nodes[at].id.filter(|_| is_long_ago(self.server_since)) else { return };
        let well = |node: &&crate::node::Node| {
            node.ready && node.trouble == Trouble::None && is_long_ago(node.well_since)
        };
        let witnesses: Vec<u64> = self.nodes.iter().filter(well).map(|node| node.number).collect();
        if !witnesses.is_empty() {
            self.losses.insert(id, Loss { number: self.nodes[at].number, at: now, witnesses });
        }
    }

    /// A node has said that another one is dead.
    pub(crate) fn is_lost(&mut self, by: u64, id: NodeId) {
        if let Some(loss) = self.losses.remove(&id) {
            self.note(format!("node {} is declared dead by node {by}", loss.number));
            self.counts.lost.push(loss.at.elapsed());
        }
    }

    /// Fails if a lost node was not declared dead in time by nodes that could.
    pub(crate) async fn look_at_losses(&mut self) {
        self.losses.retain(|_, loss| !loss.witnesses.is_empty());
        let is_late = |(id, loss): (&NodeId, &Loss)| (loss.at.elapsed() > CLAIMABLE).then_some(*id);
        for id in self.losses.iter().filter_map(is_late).collect::<Vec<_>>() {
            let Some(loss) = self.losses.remove(&id) else { continue };
            // The node that has declared it dead may have ended before it could tell.
            let nodes = self.database().await.nodes(None, Page::MOST).await.unwrap();
            if nodes.iter().any(|node| node.id == id && node.state != NodeState::Dead) {
                let took = loss.at.elapsed();
                let text = format!(
                    "the names of {id} are not claimable after {took:?}, {CLAIMABLE:?} at most: {loss:?}"
                );
                self.failures.push(text);
            }
        }
    }

    /// The database, past all proxies.
    async fn database(&self) -> PostgresBackend {
        let mut options = PostgresOptions::new(self.server.address());
        options.schema = "fleet".into();
        options.connections = 1;
        PostgresBackend::connect(options).await.unwrap()
    }
}
