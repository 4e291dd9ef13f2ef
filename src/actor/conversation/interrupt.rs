//! Interrupts and cancelled turns: the conversation takes note first, then the CLI is asked.
//!
//! An interrupt is for whatever the CLI does. A cancel is for one turn:
//!
//! ```text
//!             queued ──────────────────────────────────────────────────────────────────► NotStarted
//!   cancel ── written, not known to have begun ── `cancel_async_message`: true ──────────────────────► NotStarted
//!             └────────────────────── false, or unknown ──┐
//!             running ───────────────────────────────────►└─ `interrupt` ── result ────► Interrupted(User)
//!                                                                 │ CLI ends ──────────► Interrupted(User)
//!                                                                 │ no answer, no end
//!                                                                 └─ the CLI is ended ─► Interrupted(User)
//! ```
//!
//! The prompts of the queue wait until the CLI has answered.

use std::sync::Arc;
use std::time::Duration;

use ractor::ActorRef;

use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::results::PromptProgress;
use super::{ConversationState, RunningTurn};
use crate::actor::base::deadlines::after;
use crate::actor::base::reply::respond;
use crate::actor::base::task::Task;
use crate::actor::context::Shared;
use crate::actor::messages::conversation::{CancelAnswer, ConversationMessage};
use crate::actor::messages::session::Internal;
use crate::actor::router::client::{ask, ask_through};
use crate::actor::turn::{CancelTurn, TurnKey};
use crate::error::{ErrorKind, Result};
use crate::requests::{CancelledMessage, InterruptReceipt, Reply};
use crate::wire::envelope::empty_object;

/// The interrupts and cancels that the CLI has not answered.
pub(super) struct Cancels {
    pub(super) unanswered: Vec<Cancelling>,
    /// Tasks that ask the CLI to interrupt what it does.
    interrupts: Vec<Task>,
    /// Number of cancels so far; numbers the next one.
    number: u64,
    /// Given to every turn.
    pub(super) canceller: CancelTurn,
}

/// A cancel that the CLI was told of.
pub(super) struct Cancelling {
    number: u64,
    turn: TurnKey,
    pub(super) epoch: u64,
    _task: Task,
}

impl Cancels {
    pub(super) fn new(conversation: &ActorRef<ConversationMessage>) -> Self {
        let conversation = conversation.clone();
        let canceller: CancelTurn = Arc::new(move |turn, ended| {
            // A conversation that has ended has ended its turns.
            conversation.cast(ConversationMessage::Cancel { turn, ended }).ok();
        });
        Self { unanswered: Vec::new(), interrupts: Vec::new(), number: 0, canceller }
    }
}

impl RunningTurn {
    fn is(&self, turn: &TurnKey) -> bool {
        self.turn.as_ref().is_some_and(|sender| sender.is(turn))
    }
}

impl ConversationState {
    /// Ends one turn: takes its prompt back, or has the CLI end it. Drops `ended` when the turn has ended.
    pub(super) fn cancel(&mut self, turn: TurnKey, ended: oneshot::Sender<()>) {
        if let Some(queued) = self.queue.take(|queued| queued.turn.is(&turn)) {
            queued.turn.end(queued.history.not_sent(queued.prompt, true));
            self.run_changed();
            return;
        }
        if let Some(run) = self.cli_run.open_mut().filter(|run| run.is(&turn)) {
            if let (true, Some(epoch)) = (run.cancel(ended), self.cli.ready_epoch()) {
                self.ask_to_end(turn, epoch, None);
            }
            return;
        }
        let (is_over, cli_has_ended) = (self.holds_end(), self.holds_end_of_cli());
        let Some(running) = self.running.as_mut().filter(|running| running.is(&turn)) else { return };
        running.await_end.retain(|waiting| !waiting.is_closed());
        running.await_end.push(ended);
        // A turn whose end waits for the store is over for the CLI, and a CLI whose end waits hears nothing.
        if is_over || std::mem::replace(&mut running.cancelled, true) || cli_has_ended {
            return;
        }
        // The CLI may work at something of its own, which an interrupt would end instead of this turn.
        let not_begun = running.watch.progress() < PromptProgress::Started;
        let uuid = not_begun.then(|| running.watch.uuid().to_owned());
        let epoch = running.outbound.epoch();
        self.ask_to_end(turn, epoch, uuid);
    }

    /// Has the CLI end a turn. `not_begun`: the uuid of a prompt with which the CLI may not have begun.
    fn ask_to_end(&mut self, turn: TurnKey, epoch: u64, not_begun: Option<String>) {
        self.limit_ending();
        self.cancels.number += 1;
        let number = self.cancels.number;
        let (shared, myself) = (self.shared.clone(), self.myself.clone());
        let task = Task::spawn(async move {
            let answer = end_in_cli(&shared, epoch, not_begun).await;
            // A conversation that has ended has no turn.
            myself.cast(ConversationMessage::CancelAnswered { number, answer }).ok();
        });
        self.cancels.unanswered.push(Cancelling { number, turn, epoch, _task: task });
    }

