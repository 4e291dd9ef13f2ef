//! A session from its activation to its end, the wait for the next one, and what watches both.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use greenroom::Session;
use greenroom::telemetry::names::WAKE;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use tracing::field::Empty;

use super::machine::{Live, NameActorState, NameStage, StageWatch};
use super::steps::begun::TurnEnd;
use super::steps::trial::note_held;
use super::steps::turn::run_turn;
use super::steps::{self, NotUp, give_back, record_process};
use super::{NameContext, NameMessage};
use crate::actor::context::shown;
use crate::actor::retry::NotDone;
use crate::actor::task::{Task, spawn};
use crate::admission::AdmissionMessage;
use crate::event::{FleetEvent, PassivatedBy};
use crate::health::Held;
use crate::record::PromptOrigin;

/// The longest time for which a deletion or a quarantine keeps a name from being activated.
const HELD: Duration = Duration::from_secs(5);

/// The time for which a name that waits for its slot keeps others from trying.
pub(super) const TRIES: Duration = Duration::from_secs(10);

/// The pause after a record of a process that the backend has refused, and before a look at a prompt that should have expired.
const AGAIN: Duration = Duration::from_secs(1);

impl NameActorState {
    /// Starts the session. `turn`: admission has granted its first turn with the slot.
    pub(super) fn activate(&mut self, turn: bool) {
        self.enter(NameStage::Activating { turn });
        self.cx.cell.renew_kill();
        let name = shown(&self.cx.cell.name);
        let span = tracing::info_span!("activation", name, term = Empty, { WAKE } = Empty);
        let (for_prompt, mut tries) = (self.next.is_some(), std::mem::take(&mut self.tries));
        self.step(async move |shared, cell| {
            let activated = steps::activate(&shared, &cell, for_prompt, &mut tries).instrument(span).await;
            move |state: &mut Self| {
                state.tries = tries;
                state.activated(activated);
            }
        });
    }

    fn activated(&mut self, activated: Result<Session, NotUp>) {
        match activated {
            Ok(session) => self.up(session),
            Err(NotUp::Fenced) => {
                self.cx.cell.fence();
                self.callers.not_up("the fleet has lost the session");
                self.begin_passivating(PassivatedBy::Failure, None);
            }
            Err(NotUp::Failed { why, failures }) => {
                self.callers.not_up(&why);
                let failures = failures.unwrap_or_else(|| self.count_failure());
                let is_owned = self.cx.cell.holdings().owner.is_some();
                if is_owned {
                    self.begin_passivating(PassivatedBy::Failure, Some(failures));
                } else {
                    self.back_off(failures);
                }
            }
            Err(NotUp::Stopped) => {
                self.callers.not_up("the session was to end before it had started");
                self.begin_passivating(PassivatedBy::Request, None);
            }
            Err(NotUp::Held(held)) => {
                self.free_slot();
                self.hold_back(held);
            }
            Err(NotUp::AtCap) => self.wait_for_cap(),
            Err(NotUp::Needless) => {
                self.next = None;
                self.settle(NameStage::Settled);
                self.look();
            }
            Err(NotUp::Refused(why)) => {
                self.callers.tell_up(&Err(why));
                self.next = None;
                self.settle(NameStage::Settled);
                self.rest();
            }
        }
    }

    /// The session is up. Its first turn begins at once if admission has granted one with the slot.
    fn up(&mut self, session: Session) {
        let processes = keep_processes(&self.cx, &session);
        let (for_turn, background, is_evicted) = Default::default();
        let live = Live { session, for_turn, background, is_evicted, _processes: processes };
        self.callers.tell_up(&Ok(()));
        self.tell_admission(AdmissionMessage::Started);
        if matches!(self.stage, NameStage::Activating { turn: true }) {
            self.begin_turn(live);
        } else {
            self.settle_idle(live);
        }
    }

