//! Messages of the CLI, on their way to the running turn and to the subscribers.

use tokio::time::Instant;

use super::ConversationState;
use super::cli_run::CliRun;
use super::results::{PromptProgress, TurnEnd};
use crate::actor::messages::conversation::CliEvent;
use crate::actor::messages::session::Internal;
use crate::error::{Error, ErrorKind};
use crate::report::{Event, Outcome};
use crate::sessions::is_session_id;
use crate::telemetry::names::CONVERSATION_ID;
use crate::wire::Message;

impl ConversationState {
    /// Takes messages that came together. Pieces of messages are many, and are handed over as one batch, which wakes
    /// the turn's reader once.
    pub(super) fn messages(&mut self, epoch: u64, messages: Vec<Message>) {
        let mut pieces = Vec::new();
        for message in messages {
            let is_piece = matches!(message, Message::StreamEvent(_));
            if is_piece && !self.cli.has_ended(epoch) && !self.is_held() {
                pieces.push(message);
            } else {
                self.pieces(std::mem::take(&mut pieces));
                self.cli_event(CliEvent::Message { epoch, message });
            }
        }
        self.pieces(pieces);
    }

    /// Like [`message`](Self::message), for pieces of messages that are still being written.
    fn pieces(&mut self, pieces: Vec<Message>) {
        if pieces.is_empty() {
            return;
        }
        self.heard();
        let now = Instant::now();
        for piece in &pieces {
            self.watch_piece(piece);
            self.meter.message(piece);
            if !matches!(self.cli_run, CliRun::None) {
                self.watch_cli_run(piece, false);
            }
            self.run.message(piece, now);
        }
        if self.shared.messages.has_subscribers() {
            pieces.iter().for_each(|piece| self.tell(piece));
        }
        self.send_to_turn(pieces.into_iter());
        self.run_changed();
    }

    /// Takes a message: notes what it says, hands it over, and ends the turn if the message ends it.
    pub(super) fn message(&mut self, message: Message) {
        self.heard();
        self.capture(&message);
        self.shared.cli.note_message(&message);
        self.failure.note(&message);
        self.meter.message(&message);
        let end = self.watch(&message);
        let is_held = self.watch_cli_run(&message, end.is_some());
        self.run.message(&message, Instant::now());
        // Not for the application: messages for the host, and entries for the session's store.
        let hidden = matches!(&message, Message::System(system) if system.sdk_host_only())
            || message.kind() == "transcript_mirror";
        match (hidden, is_held) {
            (true, _) => {}
            (false, true) => self.tell(&message),
            (false, false) => self.hand_over(&message),
        }
        self.cli_run_ends_with(&message);
        match (end, &message) {
            (Some(end), _) => self.turn_ends(end),
            (None, Message::CommandLifecycle(lifecycle)) => {
                let outcome = self.outcome_without_result(lifecycle);
                outcome.into_iter().for_each(|outcome| self.end_without_result(outcome));
            }
            (None, _) => {}
        }
        self.run_changed();
    }

    /// Notes what a message says about the running prompt, and returns the end of the turn if the message ends it.
    fn watch(&mut self, message: &Message) -> Option<TurnEnd> {
        self.cli.message(message);
        self.watch_steering(message);
        if self.is_of_cli_run(message) {
            return None;
        }
        let end = self.running.as_mut()?.watch.message(message, self.cli.tells_lifecycle());
        self.confirm_offer();
        self.write_steering();
        end
    }

    /// Like [`watch`](Self::watch), for a piece of a message, which ends no turn.
    fn watch_piece(&mut self, piece: &Message) {
        self.watch_steering(piece);
        if self.running.as_ref().is_some_and(|running| running.watch.progress() < PromptProgress::Started) {
            self.watch(piece);
        }
    }

    /// Hands a message to the subscribers and to the running turn.
    pub(super) fn hand_over(&mut self, message: &Message) {
        self.tell(message);
        self.send_to_turn(std::iter::once(message).cloned());
    }

    fn tell(&self, message: &Message) {
        self.shared.messages.send(message.clone(), message.raw().get().len());
    }

    /// Hands messages to the CLI's own run or to the running turn, and counts the messages that no turn takes.
    pub(super) fn send_to_turn(&mut self, messages: impl ExactSizeIterator<Item = Message>) {
        let unread = &self.shared.counting.unread_messages;
        let turn = match self.cli_run.open() {
            Some(run) => run.sender(),
            None => self.running.as_ref().and_then(|running| running.turn.as_ref()),
        };
        let Some(turn) = turn else { return unread.add(messages.len() as u64) };
        match turn.buffer.push(messages) {
            Ok(dropped) => unread.add(dropped),
            Err((error, behind)) => {
                unread.add(behind);
                let outcome = Outcome::failed(error, None);
                if self.cli_run.is_open() {
                    self.end_cli_run_for_reader(outcome);
                } else {
                    self.end_turn_for_reader(outcome);
                }
            }
        }
    }

    /// Notes the id under which the conversation is resumed, and has the supervisor claim the conversation.
    fn capture(&mut self, message: &Message) {
        let Message::System(system) = message else { return };
        let Some(init) = system.init() else { return };
        let session_id = init.session_id.as_deref().or(message.session_id());
        let Some(session_id) = session_id.filter(|id| !id.is_empty()) else { return };
        let is_known = {
            let facts = self.shared.facts.borrow();
            facts.captured && facts.session_id.as_deref() == Some(session_id)
        };
        if is_known {
            return;
        }
        // Checked, because the id becomes an argument and a part of paths.
        if !is_session_id(session_id) {
            let text = format!("the CLI named the conversation {session_id:?}, which is not a UUID");
            return self.shared.tell(Internal::Fatal(Error::new(ErrorKind::Malformed, text)));
        }
        self.shared.facts.send_modify(|facts| {
            facts.session_id = Some(session_id.to_owned());
            facts.captured = true;
        });
        self.shared.span.record("session_id", session_id);
        self.shared.span.record(CONVERSATION_ID, session_id);
        if let Some(running) = &self.running {
            running.span.record(CONVERSATION_ID, session_id);
        }
        self.shared.emit(Event::SessionCaptured { session_id: session_id.to_owned() });
        self.shared.tell(Internal::Captured);
    }
}
