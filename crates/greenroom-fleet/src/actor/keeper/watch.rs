//! The watch over the other nodes: a node whose lease has passed is declared dead, and its names are recovered.
//!
//! ```text
//!  seen ── its counter stands still for its lease, on this node's clock ──► declared dead ── recover, batch by batch ──► (gone)
//!   ▲ │
//!   └─┴── its counter moves; five seconds without answers: each node has a whole lease again
//! ```
//!
//! The backend refuses to declare a node dead that has renewed its lease meanwhile, or whose lease runs on the backend's
//! clock. So a node is dead when both clocks say so.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::{LOOK, NextMoment, RENEW_AGAIN, SECOND};
use crate::actor::context::{FleetShared, within};
use crate::backend::Requests;
use crate::error::BackendError;
use crate::event::FleetEvent;
use crate::id::{NodeId, Timestamp};
use crate::lock::locked;
use crate::pages::all_nodes;
use crate::record::{NodeRecord, NodeState};
use crate::request::Owned;

/// Names that are recovered in one request.
pub(crate) const RECOVER: usize = 64;
/// The pause between two such requests of all nodes together.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest wait for an answer about nodes. A read that takes longer counts as an outage.
const ANSWER: Duration = Duration::from_secs(2);

/// The watch of this node over the other nodes.
#[derive(Default)]
pub(super) struct NodeWatch(Mutex<Peers>);

/// The knowledge of this node about the other nodes.
#[derive(Default)]
struct Peers {
    peers: HashMap<NodeId, Seen>,
    /// The last look that has succeeded.
    looked: Option<Instant>,
    /// The first one of the renewals of this node that have failed in a row.
    unrenewed: Option<Instant>,
    /// The moment for the next batch of names of dead nodes. `None`: dead nodes own no names.
    recovers_at: Option<Instant>,
}

/// A node that is alive.
struct Seen {
    renewals: u64,
    /// When this node first saw the counter there. The peer may have renewed its lease earlier, never later.
    since: Instant,
    lease: Duration,
}

impl Peers {
    /// Takes in a look, which was sent at `sent`. Returns the nodes whose counters have stood still for their leases.
    fn look(&mut self, nodes: &[NodeRecord], sent: Instant, shared: &FleetShared) -> Vec<(NodeId, u64)> {
        // No look has succeeded for a while: the machine, the runtime or the backend stood still.
        if self.looked.is_some_and(|looked| sent.duration_since(looked) > outage(shared)) {
            self.peers.clear();
        }
        let heard = Instant::now();
        self.looked = Some(heard);
        let mut peers = HashMap::new();
        for node in nodes.iter().filter(|node| node.id != shared.node && node.state != NodeState::Dead) {
            let seen = self.peers.remove(&node.id).filter(|seen| seen.renewals == node.renewals);
            let is_renewed = node.renewed_at > Timestamp::default();
            let lease =
                if is_renewed { node.lease_until.since(node.renewed_at) } else { shared.limits.lease };
            let since = seen.map_or(heard, |seen| seen.since);
            peers.insert(node.id, Seen { renewals: node.renewals, since, lease });
        }
        self.peers = peers;
        let peers = u32::try_from(self.peers.len()).unwrap_or(u32::MAX);
        shared.peers.store(peers, Ordering::Relaxed);
        let silent = self.peers.iter().filter(|(_, seen)| sent.duration_since(seen.since) >= seen.lease);
        silent.map(|(id, seen)| (*id, seen.renewals)).collect()
    }

    /// The moment of the next look: the first one at which a node can be declared dead.
    fn next_look(&self) -> Instant {
        let now = Instant::now();
        // Each second, also without a peer: a node that joins and dies at once is lost a lease after it was first seen.
        let look = now + SECOND;
        // A node that could not be declared dead is tried again at the next look, not at once.
        let ends = self.peers.values().map(|seen| seen.since + seen.lease).filter(|end| *end > now);
        ends.chain(self.recovers_at).fold(look, Instant::min)
    }
}

/// The time without answers after which each node has a whole lease again, because the others may have been cut off as well. After a
/// shorter time another node has most of its lease left for its next renewal.
fn outage(shared: &FleetShared) -> Duration {
    (shared.limits.lease / 6).min(LOOK).max(SECOND * 3)
}

