//! The end of a turn.

use std::sync::Arc;

use super::ConversationState;
use super::queue::Queued;
use super::results::TurnEnd;
use crate::actor::messages::session::Internal;
use crate::error::{Error, ErrorKind};
use crate::message::Typed;
use crate::report::{InterruptedBy, Outcome};
use crate::wire::ResultMessage;
use crate::wire::message::TerminalReason;

impl ConversationState {
    pub(super) fn turn_ends(&mut self, end: TurnEnd) {
        match end {
            TurnEnd::Result(result) => self.result(result),
            TurnEnd::Unreadable(text) => {
                self.note_recorded();
                let cancelled = self.running.as_ref().is_some_and(|running| running.cancelled);
                let outcome = if cancelled {
                    Outcome::interrupted(InterruptedBy::User, None)
                } else {
                    Outcome::failed(Error::new(ErrorKind::Malformed, text), None)
                };
                self.end_without_result(outcome);
            }
        }
    }

    pub(super) fn result(&mut self, result: Arc<Typed<ResultMessage>>) {
        self.note_recorded();
        let Some(running) = &self.running else { return };
        let outcome = self.outcome_of(result, running.interrupting || running.cancelled);
        self.end_turn(outcome);
        self.next();
    }

    /// The outcome of a turn by its result. `interrupted`: the CLI was asked to end the turn.
    pub(super) fn outcome_of(&self, result: Arc<Typed<ResultMessage>>, interrupted: bool) -> Outcome {
        let aborted = result.terminal_reason.as_ref().is_some_and(TerminalReason::is_aborted);
        // `aborted` counts even for a success: CLI 2.1.330 reports success for a turn that a message with the priority
        // `now` has cut off.
        if result.is_success() && !aborted {
            Outcome::Completed { result, usage: Arc::default() }
        } else if let Some(by) = self.limits.passed() {
            Outcome::interrupted(by, Some(result))
        } else if aborted || interrupted {
            Outcome::interrupted(InterruptedBy::User, Some(result))
        } else {
            Outcome::failed(self.failure.error(&result), Some(result))
        }
    }

    /// Notes that the conversation is on disk: the CLI writes the transcript before it sends a result.
    pub(super) fn note_recorded(&self) {
        self.shared.facts.send_if_modified(|facts| !std::mem::replace(&mut facts.recorded, true));
    }

    /// Ends the running turn, if there is one.
    pub(super) fn end_turn(&mut self, outcome: Outcome) {
        self.steering_of_turn_ends(&outcome);
        self.end_turn_for_reader(outcome);
        if self.running.take().is_some() && !self.resumed.comes_first() {
            self.shared.facts.send_if_modified(|facts| std::mem::take(&mut facts.resuming));
        }
        self.limits.end_turn();
        self.shared.turn_span.set(self.shared.span.clone());
        self.tell_drained();
    }

    /// Ends the running turn for the application. The CLI may still work at its prompt.
    pub(super) fn end_turn_for_reader(&mut self, mut outcome: Outcome) {
        let Some(running) = &mut self.running else { return };
        if running.turn.is_some() {
            outcome.set_usage(self.meter.turn_ends());
        }
        if let Some(offer) = running.offer.take() {
            offer.end(&outcome, &running.prompt);
        }
        let await_end = std::mem::take(&mut running.await_end);
        if let Some(turn) = running.turn.take() {
            let took = running.first_sent.elapsed();
            self.shared.spans.turn_ends(&running.span, &outcome, took);
            turn.end(outcome);
        }
        // After the outcome is there.
        drop(await_end);
    }

    /// Gives every prompt back that was not written.
    pub(super) fn give_back_queue(&mut self) {
        self.give_back_steering(|_| true);
        self.queue.drain().for_each(Queued::give_back);
        self.run_changed();
    }

    /// Takes a prompt back that was not written. Returns whether there was such a prompt.
    pub(super) fn take_back(&mut self, uuid: &str) -> bool {
        let steered = self.give_back_steering(|steering| steering == uuid);
        let Some(queued) = self.queue.take(|queued| queued.uuid == uuid) else { return steered };
        queued.give_back();
        self.run_changed();
        true
    }

    /// Ends every turn and gives every prompt back: the session is over.
    pub(super) fn give_up(&mut self, failed: Option<Error>) {
        self.draining = true;
        self.release_all();
        self.steering_ends_with_cli(None);
        self.meter.cli_ended();
        let deferred = self.running.as_mut().and_then(|running| running.deferred.take());
        let outcome = deferred.unwrap_or_else(|| match failed {
            Some(error) => Outcome::failed(error, None),
            None => Outcome::interrupted(InterruptedBy::Stop, None),
        });
        if let Some(sender) = self.resumed.give_up() {
            sender.end(outcome.clone());
        }
        self.cli_run_ends_with_cli(outcome.clone());
        self.end_turn(outcome);
        self.give_back_queue();
    }

    /// Tells the supervisor that no turn runs and none will begin, if that is so.
    pub(super) fn tell_drained(&self) {
        if self.draining && self.running.is_none() && !self.cli_run.is_open() && self.steering.is_empty() {
            self.shared.tell(Internal::Drained);
        }
    }
}