    /// The CLI has answered the requests of a cancel.
    pub(super) fn cancel_answered(&mut self, number: u64, answer: CancelAnswer) {
        let unanswered = &self.cancels.unanswered;
        let Some(at) = unanswered.iter().position(|cancelling| cancelling.number == number) else { return };
        if let CancelAnswer::Failed(error) = &answer {
            let epoch = unanswered[at].epoch;
            tracing::warn!(parent: &self.shared.span, %error, "a turn could not be cancelled");
            // The CLI may still do what it was asked for. So no prompt is sent before the CLI has ended.
            if !matches!(error.kind(), ErrorKind::Refused | ErrorKind::Unsupported) {
                let reason = format!("it did not answer when a turn was cancelled: {error}");
                return self.shared.tell(Internal::GiveUpCli { epoch, reason });
            }
        }
        let cancelling = self.cancels.unanswered.remove(at);
        let running = self.running.as_ref().filter(|running| running.is(&cancelling.turn));
        match (answer, running) {
            // The CLI may tell its lifecycle too, before or after this.
            (CancelAnswer::TakenBack, Some(running)) => {
                let outcome = running.history.clone().not_sent(running.prompt.clone(), true);
                self.end_without_result(outcome);
            }
            _ => self.next(),
        }
        self.run_changed();
    }

    /// Asks the CLI to end what it does, on a task of its own: the interrupt goes on when its caller stops waiting.
    pub(super) fn interrupt(
        &mut self,
        cancel_queued: bool,
        limit: Duration,
        reply: oneshot::Sender<Result<Reply<InterruptReceipt>>>,
    ) {
        if let Some(run) = self.cli_run.open_mut() {
            run.set_interrupting(true);
        } else if let Some(running) = &mut self.running {
            running.interrupting = true;
        }
        let queued = self.queue.iter().map(|queued| queued.uuid.as_str());
        let queued: Vec<_> = self.unwritten_steering().chain(queued).map(str::to_owned).collect();
        if cancel_queued {
            // Before the CLI is asked: the end of the turn would send the next prompt.
            self.give_back_queue();
        }
        let (shared, myself) = (self.shared.clone(), self.myself.clone());
        let turn_runs = self.running.is_some() || self.cli_run.is_open();
        let mut body = json!({ "subtype": "interrupt" });
        if cancel_queued {
            body["cancel_queued"] = true.into();
        }
        self.cancels.interrupts.retain(|task| !task.is_finished());
        self.cancels.interrupts.push(Task::spawn(async move {
            let asked = ask(&shared, body, limit).await;
            if asked.is_err() {
                // A conversation that has ended has no turn.
                myself.cast(ConversationMessage::NotInterrupted).ok();
            }
            let receipt = read_receipt(asked, turn_runs).map(|mut receipt| {
                let lists = receipt.view_mut();
                let list = if cancel_queued { &mut lists.cancelled } else { &mut lists.still_queued };
                list.extend(queued);
                receipt
            });
            respond(reply, receipt);
        }));
    }
}

fn read_receipt(asked: Result<Box<RawValue>>, turn_runs: bool) -> Result<Reply<InterruptReceipt>> {
    match asked {
        // Without a turn and without a CLI there is nothing to interrupt.
        Err(error) if error.kind() == ErrorKind::NotReady && !turn_runs => {
            Ok(Reply::new(InterruptReceipt::default(), empty_object()))
        }
        asked => Reply::read("interrupt", asked?),
    }
}

/// Has this incarnation drop the prompt with this uuid if it has not begun with it, or interrupt what it does.
async fn end_in_cli(shared: &Shared, epoch: u64, not_begun: Option<String>) -> CancelAnswer {
    let deadline = after(Instant::now(), shared.options().timeouts.control_request);
    if let Some(uuid) = not_begun {
        let body = json!({ "subtype": "cancel_async_message", "message_uuid": uuid });
        match ask_through(shared, epoch, body, deadline).await {
            Ok(raw) => {
                let taken = Reply::<CancelledMessage>::read("cancel_async_message", raw);
                if taken.is_ok_and(|taken| taken.cancelled) {
                    return CancelAnswer::TakenBack;
                }
            }
            // A CLI that does not know the request.
            Err(error) if matches!(error.kind(), ErrorKind::Refused | ErrorKind::Unsupported) => {}
            Err(error) => return CancelAnswer::Failed(error),
        }
    }
    match ask_through(shared, epoch, json!({ "subtype": "interrupt" }), deadline).await {
        Ok(_) => CancelAnswer::Interrupted,
        Err(error) => CancelAnswer::Failed(error),
    }
}