impl NodeWatch {
    /// Renews the lease of this node.
    pub(super) async fn renew(&self, shared: &FleetShared) -> NextMoment {
        let (lease, began, sent) = (shared.limits.lease, Instant::now(), shared.fence.now());
        let renewal = shared.backend.renew(shared.node, lease, shared.draining.is_cancelled());
        let renewed = within(ANSWER.min(lease / 6), renewal).await;
        {
            let mut watch = locked(&self.0);
            if renewed.is_ok() {
                watch.unrenewed = None;
            } else if watch.unrenewed.get_or_insert(Instant::now()).elapsed() >= outage(shared) {
                watch.peers.clear();
            }
        }
        let Owned::Done(node) = renewed? else {
            // After a drain the backend reports this node as dead. That is no lost lease.
            if shared.end.get().is_none() {
                counts_as_dead(shared);
            }
            return Ok(began + lease / 6);
        };
        if let Err(error) = shared.fence.hold(sent).await {
            // The guardian ends the sessions at the fence before, and so does this node, unless the next try succeeds.
            tracing::error!(%error, "the lease was renewed, but counts only with a guardian that knows it");
            return Ok(Instant::now() + RENEW_AGAIN);
        }
        if node.asked_to_drain && !shared.asked_to_drain.is_cancelled() {
            tracing::info!(node = %shared.node, "an operator has asked this node to drain");
            shared.asked_to_drain.cancel();
        }
        Ok(began + lease / 6)
    }

    /// Looks at the other nodes, and recovers names of those that are dead.
    pub(super) async fn look(&self, shared: &FleetShared) -> NextMoment {
        // A backend that is this process's alone has no other node.
        if shared.draining.is_cancelled() || shared.backend.is_exclusive() {
            return Ok(Instant::now() + LOOK);
        }
        let sent = Instant::now();
        // The other requests of a look may fail for a reason of their own, such as one record that cannot be read.
        let mut nodes = within(ANSWER, all_nodes(&*shared.backend)).await?;
        if nodes.iter().any(|node| node.id == shared.node && node.state == NodeState::Dead) {
            counts_as_dead(shared);
            return Ok(Instant::now() + LOOK);
        }
        let silent = locked(&self.0).look(&nodes, sent, shared);
        for (id, renewals) in silent {
            if within(ANSWER, shared.backend.declare_dead(id, renewals)).await? {
                tracing::warn!(node = %id, "a node has not renewed its lease, and is dead");
                shared.tell(FleetEvent::NodeLost { node: id });
                locked(&self.0).peers.remove(&id);
                nodes.iter_mut().filter(|node| node.id == id).for_each(|node| node.state = NodeState::Dead);
            }
        }
        self.recover(shared, &nodes).await?;
        Ok(locked(&self.0).next_look())
    }

    /// Recovers a batch of names of dead nodes, if its moment has come. The living nodes take turns: together they recover no
    /// faster than one node alone.
    async fn recover(&self, shared: &FleetShared, nodes: &[NodeRecord]) -> Result<(), BackendError> {
        let lost = nodes.iter().any(|node| node.state == NodeState::Dead && node.owns > 0);
        let living = nodes.iter().filter(|node| node.state != NodeState::Dead).count();
        let pause = PAUSE.mul_f64(living.max(1) as f64);
        let now = Instant::now();
        {
            let mut watch = locked(&self.0);
            if !lost {
                watch.recovers_at = None;
                return Ok(());
            }
            // Each node begins at a moment of its own.
            let begins = now + pause.mul_f64(fastrand::f64());
            if *watch.recovers_at.get_or_insert(begins) > now {
                return Ok(());
            }
            watch.recovers_at = Some(now + pause);
        }
        within(ANSWER, shared.backend.recover(RECOVER, shared.limits.losses)).await?;
        shared.tell_transitions();
        Ok(())
    }
}

/// Another node has declared this one dead: it owns nothing any more.
fn counts_as_dead(shared: &FleetShared) {
    tracing::error!(node = %shared.node, "the backend counts this node as dead");
    shared.lost.cancel();
}