    /// Begins the turn that was granted, if its prompt still waits.
    pub(super) fn begin_turn(&mut self, live: Live) {
        let stops = self.stops();
        let Some(next) = self.next.take_if(|_| !stops) else { return self.settle_idle(live) };
        let interrupt = CancellationToken::new();
        let interrupted = interrupt.clone();
        let mut tries = std::mem::take(&mut self.tries);
        let origin = PromptOrigin::Application;
        self.enter(NameStage::Running { live, prompt: next.id, origin, interrupt });
        self.step(async move |shared, cell| {
            let end = run_turn(&shared, &cell, &mut tries, &next, &interrupted).await;
            move |state: &mut Self| state.turn_ended(end)
        });
    }

    pub(super) fn turn_ended(&mut self, end: Result<TurnEnd, NotDone>) {
        let Some(live) = self.stage.take_live() else { return };
        let (by, failures) = match end {
            Ok(TurnEnd::Ended) => {
                self.failures = 0;
                return self.settle_idle(live);
            }
            // A session that was stopped by a limit of its profile may be started again at once.
            Ok(TurnEnd::SessionOver) => {
                let failed = live.session.failure().is_some();
                (PassivatedBy::Failure, failed.then(|| self.count_failure()))
            }
            Ok(TurnEnd::Cut) => (PassivatedBy::Drain, None),
            // Its session may have work in the background. One that was started to go on with a call has no use then.
            Ok(TurnEnd::Held(cause)) if cause.is_limit() && self.cx.cell.holdings().resumes.is_none() => {
                return self.settle_idle(live);
            }
            // The next session has the login that the profile gives then.
            Ok(TurnEnd::Held(_)) => (PassivatedBy::Held, None),
            Ok(TurnEnd::Parked) => {
                self.failures = 0;
                (PassivatedBy::Parked, None)
            }
            Err(NotDone::Fenced) => {
                self.cx.cell.fence();
                (PassivatedBy::Failure, None)
            }
            Err(NotDone::Error(error)) => {
                tracing::warn!(%error, "the backend refuses a turn's request");
                // The session is killed: nobody would write down its further work.
                self.cx.cell.kill().cancel();
                (PassivatedBy::Failure, Some(self.count_failure()))
            }
        };
        self.begin_passivating(by, failures);
    }

    /// Counts a failure. Returns how many there were in a row.
    fn count_failure(&mut self) -> u32 {
        self.failures += 1;
        self.failures
    }

    /// The session has no turn: watches it, and looks at what waits.
    fn settle_idle(&mut self, live: Live) {
        // Others need not wait for its next turn.
        self.tries.clear();
        let limit = self.cx.shared.limits.background;
        if live.background.is_some_and(|since| since.elapsed() >= limit) {
            // Its time is up: it yields this slot to an earlier request.
            self.tell_admission(AdmissionMessage::Busy(false));
        } else if live.session.works_in_background() {
            // Before another session can get the slot.
            self.tell_admission(AdmissionMessage::Busy(true));
        }
        self.tell_admission(AdmissionMessage::TurnEnded);
        self.enter(NameStage::Idle(live));
        self.watch_idle();
        self.look();
        self.decide();
    }

    /// Ends the session. `failures`: the number in a row, if the next activation has to wait.
    pub(super) fn begin_passivating(&mut self, by: PassivatedBy, failures: Option<u32>) {
        self.tries.clear();
        self.enter(NameStage::Passivating { failures });
        self.tell_admission(AdmissionMessage::Leaving);
        self.tell(|name| FleetEvent::Passivating { name, why: by });
        self.step(async move |shared, cell| {
            give_back(&shared, &cell).await;
            Self::passivated
        });
    }

