//! Messages into the running turn.
//!
//! They pass the queue and are written at once. The CLI tells the lifecycle of each message under its uuid:
//!
//! ```text
//!            CLI tells                   started, while a turn runs
//!   Unwritten ───────► Written ───────────────────────────────────► Taken ── the model speaks, result ──► Joined
//!      │ lifecycle       │ │ cancelled: NotTaken                      │ completed ──► Done ── result ──► Joined, or
//!      │                 │ │                                          │     NotTaken, if the result does not name it
//!      │ it does not     │ └─ the turn ends ──► running, offered ─────┼─ CLI ends: Unknown
//!      │ tell any        │                          │ started: Turn
//!      ▼                 │ CLI ends before it       │ another one starts: Written again, the other is offered
//!   queue: Turn ◄────────┘ could take it
//! ```
//!
//! Still one prompt runs at a time: when the turn ends, the oldest of these messages runs next, before the queue. The
//! CLI may begin with another message (messages have priorities), or with several at once, which it makes one turn: the
//! turn of the first message, which the others join.
//!
//! Seen with CLI 2.1.330: a message that a hook blocks is `started` and `completed` at once, and the result does not
//! name the message. A message that has joined is `completed` before the result, which names it.

use super::queue::{Queued, TurnHistory};
use super::results::{PromptProgress, ResultWatch};
use super::{ConversationState, RunningTurn};
use crate::actor::base::reply::respond;
use crate::actor::turn::Turn;
use crate::actor::turn::steering::{Steered, Steering, SteeringSender, steering};
use crate::error::{Error, ErrorKind, Result};
use crate::prompt::Prompt;
use crate::report::{ExitCause, Outcome};
use crate::wire::Message;
use crate::wire::message::{CommandLifecycle, CommandState};

/// A message into the running turn whose outcome is not known yet.
pub(super) struct PendingMessage {
    prompt: Prompt,
    /// The length of the prompt as JSON.
    bytes: usize,
    uuid: String,
    state: SteeringState,
    /// Whether the CLI has named the message as queued.
    named: bool,
    reply: SteeringSender,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SteeringState {
    /// Waits until it is known whether the CLI tells lifecycles.
    Unwritten,
    Written,
    /// The CLI has sent something at which it may have taken the message.
    MaybeTaken,
    /// The CLI has taken the message into the running turn.
    Taken,
    /// The CLI is done with the message.
    Done,
}

/// The handle of a steering message that may have become a turn, until that is known.
pub(super) struct Offer {
    reply: SteeringSender,
    turn: Turn,
}

impl Offer {
    /// The message is a turn of its own. If the receiver was dropped, so are the turn's messages.
    pub(super) fn deliver(self) {
        respond(self.reply, Steered::Turn(self.turn));
    }

    /// The turn ends before it is known whether it began. Without a result, the outcome of the message is unknown.
    pub(super) fn end(self, outcome: &Outcome, prompt: &Prompt) {
        let prompt = prompt.clone();
        let steered = match (outcome, outcome.clone().into_result()) {
            (Outcome::NotStarted { .. }, _) => Steered::NotTaken { prompt },
            (
                Outcome::Interrupted { result: None, .. } | Outcome::Failed { result: None, .. },
                Err(error),
            ) => Steered::Unknown { prompt, error },
            _ => Steered::Turn(self.turn),
        };
        respond(self.reply, steered);
    }
}

impl PendingMessage {
    fn joined(self, prompt_uuid: &str) {
        respond(self.reply, Steered::Joined { prompt_uuid: prompt_uuid.to_owned() });
    }

    fn not_taken(self) {
        respond(self.reply, Steered::NotTaken { prompt: self.prompt });
    }

    fn unknown(self, error: Error) {
        respond(self.reply, Steered::Unknown { prompt: self.prompt, error });
    }
}

impl ConversationState {
    /// Writes a message into the running turn. The message is an ordinary prompt if no turn runs or the turn is being
    /// cancelled, if the CLI tells no lifecycle, or if the message asks nothing: no result would name it, as if a hook had
    /// blocked it.
    pub(super) fn steer(&mut self, prompt: Prompt) -> Result<Steering> {
        let steerable = prompt.queries()
            && self.running.as_ref().is_some_and(|running| {
                let not_begun = running.watch.progress() == PromptProgress::Written;
                // The interrupt of a cancel that is still to be written would hit the message.
                !running.cancelled
                    && self.cli.ready_epoch().is_some()
                    && (self.cli.tells_lifecycle() || not_begun)
            });
        if !steerable {
            let turn = self.prompt(prompt)?;
            let (reply, handle) = steering(turn.prompt_uuid().to_owned());
            Offer { reply, turn }.deliver();
            return Ok(handle);
        }
        let bytes = self.admit(&prompt)?;
        let uuid = uuid::Uuid::new_v4().to_string();
        let (reply, handle) = steering(uuid.clone());
        let state = SteeringState::Unwritten;
        self.steering.push_back(PendingMessage { prompt, bytes, uuid, state, named: false, reply });
        self.write_steering();
        Ok(handle)
    }

