//! What becomes of a turn whose CLI has ended.

use tokio::time::Instant;

use super::{Before, ConversationState, Queued, Running};
use crate::options::TurnRecovery;
use crate::report::{ExitCause, InterruptedBy, Outcome};
use crate::session::Prompt;
use crate::wire::Message;
use crate::wire::message::{CommandLifecycle, CommandState};

impl ConversationState {
    pub(super) fn cli_ended(&mut self, epoch: u64, cause: Option<ExitCause>) {
        self.ended_epoch = self.ended_epoch.max(epoch);
        if self.lane.as_ref().is_some_and(|lane| lane.epoch() <= epoch) {
            self.lane = None;
        }
        self.run.restarted();
        let limit = self.limits.passed();
        if let Some(cause) = &cause
            && self.goes_on_elsewhere()
        {
            self.queue_again(cause);
            self.continue_turn(cause);
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

    /// Whether the running turn is taken to the next CLI, when this one ends unasked.
    pub(super) fn goes_on_elsewhere(&self) -> bool {
        !self.draining && self.limits.passed().is_none() && (self.is_queued_again() || self.is_continued())
    }

    fn is_queued_again(&self) -> bool {
        self.running.as_ref().is_some_and(|running| {
            // What was read of it may not have been told.
            let begun = running.begun || running.lane.has_begun();
            !begun && !running.interrupting && !matches!(running.before, Before::NotBegun(_))
        })
    }

    fn is_continued(&self) -> bool {
        let vitals = self.shared.vitals.borrow();
        matches!(self.shared.options().turn_recovery, TurnRecovery::Continue { .. })
            && self.running.as_ref().is_some_and(|running| running.certain && !running.interrupting)
            // A conversation of which nothing was written down knows nothing to go on with.
            && vitals.recorded
            && vitals.session_id.is_some()
    }

    /// A prompt that was written to a CLI that died before it began is queued again, under its old uuid: a CLI that has
    /// seen it after all knows it by that. Once only, for the prompt itself may be what the CLI dies of.
    fn queue_again(&mut self, cause: &ExitCause) {
        if !self.is_queued_again() {
            return;
        }
        let Some(Running { prompt, uuid, turn: Some(turn), span, before, first_sent, .. }) =
            self.running.take()
        else {
            return;
        };
        span.record("outcome", "not_started");
        let before = match before {
            // It stays the continuation of a turn that had begun.
            Before::CutOff(cause) => Before::CutOff(cause),
            Before::Unsent | Before::NotBegun(_) => Before::NotBegun(cause.clone()),
        };
        self.queue.push_front(Queued { prompt, uuid, turn, before, first_sent: Some(first_sent) });
        self.shared.turn_span.set(self.shared.span.clone());
    }

    /// A turn that had certainly begun goes on with the application's prompt, if that is the policy and there is a
    /// conversation to go on with.
    fn continue_turn(&mut self, cause: &ExitCause) {
        let TurnRecovery::Continue { prompt } = &self.shared.options().turn_recovery else { return };
        if !self.is_continued() {
            return;
        }
        let prompt = Prompt::text(prompt.clone());
        let Some(Running { turn: Some(turn), span, first_sent, .. }) = self.running.take() else { return };
        span.record("outcome", "continued");
        let uuid = uuid::Uuid::new_v4().to_string();
        let before = Before::CutOff(cause.clone());
        self.queue.push_front(Queued { prompt, uuid, turn, before, first_sent: Some(first_sent) });
        self.shared.turn_span.set(self.shared.span.clone());
    }

    /// Notes whether the CLI works at the prompt. A sign of anything else that it works at counts as begun too: a
    /// prompt must rather be lost, and be said so, than be sent twice. It is certain only when the CLI names the
    /// prompt, or is one that names none.
    pub(super) fn note_begun(&mut self, message: &Message) {
        let lifecycle = match message {
            Message::CommandLifecycle(lifecycle) => Some(lifecycle),
            _ => None,
        };
        self.tells_lifecycle |= lifecycle.is_some();
        let Some(running) = &mut self.running else { return };
        if running.begun && running.certain {
            return;
        }
        let named = message.user_message_uuids().contains(&running.uuid)
            || lifecycle.is_some_and(|lifecycle| {
                lifecycle.command_uuid == running.uuid && lifecycle.state == CommandState::Started
            });
        let something = match message {
            Message::System(system) => system.init().is_some(),
            // Also one whose shape is not known.
            message => matches!(message.kind(), "assistant" | "user" | "stream_event" | "result"),
        };
        running.begun |= named || something;
        running.certain |= named || (something && !self.tells_lifecycle);
    }

    /// A prompt that asks nothing may have no result: the CLI says that it is done, which comes after a result.
    pub(super) fn appended(&mut self, lifecycle: &CommandLifecycle) {
        if self.is_appended(lifecycle) {
            self.run.result(Instant::now());
            self.end_turn(Outcome::Appended);
            self.next();
        }
    }

    pub(super) fn is_appended(&self, lifecycle: &CommandLifecycle) -> bool {
        let Some(running) = &self.running else { return false };
        let done = lifecycle.command_uuid == running.uuid && lifecycle.state == CommandState::Completed;
        done && !running.prompt.queries()
    }

    /// A prompt that was written again, and that the CLI knows as done already: it says so, and nothing else. Its answer
    /// went to the incarnation that died.
    pub(super) fn known_already(&mut self, lifecycle: &CommandLifecycle) {
        if let Some(cause) = self.was_known_already(lifecycle) {
            let by = InterruptedBy::CliExit { cause };
            self.run.result(Instant::now());
            self.end_turn(Outcome::Interrupted { by, result: None });
            self.next();
        }
    }

    pub(super) fn was_known_already(&self, lifecycle: &CommandLifecycle) -> Option<ExitCause> {
        let running = self.running.as_ref()?;
        let Before::NotBegun(cause) = &running.before else { return None };
        let done = lifecycle.command_uuid == running.uuid
            && matches!(lifecycle.state, CommandState::Completed | CommandState::Cancelled);
        (done && !running.begun).then(|| cause.clone())
    }
}
