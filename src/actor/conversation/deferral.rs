//! Turns that wait for a person's decision without a CLI, and turns that go on from there.
//!
//! ```text
//!   running ── Defer ──► deferred ── the CLI has ended ──► Deferred
//!              │ the question was answered, other work runs: refused, and nothing has changed
//!
//!   Expected ── the CLI says that it works ──► Begun ──► running, as any other turn
//!      │                                        │ the CLI ends before the turn: so does the session
//!      └── it is ready, and says nothing for `timeouts.control_request`: Failed, and the session ends
//! ```
//!
//! The question is settled without an answer before the CLI is killed, so no handler can allow the call meanwhile.
//!
//! A CLI that resumes a deferred call runs it as soon as the call is allowed. If that CLI dies, its transcript still says that
//! the call waits, and the next CLI would ask again and might run the call twice. So the session ends with this CLI.

use std::sync::Arc;

use tokio::time::Instant;

use super::ConversationState;
use super::queue::{Queued, TurnHistory};
use super::results::ResultWatch;
use crate::actor::base::task::Task;
use crate::actor::messages::conversation::{ConversationMessage, Deferral};
use crate::actor::messages::session::Internal;
use crate::actor::turn::{Turn, TurnSender};
use crate::error::{Error, ErrorKind, Result};
use crate::prompt::Prompt;
use crate::report::{DeferredCall, Outcome};
use crate::wire::Message;

/// The turn that goes on with a deferred call.
pub(super) enum ResumedTurn {
    /// The session resumes no call, or its turn has begun and was taken.
    None,
    /// No CLI has begun with it.
    Expected {
        uuid: String,
        sender: TurnSender,
        turn: Option<Turn>,
        /// Runs once a CLI is ready.
        limit: Option<Task>,
    },
    /// A CLI has begun with it, and the application has not taken it.
    Begun(Turn),
}

impl ResumedTurn {
    /// Whether the turn comes before all prompts.
    pub(super) fn comes_first(&self) -> bool {
        matches!(self, Self::Expected { .. })
    }

    /// The turn's sender, if no CLI has begun with it: no CLI will.
    pub(super) fn give_up(&mut self) -> Option<TurnSender> {
        if !self.comes_first() {
            return None;
        }
        match std::mem::replace(self, Self::None) {
            Self::Expected { sender, .. } => Some(sender),
            Self::None | Self::Begun(_) => None,
        }
    }

    /// The turn for the application, once.
    pub(super) fn take_turn(&mut self) -> Option<Turn> {
        match self {
            Self::None => None,
            Self::Expected { turn, .. } => turn.take(),
            Self::Begun(_) => match std::mem::replace(self, Self::None) {
                Self::Begun(turn) => Some(turn),
                Self::None | Self::Expected { .. } => None,
            },
        }
    }
}

impl ConversationState {
    /// Makes the turn that goes on with the deferred call, if the session resumes one.
    pub(super) fn expect_resumed(&mut self) {
        if self.shared.spec.resumed_call.is_some() {
            let uuid = uuid::Uuid::new_v4().to_string();
            let (sender, turn) = self.new_turn(&uuid);
            self.resumed = ResumedTurn::Expected { uuid, sender, turn: Some(turn), limit: None };
        }
    }

    /// The CLI is ready: limits the time until it begins with the turn that goes on.
    pub(super) fn limit_resumed(&mut self) {
        let within = self.shared.options().timeouts.control_request;
        let conversation = self.myself.clone();
        if let ResumedTurn::Expected { limit, .. } = &mut self.resumed {
            *limit = Some(Task::spawn(async move {
                tokio::time::sleep(within).await;
                // Fails if the conversation has ended.
                conversation.cast(ConversationMessage::NotResumed).ok();
            }));
        }
    }

    /// The CLI has not begun with the turn that goes on.
    pub(super) fn not_resumed(&mut self) {
        let Some(sender) = self.resumed.give_up() else { return };
        let call =
            self.shared.spec.resumed_call.as_ref().map(|call: &DeferredCall| call.tool_use_id.as_str());
        let text = format!("the CLI did not go on with the call {}", call.unwrap_or_default());
        let error = Error::new(ErrorKind::NoOpenCall, text);
        sender.end(Outcome::failed(error.clone(), None));
        self.shared.tell(Internal::Fatal(error));
    }

    /// Begins the turn that goes on, if the message shows that the CLI works: it asks for the call by itself.
    pub(super) fn begin_resumed(&mut self, epoch: u64, message: &Message) {
        let works = match message {
            Message::System(system) => system.init().is_some() || system.session_state().is_some(),
            Message::CommandLifecycle(_) | Message::User(_) | Message::Assistant(_) | Message::Result(_) => {
                true
            }
            _ => false,
        };
        if !works || !self.resumed.comes_first() || self.cli.has_ended(epoch) {
            return;
        }
        let Some(outbound) = self.shared.cli.outbound_of(epoch) else { return };
        let ResumedTurn::Expected { uuid, sender, turn, limit: _ } =
            std::mem::replace(&mut self.resumed, ResumedTurn::None)
        else {
            return;
        };
        self.resumed = turn.map_or(ResumedTurn::None, ResumedTurn::Begun);
        let watch = ResultWatch::resumed(uuid.clone());
        let queued = Queued {
            // Not written.
            prompt: Prompt::text(""),
            uuid,
            turn: sender,
            history: TurnHistory::Unsent,
            first_sent: Some(Instant::now()),
        };
        self.begin(queued, outbound, watch, None);
    }

    /// Ends the running turn, and leaves a question of it open.
    pub(super) fn defer(&mut self, deferral: Deferral) -> Result<()> {
        let Deferral { question, call, usage } = deferral;
        let refused = |why: &str| Err(Error::new(ErrorKind::NotDeferrable, why));
        // In a run of its own the CLI asks for no prompt of ours.
        let cut = self.limits.passed().is_some() || self.cli_run.is_open();
        let running = self.running.as_mut().filter(|running| {
            !cut && running.turn.is_some()
                && !running.interrupting
                && !running.cancelled
                && running.deferred.is_none()
                && running.outbound.epoch() == question.epoch()
        });
        let Some(running) = running else {
            return refused("no turn runs, or the turn is being ended");
        };
        if !self.steering.is_empty() {
            return refused("a message into the running turn waits for the CLI");
        }
        if self.run.has_any_task() {
            return refused("tasks of the CLI run in the background, and would be lost");
        }
        let others = self
            .shared
            .ledger
            .open()
            .iter()
            .filter(|open| open.request_id() != question.request_id())
            .count();
        if others > 0 {
            return refused(&format!("{others} other requests of the CLI are open, and would be lost"));
        }
        if !question.withhold() {
            return refused("the question was answered");
        }
        running.deferred = Some(Outcome::Deferred { call, usage: Arc::default() });
        if let Some(usage) = usage {
            self.meter.told(&usage);
        }
        // Nothing more is written to this CLI.
        self.draining = true;
        self.give_back_queue();
        self.shared.tell(Internal::Deferred { epoch: question.epoch() });
        Ok(())
    }
}
