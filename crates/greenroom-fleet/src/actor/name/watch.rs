//! Watches a session that has no turn, and the timers of a name.

use std::sync::Arc;
use std::time::Duration;

use greenroom::Session;
use tokio::time::{sleep, timeout};

use super::machine::{NameActorState, NameStage};
use super::steps::record_process;
use super::{NameContext, NameMessage};
use crate::actor::context::shown;
use crate::actor::retry::NotDone;
use crate::actor::task::{Task, spawn};
use crate::admission::AdmissionMessage;
use crate::event::PassivatedBy;

/// The time in which the CLI says that it is idle after the result of a turn. It counts as busy after that.
const SETTLES: Duration = Duration::from_secs(1);

/// The pause after a record of a process that the backend has refused.
const AGAIN: Duration = Duration::from_secs(1);

/// The watch of a name's stage. Its transition is made only while the watch is kept.
pub(super) struct StageWatch {
    _task: Task,
    _kept: Arc<()>,
}

impl NameActorState {
    /// Waits beside the stage, and then makes the transition that the wait returns, unless the stage has ended by then or has another watch.
    fn watch<T>(&mut self, wait: impl Future<Output = T> + Send + 'static)
    where
        T: FnOnce(&mut Self) + Send + 'static,
    {
        let (myself, kept) = (self.myself.clone(), Arc::new(()));
        let is_kept = Arc::downgrade(&kept);
        let task = spawn(async move {
            let transition = wait.await;
            let transition = move |state: &mut Self| {
                if is_kept.strong_count() > 0 {
                    transition(state);
                }
            };
            // An error: the actor has ended, and so has its interest.
            myself.cast(NameMessage::Step(Ok(Box::new(transition)))).ok();
        });
        self.watch = Some(StageWatch { _task: task, _kept: kept });
    }

    /// Watches a session between turns: whether the CLI works in the background, how long it was idle, and its end.
    pub(super) fn watch_idle(&mut self) {
        let NameStage::Idle(live) = &self.stage else { return };
        let (session, kill, tell) = (live.session.clone(), self.cx.cell.kill(), self.to_admission());
        let (idle_after, background) = (self.cx.shared.limits.idle_after, self.cx.shared.limits.background);
        self.watch(async move {
            let idle = async {
                if timeout(SETTLES, session.wait_idle()).await.is_err() {
                    tell(AdmissionMessage::Busy(true));
                    if timeout(background, session.wait_idle()).await.is_err() {
                        return PassivatedBy::Background;
                    }
                }
                // Also if a watch before this one has told that the session is busy.
                tell(AdmissionMessage::Busy(false));
                sleep(idle_after).await;
                PassivatedBy::Idle
            };
            let over = tokio::select! {
                biased;
                () = session.wait() => Some(PassivatedBy::Failure),
                // For instance because the backend has refused an entry of the transcript.
                () = kill.cancelled() => None,
                by = idle => Some(by),
            };
            move |state: &mut Self| match over {
                Some(PassivatedBy::Idle) if state.asked.is_some() => state.watch_idle(),
                Some(by) => state.begin_passivating(by, None),
                None => state.decide(),
            }
        });
    }

    /// Waits before the next activation.
    pub(super) fn wait_in_backoff(&mut self, wait: impl Future<Output = ()> + Send + 'static) {
        self.watch(async move {
            wait.await;
            |state: &mut Self| {
                state.enter(NameStage::Settled);
                state.look();
            }
        });
    }
}

/// Keeps the identity of the session's process, each time that the session starts its CLI again.
pub(super) fn processes(cx: &NameContext, session: &Session) -> Task {
    let (shared, cell, session) = (cx.shared.clone(), cx.cell.clone(), session.clone());
    let mut events = session.events();
    spawn(async move {
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
