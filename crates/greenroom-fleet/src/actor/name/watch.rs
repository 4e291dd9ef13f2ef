//! Watches a session that has no turn, and the timers of a name.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use greenroom::Session;
use ractor::ActorRef;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::steps::record_process;
use super::{NameMessage, Watched};
use crate::actor::context::{Activation, FleetShared};
use crate::actor::task::Task;
use crate::face::limits::FleetLimits;
use crate::process;

/// The time in which the CLI says that it is idle after the result of a turn. It counts as busy after that.
const SETTLES: Duration = Duration::from_secs(1);

/// The longest time for which a deletion or a quarantine keeps a name from being activated.
const HELD: Duration = Duration::from_secs(5);

/// Watches a session between turns: whether the CLI works in the background, how long it was idle, and its end.
pub(super) fn session(
    actor: &ActorRef<NameMessage>,
    number: u64,
    session: Session,
    limits: &FleetLimits,
) -> Task {
    let (actor, idle_after, background) = (actor.clone(), limits.idle_after, limits.background);
    Task::spawn(async move {
        let see = |what| tell(&actor, what, number);
        let idle = async {
            if tokio::time::timeout(SETTLES, session.wait_idle()).await.is_err() {
                see(Watched::Busy);
                if tokio::time::timeout(background, session.wait_idle()).await.is_err() {
                    see(Watched::BackgroundOver);
                    return std::future::pending().await;
                }
            }
            // Also if a watch before this one has told that the session is busy.
            see(Watched::Quiet);
            tokio::time::sleep(idle_after).await;
            see(Watched::IdleOver);
            std::future::pending().await
        };
        tokio::select! {
            biased;
            () = session.wait() => see(Watched::SessionEnded),
            () = idle => {}
        }
    })
}

/// Keeps the identity of the session's process, each time that the session starts its CLI again.
pub(super) fn processes(shared: &Arc<FleetShared>, activation: &Activation) -> Task {
    let (shared, owner, claim) = (shared.clone(), activation.owner.clone(), activation.claim);
    let (session, mut events) = (activation.session.clone(), activation.session.events());
    Task::spawn(async move {
        let mut recorded = session.process();
        loop {
            let process = session.process();
            if process != recorded {
                let record = process::record(claim, process.as_ref());
                if let Err(not_done) = record_process(&shared, &owner, record).await {
                    tracing::debug!(?not_done, "the process of a session could not be kept");
                    return;
                }
                recorded = process;
            }
            // Also after events that were missed.
            if events.next().await.is_none() {
                return;
            }
        }
    })
}

/// Tells the actor when the backend has refused an entry of the transcript, because another owner has the name.
pub(super) fn fence(actor: &ActorRef<NameMessage>, fenced: CancellationToken) -> Task {
    let actor = actor.clone();
    Task::spawn(async move {
        fenced.cancelled().await;
        // An error: the actor has ended, and its supervisor ends the session.
        actor.cast(NameMessage::Fence).ok();
    })
}

/// Tells the actor when the wait after a failed activation is over.
pub(super) fn backoff(actor: &ActorRef<NameMessage>, number: u64, wait: Duration) -> Task {
    let actor = actor.clone();
    Task::spawn(async move {
        tokio::time::sleep(wait).await;
        tell(&actor, Watched::BackoffOver, number);
    })
}

/// Tells the actor when the deletions and quarantines for which it waits are over: their senders are dropped.
pub(super) fn holds(actor: &ActorRef<NameMessage>, number: u64, holds: Vec<oneshot::Receiver<()>>) -> Task {
    let actor = actor.clone();
    Task::spawn(async move {
        // An error: a backend that answers late keeps no prompt waiting any longer.
        tokio::time::timeout(HELD, join_all(holds)).await.ok();
        tell(&actor, Watched::BackoffOver, number);
    })
}

fn tell(actor: &ActorRef<NameMessage>, what: Watched, number: u64) {
    // An error: the actor has ended, and so has its interest.
    actor.cast(NameMessage::Watched(what, number)).ok();
}
