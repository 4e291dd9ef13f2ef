//! Listens to the changes that the backend tells, and turns them into hints for duties.
//!
//! Each node hears of a name that can run, and one of them can claim it. So a node waits a moment before it looks at a name that
//! has no actor here. Names are in `GROUPS` groups, and a node has one waiting time for each group: the node with the shortest
//! time claims, and the others find the name owned. The node that has accepted a prompt hints at it directly, and does not wait.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep_until};

use super::steps::KeeperContext;
use super::{Duty, step_of};
use crate::actor::context::FleetShared;
use crate::event::FleetEvent;
use crate::id::Name;
use crate::request::Change;

/// The moments for which nodes wait before they look at a name are spread over this time for each node, and at most over `LONGEST`.
const SPREAD: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(500);
/// Names whose moments have not come. Beyond this, a node looks at a name at once.
const LATER: usize = 4096;
/// Names are looked at together in this number of groups.
const GROUPS: u64 = 4;

/// The time for which this node waits before it looks at a name.
fn wait_for(name: &Name, shared: &FleetShared) -> Duration {
    let peers = shared.peers.load(Ordering::Relaxed);
    if peers == 0 || shared.awake().contains_key(name) {
        return Duration::ZERO;
    }
    let group = hash(name) % GROUPS;
    let place = hash(&(shared.node, group)) as u32;
    (SPREAD * (peers + 1)).min(LONGEST).mul_f64(f64::from(place) / f64::from(u32::MAX))
}

fn hash(value: &impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

/// Turns changes into hints until the backend ends.
pub(super) async fn listen(mut changes: broadcast::Receiver<Change>, context: Arc<KeeperContext>) {
    // Names to look at, at their moments.
    let mut later = BTreeSet::<(Instant, Name)>::new();
    loop {
        let moment = later.first().map(|(at, _)| *at);
        let change = tokio::select! {
            biased;
            () = sleep_until(moment.unwrap_or_else(Instant::now)), if moment.is_some() => {
                later.pop_first().into_iter().for_each(|(_, name)| context.hint_to_wake(Some(name)));
                continue;
            }
            change = changes.recv() => change,
        };
        let change = match change {
            Err(RecvError::Closed) => return,
            Err(RecvError::Lagged(_)) => Change::Missed,
            Ok(change) => change,
        };
        let taken = step_of("listen to changes", &context.shared, || take(change, &mut later, &context));
        if taken.is_none() {
            take(Change::Missed, &mut later, &context);
        }
    }
}

/// Turns a change into hints, at once or later.
fn take(change: Change, later: &mut BTreeSet<(Instant, Name)>, context: &KeeperContext) {
    if let Change::Queued(_) | Change::Asked(..) = change {
        context.hint(Duty::Expire);
    }
    if let Change::Freed(name) = &change
        && context.quotas.freed(&context.shared, name.tenant())
    {
        context.hint(Duty::Wake);
    }
    match change {
        Change::Queued(name) | Change::Freed(name) => {
            let wait = wait_for(&name, &context.shared);
            if wait.is_zero() || later.len() == LATER {
                context.hint_to_wake(Some(name));
            } else {
                later.insert((Instant::now() + wait, name));
            }
        }
        Change::Commanded(node) if node == context.shared.node => context.hint(Duty::Command),
        Change::QuotaSet(_) => context.hint(Duty::Quotas),
        Change::Held(_) => context.hint(Duty::Holds),
        Change::Deleting(_) if !context.shared.backend.is_exclusive() => context.hint(Duty::Delete),
        Change::Missed => {
            context.hint_to_wake(None);
            context.hint(Duty::Quotas);
            context.hint(Duty::Holds);
            context.hint(Duty::Delete);
            context.hint(Duty::Expire);
            context.hint(Duty::Command);
        }
        _ => {}
    }
}

/// Tells the application each transition soon after it was made, until the backend ends.
pub(super) async fn tell_transitions(mut made: broadcast::Receiver<FleetEvent>, context: Arc<KeeperContext>) {
    while !matches!(made.recv().await, Err(RecvError::Closed)) {
        step_of("tell transitions", &context.shared, || context.shared.tell_transitions());
    }
}
