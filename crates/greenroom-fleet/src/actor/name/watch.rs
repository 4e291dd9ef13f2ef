//! Watches a session that has no turn, and the timers of a name.

use std::future::pending;
use std::time::Duration;

use greenroom::Session;
use ractor::ActorRef;
use tokio::time::{sleep, timeout};

use super::steps::record_process;
use super::{NameContext, NameMessage, Watched};
use crate::actor::cell::NameCell;
use crate::actor::context::shown;
use crate::actor::retry::NotDone;
use crate::actor::task::Task;
use crate::event::PassivatedBy;
use crate::limits::FleetLimits;

/// The time in which the CLI says that it is idle after the result of a turn. It counts as busy after that.
const SETTLES: Duration = Duration::from_secs(1);

/// The pause after a record of a process that the backend has refused.
const AGAIN: Duration = Duration::from_secs(1);

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

    /// Tells the actor when the wait is over.
    pub(super) fn backoff(&mut self, wait: impl Future<Output = ()> + Send + 'static) {
        let tell = self.tell();
        self.task = Some(Task::spawn(async move {
            wait.await;
            tell(Watched::BackoffOver);
        }));
    }
}

/// Keeps the identity of the session's process, each time that the session starts its CLI again.
pub(super) fn processes(cx: &NameContext, session: &Session) -> Task {
    let (shared, cell, session) = (cx.shared.clone(), cx.cell.clone(), session.clone());
    let mut events = session.events();
    Task::spawn(async move {
        let mut recorded = session.process();
        loop {
            let process = session.process();
            if process != recorded {
                match record_process(&shared, &cell).await {
                    Ok(()) => recorded = process,
                    Err(NotDone::Fenced) => return,
                    Err(NotDone::Error(error)) => {
                        // The record of the activation still leads to the process. Tried again after the next event.
                        tracing::warn!(name = shown(&cell.name), %error, "the process of a session could not be kept");
                        sleep(AGAIN).await;
                    }
                }
            }
            // Also after events that were missed.
            if events.next().await.is_none() {
                return;
            }
        }
    })
}

/// Tells the actor when its session was killed, for instance because the backend has refused an entry of the transcript.
pub(super) fn killed(actor: &ActorRef<NameMessage>, cell: &NameCell) -> Task {
    let (actor, kill) = (actor.clone(), cell.kill());
    Task::spawn(async move {
        kill.cancelled().await;
        // An error: the actor has ended, and its supervisor ends the session.
        actor.cast(NameMessage::End).ok();
    })
}
