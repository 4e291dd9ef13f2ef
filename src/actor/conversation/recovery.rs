//! A turn whose CLI has ended: it ends, is sent again, or goes on.

use tokio::time::Instant;

use super::queue::{Queued, TurnHistory};
use super::results::PromptProgress;
use super::steering::Offer;
use super::{ConversationState, RunningTurn};
use crate::options::TurnRecovery;
use crate::prompt::Prompt;
use crate::report::{ExitCause, InterruptedBy, Outcome};
use crate::transport::Exit;
use crate::wire::message::{CommandLifecycle, CommandState};

impl ConversationState {
    pub(super) fn cli_ended(&mut self, epoch: u64, cause: Option<ExitCause>) {
        self.cli.ended(epoch);
        self.run.restarted();
        self.meter.cli_ended();
        // The CLI answers no more.
        self.cancels.unanswered.retain(|cancelling| cancelling.epoch > epoch);
        self.steering_ends_with_cli(cause.as_ref());
        self.announced_end(cause.as_ref());
        let limit = self.limits.passed();
        if let Some(cause) = &cause
            && let Some(attempt) = self.next_attempt()
        {
            self.queue_again(attempt, cause);
        }
        let cancelled = self.running.as_ref().is_some_and(|running| running.cancelled);
        let deferred = self.running.as_mut().and_then(|running| running.deferred.take());
        let by_user = cause.is_some() && limit.is_none() && cancelled && deferred.is_none();
        let outcome = match (cause, limit, self.shared.ending.failed()) {
            _ if let Some(outcome) = deferred => outcome,
            (Some(_), Some(by), _) => Outcome::interrupted(by, None),
            (Some(cause), None, _) => Outcome::interrupted(InterruptedBy::CliExit { cause }, None),
            (None, _, Some(error)) => Outcome::failed(error.clone(), None),
            (None, _, None) => Outcome::interrupted(InterruptedBy::Stop, None),
        };
        self.cli_run_ends_with_cli(outcome.clone());
        let interrupted = Outcome::interrupted(InterruptedBy::User, None);
        self.end_turn(if by_user { interrupted } else { outcome });
        self.run_changed();
    }

    /// Ends the turn with an error result that named no prompt, if the CLI exited with a failure right after it.
    fn announced_end(&mut self, cause: Option<&ExitCause>) {
        if matches!(cause, Some(ExitCause::Exited { exit: Exit::Code(1..), .. }))
            && let Some(result) = self.running.as_ref().and_then(|running| running.watch.announced_end())
        {
            self.result(result);
        }
    }

    /// The next attempt at the running turn when this CLI dies; `None` if the turn ends.
    pub(super) fn next_attempt(&self) -> Option<NextAttempt> {
        let running = self.running.as_ref().filter(|running| !running.interrupting && !running.cancelled)?;
        if self.draining || self.shared.facts.borrow().resuming || self.limits.passed().is_some() {
            return None;
        }
        let progress = running.watch.progress();
        // The reader may have seen a message that this actor was not told.
        let begun = progress > PromptProgress::Written || running.outbound.has_begun();
        // Once only, because the prompt itself may crash the CLI.
        if !begun && !matches!(running.history, TurnHistory::NotBegun(_)) {
            return Some(NextAttempt::SamePrompt);
        }
        let facts = self.shared.facts.borrow();
        match &self.shared.options().turn_recovery {
            // Without a transcript there is nothing to go on with.
            TurnRecovery::Continue { prompt }
                if progress == PromptProgress::Started && facts.recorded && facts.session_id.is_some() =>
            {
                Some(NextAttempt::Continuation(Prompt::text(prompt.clone())))
            }
            _ => None,
        }
    }

    /// Queues the running turn again, for the next CLI.
    fn queue_again(&mut self, attempt: NextAttempt, cause: &ExitCause) {
        let Some(RunningTurn { prompt, watch, turn: Some(turn), span, history, first_sent, offer, .. }) =
            self.running.take()
        else {
            return;
        };
        let cut_off = || TurnHistory::CutOff(cause.clone());
        let (prompt, uuid, history, outcome) = match (attempt, history) {
            (NextAttempt::Continuation(prompt), _) => {
                (prompt, uuid::Uuid::new_v4().to_string(), cut_off(), "continued")
            }
            // The uuid stays: a CLI that has seen the prompt after all recognises it.
            (NextAttempt::SamePrompt, TurnHistory::CutOff(cause)) => {
                (prompt, watch.uuid().to_owned(), TurnHistory::CutOff(cause), "not_started")
            }
            (NextAttempt::SamePrompt, TurnHistory::Unsent | TurnHistory::NotBegun(_)) => {
                (prompt, watch.uuid().to_owned(), TurnHistory::NotBegun(cause.clone()), "not_started")
            }
        };
        span.record("outcome", outcome);
        offer.into_iter().for_each(Offer::deliver);
        self.queue.push_front(Queued { prompt, uuid, turn, history, first_sent: Some(first_sent) });
        self.shared.turn_span.set(self.shared.span.clone());
    }

    /// The outcome of the running turn, if this lifecycle ends the turn without a result.
    pub(super) fn outcome_without_result(&self, lifecycle: &CommandLifecycle) -> Option<Outcome> {
        let running =
            self.running.as_ref().filter(|running| lifecycle.command_uuid == running.watch.uuid())?;
        let progress = running.watch.progress();
        match (&lifecycle.state, &running.history) {
            // The prompt was written again, and the CLI knows it as done: the answer went to the incarnation that died.
            (CommandState::Completed | CommandState::Cancelled, TurnHistory::NotBegun(cause))
                // After a cancel, `cancelled` is the answer to the cancel.
                if progress == PromptProgress::Written
                    && !(running.cancelled && lifecycle.state == CommandState::Cancelled) =>
            {
                let by = InterruptedBy::CliExit { cause: cause.clone() };
                Some(Outcome::interrupted(by, None))
            }
            // A prompt that asks nothing may get no result; a result would have come before.
            (CommandState::Completed, _) if !running.prompt.queries() => Some(Outcome::Appended),
            // The CLI has dropped the prompt from its queue.
            (CommandState::Cancelled, history) if progress < PromptProgress::Started => {
                let (history, prompt) = (history.clone(), running.prompt.clone());
                Some(history.not_sent(prompt, running.cancelled))
            }
            _ => None,
        }
    }

    pub(super) fn end_without_result(&mut self, outcome: Outcome) {
        self.run.result(Instant::now());
        self.end_turn(outcome);
        self.next();
    }
}

/// The next attempt at a turn, with the next CLI.
pub(super) enum NextAttempt {
    /// The prompt is sent again: the CLI died before it began with the prompt.
    SamePrompt,
    /// The application's continuation prompt is sent: the turn had certainly begun.
    Continuation(Prompt),
}
