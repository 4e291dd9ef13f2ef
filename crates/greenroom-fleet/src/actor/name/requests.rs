//! The requests to a name from outside, and what the fleet tells it.

use greenroom::Prompt;
use tokio::sync::oneshot;

use super::machine::{NameActorState, NameStage};
use crate::actor::cell::NameCell;
use crate::actor::task::answer;
use crate::error::FleetError;
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
        self.wish_passive(done);
        if matches!(self.stage, NameStage::Settled | NameStage::Waiting) {
            self.decide();
        }
    }

    pub(super) fn wish_passive(&mut self, done: oneshot::Sender<bool>) {
        self.callers.passive.push(done);
        match self.stage {
            NameStage::Idle(_) => self.decide(),
            // There is no session. Prompts that wait go on waiting, for their turn.
            NameStage::Settled | NameStage::Waiting | NameStage::Backoff => self.callers.tell_passive(false),
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
        let (session, on_its_way) = (live.session.clone(), live.interrupts.token());
        self.step(async move |_, _| {
            let interrupted = session.interrupt().await;
            answer(done, interrupted.map(|_| true).map_err(FleetError::Session));
            drop(on_its_way);
            Self::decide
        });
    }

    /// The name is not activated here any more, or its session was killed.
    pub(super) fn end(&mut self) {
        if self.is_ending() && matches!(self.stage, NameStage::Backoff) {
            self.enter(NameStage::Settled);
        }
        self.decide();
    }
}

/// Says something in the running turn.
pub(crate) fn steer(cell: &NameCell, message: Prompt, done: oneshot::Sender<Result<(), FleetError>>) {
    let Some(session) = cell.in_turn(None) else {
        let why = "no turn of the session runs: send a prompt".to_owned();
        return answer(done, Err(FleetError::State(why)));
    };
    cell.steps.spawn(async move {
        let steered = session.steer(message).await;
        answer(done, steered.map(drop).map_err(FleetError::Session));
    });
}
