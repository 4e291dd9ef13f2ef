//! What is asked of a name from outside, and what the fleet tells it.

use greenroom::Prompt;
use tokio::sync::oneshot;

use super::machine::{NameState, Stage};
use super::{NameReport, StepEnd, watch};
use crate::actor::admitter::AdmissionMessage;
use crate::face::error::FleetError;
use crate::face::event::PassivatedBy;
use crate::id::PromptId;

impl NameState {
    pub(super) fn warm(&mut self, done: oneshot::Sender<Result<(), FleetError>>) {
        if self.live.is_some() {
            // An error: the caller waits no more.
            done.send(Ok(())).ok();
            return;
        }
        self.warm.push(done);
        self.look();
    }

    /// Ends the session at once. The name is not activated until the sender of `hold` is dropped.
    pub(super) fn make_way(&mut self, hold: oneshot::Receiver<()>, done: oneshot::Sender<bool>) {
        self.holds.push(hold);
        self.cell.kill().cancel();
        self.wish_passive(PassivatedBy::Request, Some(done));
        if matches!(self.stage, Stage::Settled | Stage::Waiting) {
            self.decide();
        }
    }

    /// True while a deletion or a quarantine comes before the next activation.
    pub(super) fn is_held(&mut self) -> bool {
        self.holds.retain_mut(|hold| hold.try_recv() == Err(oneshot::error::TryRecvError::Empty));
        !self.holds.is_empty()
    }

    /// Waits without a slot until the deletions and quarantines are over.
    pub(super) fn hold(&mut self) {
        self.withdraw();
        self.enter(Stage::Backoff);
        let holds = std::mem::take(&mut self.holds);
        self.watch = Some(watch::holds(&self.myself, self.watches, holds));
    }

    pub(super) fn wish_passive(&mut self, by: PassivatedBy, done: Option<oneshot::Sender<bool>>) {
        self.passive.extend(done);
        self.passivate = Some(by);
        match self.stage {
            Stage::Idle => self.decide(),
            Stage::Settled | Stage::Waiting | Stage::Backoff => {
                // There is no session. Prompts that wait go on waiting, for their turn.
                self.passivate = None;
                self.is_passive(false);
            }
            Stage::Activating | Stage::Running { .. } | Stage::Passivating => {}
        }
    }

    /// Tells the callers that there is no session, and whether there was one.
    pub(super) fn is_passive(&mut self, had_session: bool) {
        for done in self.passive.drain(..) {
            // An error: the caller waits no more.
            done.send(had_session).ok();
        }
    }

    pub(super) fn not_warm(&mut self, why: &str) {
        self.tell_warm(&FleetError::State(why.to_owned()));
    }

    /// Tells the callers why the session is not up.
    pub(super) fn tell_warm(&mut self, why: &FleetError) {
        for warm in self.warm.drain(..) {
            // An error: the caller waits no more.
            warm.send(Err(why.clone())).ok();
        }
    }

    pub(super) fn interrupt(
        &mut self,
        prompt: Option<PromptId>,
        done: oneshot::Sender<Result<bool, FleetError>>,
    ) {
        let interrupt = match &self.stage {
            Stage::Running { prompt: running, interrupt }
                if prompt.is_none_or(|prompt| prompt == *running) =>
            {
                Some(interrupt.clone())
            }
            _ => None,
        };
        let (Some((activation, _)), Some(interrupt)) = (self.live.clone(), interrupt) else {
            // An error: the caller waits no more.
            done.send(Ok(false)).ok();
            return;
        };
        // For a turn whose prompt has not been sent yet.
        interrupt.cancel();
        // No turn begins before the interrupt has arrived: it would hit that turn.
        self.interrupting += 1;
        self.step(async move {
            let interrupted = activation.session.interrupt().await;
            done.send(interrupted.map(|_| true).map_err(FleetError::Session)).ok();
            StepEnd::Interrupted
        });
    }

    pub(super) fn steer(&mut self, message: Prompt, done: oneshot::Sender<Result<(), FleetError>>) {
        let Some((activation, _)) = self.live.clone().filter(|_| matches!(self.stage, Stage::Running { .. }))
        else {
            let why = "no turn of the session runs: send a prompt".to_owned();
            // An error: the caller waits no more.
            done.send(Err(FleetError::State(why))).ok();
            return;
        };
        self.cell.steps.spawn(async move {
            let steered = activation.session.steer(message).await;
            done.send(steered.map(drop).map_err(FleetError::Session)).ok();
        });
    }

    /// Admission was restarted: it knows which names hold a slot, and takes each for one that starts or runs.
    pub(super) fn ask_again(&mut self) {
        self.asked = false;
        if !self.cell.holdings().slot {
            // Told again: while admission was restarted, nobody may have heard of it.
            self.tell_admission(AdmissionMessage::Freed);
        }
        let actor = self.myself.clone();
        self.tell_admission(AdmissionMessage::Known { actor });
        if self.live.is_some() {
            // Told again: the session may have come up while admission was restarted.
            self.tell_admission(AdmissionMessage::Started);
        }
        match self.stage {
            Stage::Waiting => self.ask(),
            Stage::Idle => {
                self.tell_admission(AdmissionMessage::TurnEnded);
                // Tells again if the session is busy.
                self.watch_idle();
                self.decide();
            }
            _ => {}
        }
    }

    pub(super) fn drain(&mut self) {
        self.draining = true;
        if matches!(self.stage, Stage::Backoff) {
            self.enter(Stage::Settled);
        }
        self.decide();
    }

    pub(super) fn cut(&mut self) {
        match &self.stage {
            Stage::Running { .. } => self.cell.cut().cancel(),
            Stage::Activating | Stage::Passivating => self.cell.kill().cancel(),
            _ => {}
        }
    }

    pub(super) fn fence(&mut self) {
        self.fenced = true;
        self.cell.kill().cancel();
        if matches!(self.stage, Stage::Backoff) {
            self.enter(Stage::Settled);
        }
        self.decide();
    }

    pub(super) fn report(&self) -> NameReport {
        let (stage, running) = match &self.stage {
            Stage::Settled => ("settled", None),
            Stage::Waiting => ("waiting", None),
            Stage::Activating => ("activating", None),
            Stage::Backoff => ("backoff", None),
            Stage::Idle => ("idle", None),
            Stage::Running { prompt, .. } => ("running", Some(*prompt)),
            Stage::Passivating => ("passivating", None),
        };
        NameReport { stage, running, since: self.since }
    }
}
