//! Watches a session that has no turn, and the timers of a name.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use greenroom::Session;
use ractor::ActorRef;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::steps::record_process;
use super::{NameMessage, Watched};
use crate::actor::context::{Activation, FleetShared};
use crate::actor::task::Task;
use crate::event::PassivatedBy;
use crate::limits::FleetLimits;
use crate::process;

/// The time in which the CLI says that it is idle after the result of a turn. It counts as busy after that.
const SETTLES: Duration = Duration::from_secs(1);

/// The longest time for which a deletion or a quarantine keeps a name from being activated.
const HELD: Duration = Duration::from_secs(5);

/// The watch of a name's stage, if there is one. Its messages carry the number of the stage, so that those of an earlier stage are
/// told apart.
pub(super) struct StageWatch {
    actor: ActorRef<NameMessage>,
    stage: u64,
    task: Option<Task>,
}

impl StageWatch {
    pub(super) fn new(actor: ActorRef<NameMessage>) -> Self {
        Self { actor, stage: 0, task: None }
    }

    /// A stage begins, without a watch.
    pub(super) fn renew(&mut self) {
        (self.stage, self.task) = (self.stage + 1, None);
    }

    /// True for the number of the stage in which the name is.
    pub(super) fn is_of(&self, stage: u64) -> bool {
        self.stage == stage
    }

    fn tell(&self) -> impl Fn(Watched) + use<> {
        let (actor, stage) = (self.actor.clone(), self.stage);
        move |what| {
            // An error: the actor has ended, and so has its interest.
            actor.cast(NameMessage::Watched(what, stage)).ok();
        }
    }

    /// Watches a session between turns: whether the CLI works in the background, how long it was idle, and its end.
    pub(super) fn idle(&mut self, session: Session, limits: &FleetLimits) {
        let (tell, idle_after, background) = (self.tell(), limits.idle_after, limits.background);
        self.task = Some(Task::spawn(async move {
            let idle = async {
                if timeout(SETTLES, session.wait_idle()).await.is_err() {
                    tell(Watched::Busy(true));
                    if timeout(background, session.wait_idle()).await.is_err() {
                        tell(Watched::Over(PassivatedBy::Background));
                        return pending().await;
                    }
                }
                // Also if a watch before this one has told that the session is busy.
                tell(Watched::Busy(false));
                sleep(idle_after).await;
                tell(Watched::Over(PassivatedBy::Idle));
                pending().await
            };
            tokio::select! {
                biased;
                () = session.wait() => tell(Watched::Over(PassivatedBy::Failure)),
                () = idle => {}
            }
        }));
    }

    /// Tells the actor when the wait after a failure is over.
    pub(super) fn backoff(&mut self, wait: Duration) {
        let tell = self.tell();
        self.task = Some(Task::spawn(async move {
            sleep(wait).await;
            tell(Watched::BackoffOver);
        }));
    }

    /// Tells the actor when the deletions and quarantines for which it waits are over: their senders are dropped.
    pub(super) fn holds(&mut self, holds: Vec<oneshot::Receiver<()>>) {
        let tell = self.tell();
        self.task = Some(Task::spawn(async move {
            // An error: a backend that answers late keeps no prompt waiting any longer.
            timeout(HELD, join_all(holds)).await.ok();
            tell(Watched::BackoffOver);
        }));
    }
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