    /// The session has ended, and the name was given back.
    fn passivated(&mut self) {
        let NameStage::Passivating { failures } = self.stage else { return };
        self.tell(|name| FleetEvent::Passivated { name });
        self.callers.tell_passive(true);
        if let Some(failures) = failures {
            return self.back_off(failures);
        }
        self.enter(NameStage::Settled);
        if !self.is_ending() && self.callers.are_held() {
            self.hold();
        } else {
            self.look();
            // Asks before the slot is free: a name that had asked for its next turn keeps its place.
            self.decide();
        }
        self.free_slot();
    }

    /// Waits without a slot until the deletions and quarantines are over.
    pub(super) fn hold(&mut self) {
        self.withdraw();
        self.tries.clear();
        self.enter(NameStage::Backoff);
        let holds = join_all(std::mem::take(&mut self.callers.holds));
        // An error: a backend that answers late keeps no prompt waiting any longer.
        self.wait_in_backoff(timeout(HELD, holds).map(|_| ()));
    }

    /// Waits without a slot until the name may try, its cause is mended, or its prompt expires. Callers do not wait: they learn the cause.
    pub(super) fn hold_back(&mut self, held: Held) {
        // A session that has ended may have asked for its next turn.
        self.withdraw();
        self.callers.not_up(&held.cause.to_string());
        self.callers.tell_passive(false);
        let Some(next) = self.next.as_ref().filter(|_| !self.is_ending()) else {
            self.enter(NameStage::Settled);
            return self.look();
        };
        // A continuation does not expire.
        let expires_at = (next.begins == 0).then_some(next.expires_at);
        let was_rejected = next.waited.returned.is_some();
        self.enter(NameStage::Held);
        let (shared, name) = (self.cx.shared.clone(), self.cx.cell.name.clone());
        self.watch(async move {
            // The keeper may be a little late.
            let left = expires_at.map_or(Duration::MAX, |at| at.since(shared.backend.now()).max(AGAIN));
            let turn = async {
                note_held(&shared, &name, &held).await;
                shared.health.turn(held, was_rejected).await
            };
            let turn = timeout(left, turn).await.ok().flatten();
            move |state: &mut Self| {
                state.tries.extend(turn);
                state.enter(NameStage::Settled);
                state.look();
            }
        });
    }

    /// A name that waits for its slot leaves its tries to others after a while: its tenant may be at its cap.
    pub(super) fn watch_tries(&mut self) {
        if !self.tries.is_empty() {
            self.watch(async {
                sleep(TRIES).await;
                |state: &mut Self| state.tries.clear()
            });
        }
    }

    /// Waits before the next activation, longer after each failure in a row, and not at once with others.
    fn back_off(&mut self, failures: u32) {
        // Others need not wait for the end of the pause.
        self.tries.clear();
        self.settle(NameStage::Backoff);
        if self.is_ending() {
            self.enter(NameStage::Settled);
            return self.rest();
        }
        let wait = self.cx.shared.limits.pause(failures);
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.tell(|name| FleetEvent::BackingOff { name, millis });
        self.wait_in_backoff(sleep(wait));
    }

    /// Goes back to a stage without a session.
    fn settle(&mut self, stage: NameStage) {
        self.free_slot();
        self.enter(stage);
        self.callers.tell_passive(false);
    }

    /// Waits beside the stage, and then makes the transition that the wait returns, unless the stage has ended by then or has another watch.
    pub(super) fn watch<T>(&mut self, wait: impl Future<Output = T> + Send + 'static)
    where
        T: FnOnce(&mut Self) + Send + 'static,
    {
        self.watch = Some(self.beside(wait));
    }

    /// A wait whose transition is made only while the watch is kept.
    pub(super) fn beside<T>(&self, wait: impl Future<Output = T> + Send + 'static) -> StageWatch
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
        StageWatch { _task: task, _kept: kept }
    }

    /// Waits before the next activation.
    fn wait_in_backoff(&mut self, wait: impl Future<Output = ()> + Send + 'static) {
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
pub(super) fn keep_processes(cx: &NameContext, session: &Session) -> Task {
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
