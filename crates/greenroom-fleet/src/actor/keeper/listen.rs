//! Listens to the changes that the backend tells, and turns them into hints for duties.
//!
//! Each node hears of a name that can run, and one of them can claim it. So a node waits a moment before it looks at a name that
//! has no actor here. Names are in `GROUPS` groups, and a node has one waiting time for each group: the node with the shortest
//! time claims, and the others find the name owned. The node that has accepted a prompt hints at it directly, and does not wait.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ractor::ActorRef;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep_until};

use super::KeeperMessage;
use super::duty::Duty;
use super::hints::HintedDuties;
use super::steps::KeeperContext;
use crate::actor::context::FleetShared;
use crate::event::FleetEvent;
use crate::id::Name;
use crate::request::Change;

/// The moments for which nodes wait before they look at a name are spread over this time for each node, and at most over `LONGEST`.
const SPREAD: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(500);
/// Names whose moments have not come. With more of them the next look is at all that waits.
const LATER: usize = 4096;
/// Names are looked at together in this number of groups.
const GROUPS: u64 = 4;

/// Names to look at, at their moments.
#[derive(Default)]
struct Later(BTreeSet<(Instant, Name)>);

impl Later {
    fn add(
        &mut self,
        name: Name,
        context: &KeeperContext,
        hints: &HintedDuties,
        keeper: &ActorRef<KeeperMessage>,
    ) {
        let wait = wait_for(&name, &context.shared);
        if !wait.is_zero() && self.0.len() < LATER {
            self.0.insert((Instant::now() + wait, name));
            return;
        }
        if wait.is_zero() {
            context.hinted.add(name);
        } else {
            context.hinted.lost();
        }
        hints.tell(Duty::Wake, keeper);
    }

    /// Waits for the next name. Safe to cancel.
    async fn next(&mut self) -> Name {
        let Some((at, _)) = self.0.first() else { return std::future::pending().await };
        sleep_until(*at).await;
        match self.0.pop_first() {
            Some((_, name)) => name,
            None => std::future::pending().await,
        }
    }
}

/// The time for which this node waits before it looks at a name.
fn wait_for(name: &Name, shared: &FleetShared) -> Duration {
    let peers = shared.peers.load(Ordering::Relaxed);
    if peers == 0 || shared.is_awake(name) {
        return Duration::ZERO;
    }
    let group = hash(name) % GROUPS;
    let place = hash(&(shared.node, group)) as u32;
    (SPREAD * (peers + 1)).min(LONGEST).mul_f64(f64::from(place) / f64::from(u32::MAX))
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Turns changes into hints until the backend ends.
pub(super) async fn listen(
    mut changes: broadcast::Receiver<Change>,
    context: Arc<KeeperContext>,
    hints: Arc<HintedDuties>,
    keeper: ActorRef<KeeperMessage>,
) {
    let mut later = Later::default();
    loop {
        let change = tokio::select! {
            biased;
            name = later.next() => {
                context.hinted.add(name);
                hints.tell(Duty::Wake, &keeper);
                continue;
            }
            change = changes.recv() => change,
        };
        let duties: &[Duty] = match change {
            Ok(Change::Queued(name)) => {
                later.add(name, &context, &hints, &keeper);
                &[Duty::Expire]
            }
            Ok(Change::Freed(name)) => {
                later.add(name, &context, &hints, &keeper);
                &[]
            }
            Ok(Change::Asked(_)) => &[Duty::Expire],
            Ok(Change::Commanded(node)) if node == context.shared.node => {
                context.commands.hint();
                &[Duty::Command]
            }
            Ok(Change::Missed) | Err(RecvError::Lagged(_)) => {
                context.hinted.lost();
                context.commands.hint();
                &[Duty::Wake, Duty::Expire, Duty::Command]
            }
            Ok(_) => &[],
            Err(RecvError::Closed) => return,
        };
        for duty in duties {
            hints.tell(*duty, &keeper);
        }
    }
}

/// Tells the application each transition soon after it was made, until the backend ends.
pub(super) async fn tell_transitions(mut made: broadcast::Receiver<FleetEvent>, context: Arc<KeeperContext>) {
    while !matches!(made.recv().await, Err(RecvError::Closed)) {
        context.shared.tell_transitions();
    }
}
