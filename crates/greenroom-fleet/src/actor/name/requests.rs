//! What is asked of a name from outside, and what the fleet tells it.

use greenroom::Prompt;
use tokio::sync::oneshot;

use super::machine::{NameState, Stage};
use super::{NameReport, StepEnd};
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

    pub(super) fn wish_passive(
        &mut self,
        by: PassivatedBy,
        at_once: bool,
        done: Option<oneshot::Sender<()>>,
    ) {
        self.passive.extend(done);
        self.passivate = Some(by);
        if at_once {
            self.cell.kill().cancel();
            self.makes_way = true;
        }
        match self.stage {
            Stage::Idle => self.decide(),
            Stage::Settled | Stage::Waiting | Stage::Backoff => {
                // There is no session. Prompts that wait go on waiting, for their turn.
                (self.passivate, self.makes_way) = (None, false);
                self.is_passive();
            }
            Stage::Activating | Stage::Running { .. } | Stage::Passivating => {}
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