    /// Writes the unwritten messages once the CLI tells lifecycles, or makes ordinary prompts of them if the CLI tells
    /// none.
    pub(super) fn write_steering(&mut self) {
        if !self.steering.iter().any(|pending| pending.state == SteeringState::Unwritten) {
            return;
        }
        let begun =
            self.running.as_ref().is_none_or(|running| running.watch.progress() > PromptProgress::Written);
        match self.outbound() {
            Some(outbound) if self.cli.tells_lifecycle() => {
                let verbatim = self.shared.options().verbatim_prompts;
                for pending in
                    self.steering.iter_mut().filter(|pending| pending.state == SteeringState::Unwritten)
                {
                    let line = pending.prompt.line(&pending.uuid, verbatim);
                    if outbound.send(line.to_string().into_bytes()).is_err() {
                        // The incarnation has just ended: unwritten messages wait for the next one.
                        self.cli.queue_closed();
                        return;
                    }
                    pending.state = SteeringState::Written;
                }
            }
            Some(_) if !begun => {}
            _ => {
                for at in (0..self.steering.len()).rev() {
                    if self.steering[at].state == SteeringState::Unwritten
                        && let Some(pending) = self.steering.remove(at)
                    {
                        self.queue_steering(pending, TurnHistory::Unsent);
                    }
                }
            }
        }
    }

    /// Puts the message at the front of the queue, as an ordinary prompt.
    fn queue_steering(&mut self, pending: PendingMessage, history: TurnHistory) {
        let PendingMessage { prompt, uuid, reply, .. } = pending;
        let (sender, turn) = self.new_turn(&uuid);
        self.queue.push_front(Queued { prompt, uuid, turn: sender, history, first_sent: None });
        Offer { reply, turn }.deliver();
    }

    /// Runs the oldest message as a turn of its own: the turn that it was for has ended without it.
    pub(super) fn offer_next(&mut self) -> bool {
        if self.steering.is_empty() {
            return false;
        }
        let Some(outbound) = self.outbound() else { return false };
        let Some(pending) = self.steering.pop_front() else { return false };
        let PendingMessage { prompt, uuid, named, reply, .. } = pending;
        let (sender, turn) = self.new_turn(&uuid);
        let watch = ResultWatch::steered(uuid.clone(), named);
        let history = TurnHistory::Unsent;
        let queued = Queued { prompt, uuid, turn: sender, history, first_sent: None };
        self.begin(queued, outbound, watch, Some(Offer { reply, turn }));
        true
    }

    /// The CLI works at this message and not at the running prompt. A running prompt that was only offered waits again.
    fn begins_instead(&mut self, uuid: &str) {
        let Some(at) = self.steering.iter().position(|pending| pending.uuid == uuid) else { return };
        let Some(pending) = self.steering.remove(at) else { return };
        self.steering.push_front(PendingMessage { state: SteeringState::MaybeTaken, ..pending });
        match self.running.take_if(|running| running.offer.is_some()) {
            Some(RunningTurn { prompt, watch, offer: Some(Offer { reply, .. }), .. }) => {
                let (uuid, named) = (watch.uuid().to_owned(), watch.is_named());
                let state = SteeringState::MaybeTaken;
                let bytes = prompt.bytes();
                self.steering.insert(1, PendingMessage { prompt, bytes, uuid, state, named, reply });
                self.offer_next();
            }
            // The end of the turn offers the first message.
            _ => {
                let end = self.running.as_mut().map(|running| running.watch.given_up());
                end.into_iter().for_each(|end| self.turn_ends(end));
            }
        }
    }

    /// Notes what a message of the CLI says about the messages into the turn.
    pub(super) fn watch_steering(&mut self, message: &Message) {
        if self.steering.is_empty() {
            return;
        }
        let Some(running) = &self.running else { return };
        match message {
            Message::CommandLifecycle(lifecycle) => self.steering_lifecycle(lifecycle),
            Message::Assistant(_) | Message::StreamEvent(_) if message.parent_tool_use_id().is_none() => {
                let turn = running.watch.uuid().to_owned();
                self.resolve(
                    |pending| pending.state == SteeringState::Taken,
                    |pending| pending.joined(&turn),
                );
            }
            message if message.kind() == "result" => {
                let uuids = message.user_message_uuids();
                let other = self.steering.iter().find(|pending| uuids.contains(&pending.uuid));
                if let Some(other) = other.filter(|_| !uuids.iter().any(|uuid| uuid == running.watch.uuid()))
                {
                    let other = other.uuid.clone();
                    self.begins_instead(&other);
                }
                self.maybe_taken();
            }
            message if message.kind() == "user" && message.parent_tool_use_id().is_none() => {
                self.maybe_taken()
            }
            _ => {}
        }
    }

