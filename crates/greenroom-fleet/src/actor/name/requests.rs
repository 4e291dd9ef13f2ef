//! The requests to a name from outside, and what the fleet tells it.

use greenroom::Prompt;
use tokio::sync::oneshot;

use super::StepEnd;
use super::machine::{Ending, NameActorState, NameStage, answer};
use crate::error::FleetError;
use crate::event::PassivatedBy;
use crate::id::PromptId;

impl NameActorState {
    pub(super) fn warm(&mut self, done: oneshot::Sender<Result<(), FleetError>>) {
        if self.stage.live().is_some() {
            return answer(done, Ok(()));
        }
        self.callers.warm.push(done);
        self.look();
    }

    /// Ends the session at once. The name is not activated until the sender of `hold` is dropped.
    pub(super) fn make_way(&mut self, hold: oneshot::Receiver<()>, done: oneshot::Sender<bool>) {
        self.callers.holds.push(hold);
        self.cx.cell.kill().cancel();
        self.wish_passive(PassivatedBy::Request, Some(done));
        if matches!(self.stage, NameStage::Settled | NameStage::Waiting(_)) {
            self.decide();
        }
    }

    pub(super) fn wish_passive(&mut self, by: PassivatedBy, done: Option<oneshot::Sender<bool>>) {
        self.callers.passive.extend(done);
        self.callers.passivate = Some(by);
        match self.stage {
            NameStage::Idle { .. } => self.decide(),
            // There is no session. Prompts that wait go on waiting, for their turn.
            NameStage::Settled | NameStage::Waiting(_) | NameStage::Backoff => {
                self.callers.tell_passive(false)
            }
            _ => {}
        }
    }

    pub(super) fn interrupt(
        &mut self,
        prompt: Option<PromptId>,
        done: oneshot::Sender<Result<bool, FleetError>>,
    ) {
        let (live, interrupt) = match &self.stage {
            NameStage::Running { live, prompt: running, interrupt }
                if prompt.is_none_or(|prompt| prompt == *running) =>
            {
                (live, interrupt)
            }
            _ => return answer(done, Ok(false)),
        };
        // For a turn whose prompt has not been sent yet.
        interrupt.cancel();
        let (session, on_its_way) = (live.activation.session.clone(), live.interrupts.token());
        self.cx.step(async move |_, _| {
            let interrupted = session.interrupt().await;
            answer(done, interrupted.map(|_| true).map_err(FleetError::Session));
            drop(on_its_way);
            StepEnd::Interrupted
        });
    }

    pub(super) fn steer(&self, message: Prompt, done: oneshot::Sender<Result<(), FleetError>>) {
        let NameStage::Running { live, .. } = &self.stage else {
            let why = "no turn of the session runs: send a prompt".to_owned();
            return answer(done, Err(FleetError::State(why)));
        };
        let session = live.activation.session.clone();
        self.cx.cell.steps.spawn(async move {
            let steered = session.steer(message).await;
            answer(done, steered.map(drop).map_err(FleetError::Session));
        });
    }

    /// The name is not activated here any more. A fenced session ends at once.
    pub(super) fn end(&mut self, ending: Ending) {
        if ending == Ending::Fenced {
            self.cx.cell.kill().cancel();
        }
        self.ending = self.ending.max(Some(ending));
        if matches!(self.stage, NameStage::Backoff) {
            self.enter(NameStage::Settled);
        }
        self.decide();
    }

    pub(super) fn cut(&self) {
        match &self.stage {
            NameStage::Running { .. } => self.cx.cell.cut().cancel(),
            NameStage::Activating { .. } | NameStage::Passivating { .. } => self.cx.cell.kill().cancel(),
            _ => {}
        }
    }
}
