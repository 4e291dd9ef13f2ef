//! What becomes of a turn whose CLI has ended.

use super::{ConversationState, Queued, Running};
use crate::options::TurnRecovery;
use crate::report::{Event, ExitCause, InterruptedBy, Outcome};
use crate::session::Prompt;

impl ConversationState {
    pub(super) fn cli_ended(&mut self, epoch: u64, cause: Option<ExitCause>) {
        self.ended_epoch = self.ended_epoch.max(epoch);
        if self.lane.as_ref().is_some_and(|lane| lane.epoch() <= epoch) {
            self.lane = None;
        }
        self.run.restarted();
        let limit = self.limits.passed();
        if cause.is_some() && !self.draining && self.shared.failed.get().is_none() && limit.is_none() {
            self.queue_again();
            self.continue_turn(epoch);
        }
        let outcome = match (cause, limit, self.shared.failed.get()) {
            (Some(_), Some(by), _) => Outcome::Interrupted { by, result: None },
            (Some(cause), None, _) => {
                Outcome::Interrupted { by: InterruptedBy::CliExit { cause }, result: None }
            }
            (None, _, Some(error)) => Outcome::Failed { error: error.clone(), result: None },
            (None, _, None) => Outcome::Interrupted { by: InterruptedBy::Stop, result: None },
        };
        self.end_turn(outcome);
        self.run_changed();
    }

    /// A prompt that was written to a CLI that died before it began is queued again, under its old uuid: a CLI that has
    /// seen it after all knows it by that. Once only, for the prompt itself may be what the CLI dies of.
    fn queue_again(&mut self) {
        if !self.running.as_ref().is_some_and(|running| !running.begun && !running.resent) {
            return;
        }
        let Some(Running { prompt, uuid, turn: Some(turn), span, .. }) = self.running.take() else { return };
        span.record("outcome", "not_started");
        self.queue.push_front(Queued { prompt, uuid, turn, resent: true });
        self.shared.turn_span.send_replace(self.shared.span.clone());
    }

    /// A turn that had begun goes on with the application's prompt, if that is the policy and there is a conversation to
    /// go on with.
    fn continue_turn(&mut self, epoch: u64) {
        let TurnRecovery::Continue { prompt } = &self.shared.options().turn_recovery else { return };
        let goes_on = self.running.as_ref().is_some_and(|running| running.begun && !running.interrupting);
        if !goes_on || self.shared.vitals.borrow().session_id.is_none() {
            return;
        }
        let prompt = Prompt::text(prompt.clone());
        let Some(Running { turn: Some(turn), span, .. }) = self.running.take() else { return };
        span.record("outcome", "continued");
        let uuid = uuid::Uuid::new_v4().to_string();
        self.queue.push_front(Queued { prompt, uuid, turn, resent: false });
        self.shared.turn_span.send_replace(self.shared.span.clone());
        self.shared.emit(Event::TurnContinued { epoch: epoch + 1 });
    }
}