    /// The CLI may have taken the written messages: it has sent something that may follow on a message, or a line was
    /// lost.
    pub(super) fn maybe_taken(&mut self) {
        for pending in self.steering.iter_mut().filter(|pending| pending.state == SteeringState::Written) {
            pending.state = SteeringState::MaybeTaken;
        }
    }

    fn steering_lifecycle(&mut self, lifecycle: &CommandLifecycle) {
        let uuid = &lifecycle.command_uuid;
        let Some(pending) = self.steering.iter_mut().find(|pending| pending.uuid == *uuid) else { return };
        let Some(running) = &self.running else { return };
        let offered = running.offer.is_some() && running.watch.progress() < PromptProgress::Started;
        match &lifecycle.state {
            CommandState::Queued => pending.named = true,
            CommandState::Started if offered || running.watch.has_lost_result() => self.begins_instead(uuid),
            CommandState::Started => pending.state = SteeringState::Taken,
            CommandState::Completed => pending.state = SteeringState::Done,
            CommandState::Cancelled if pending.state < SteeringState::Taken => {
                let uuid = uuid.clone();
                self.resolve(|pending| pending.uuid == uuid, PendingMessage::not_taken);
            }
            _ => {}
        }
    }

    /// Ends the messages that are known to have joined the running turn, which ends with this outcome.
    pub(super) fn steering_of_turn_ends(&mut self, outcome: &Outcome) {
        let Some(running) = &self.running else { return };
        let turn = running.watch.uuid().to_owned();
        let uuids = outcome.result().map_or(&[][..], |result| result.user_message_uuids()).to_vec();
        self.resolve(
            |pending| pending.state >= SteeringState::Taken || uuids.contains(&pending.uuid),
            |pending| {
                // Beyond `MOST_NAMED` a missing name says nothing.
                let would_be_named = !uuids.is_empty() && uuids.len() < MOST_NAMED;
                if pending.state == SteeringState::Done && would_be_named && !uuids.contains(&pending.uuid) {
                    pending.not_taken();
                } else {
                    pending.joined(&turn);
                }
            },
        );
    }

    /// Ends the messages when the CLI has ended. Messages that the CLI cannot have taken are queued if the CLI died,
    /// and come back otherwise.
    pub(super) fn steering_ends_with_cli(&mut self, cause: Option<&ExitCause>) {
        let error =
            match cause {
                Some(cause) => cause.to_error(),
                None => self.shared.ending.failed().cloned().unwrap_or_else(|| {
                    Error::new(ErrorKind::Stopped, "the session was stopped during the turn")
                }),
            };
        // A port that was killed may have read messages that this actor was not told.
        let untold = matches!(cause, Some(ExitCause::Port { .. }));
        for pending in std::mem::take(&mut self.steering).into_iter().rev() {
            let unwritten = pending.state == SteeringState::Unwritten;
            match cause {
                Some(_) if unwritten && !self.draining => self.queue_steering(pending, TurnHistory::Unsent),
                Some(cause) if pending.state == SteeringState::Written && !untold && !self.draining => {
                    self.queue_steering(pending, TurnHistory::NotBegun(cause.clone()));
                }
                _ if unwritten || (pending.state == SteeringState::Written && !untold) => pending.not_taken(),
                _ => pending.unknown(error.clone()),
            }
        }
    }

    /// Removes and ends the messages that fit.
    fn resolve(&mut self, fits: impl Fn(&PendingMessage) -> bool, end: impl Fn(PendingMessage)) {
        let mut at = 0;
        while at < self.steering.len() {
            if fits(&self.steering[at])
                && let Some(pending) = self.steering.remove(at)
            {
                end(pending);
            } else {
                at += 1;
            }
        }
    }

    /// Hands over the running turn of a message once the CLI has begun with it.
    pub(super) fn confirm_offer(&mut self) {
        if let Some(running) = &mut self.running
            && running.watch.progress() == PromptProgress::Started
            && let Some(offer) = running.offer.take()
        {
            offer.deliver();
        }
    }

    /// The uuids of unwritten messages.
    pub(super) fn unwritten_steering(&self) -> impl Iterator<Item = &str> {
        let unwritten = self.steering.iter().filter(|pending| pending.state == SteeringState::Unwritten);
        unwritten.map(|pending| pending.uuid.as_str())
    }

    /// Gives unwritten messages back that fit. Returns whether there were any.
    pub(super) fn give_back_steering(&mut self, fits: impl Fn(&str) -> bool) -> bool {
        let before = self.steering.len();
        let unwritten =
            |pending: &PendingMessage| pending.state == SteeringState::Unwritten && fits(&pending.uuid);
        self.resolve(unwritten, PendingMessage::not_taken);
        self.steering.len() < before
    }

    /// Number and bytes of the messages whose outcome is not known.
    pub(super) fn steering_size(&self) -> (usize, usize) {
        (self.steering.len(), self.steering.iter().map(|pending| pending.bytes).sum())
    }
}

/// The most prompts that a result names, as TypeScript SDK 0.3.330 says of `user_message_uuids`.
const MOST_NAMED: usize = 64;
