//! Runs that the CLI begins by itself: a background task has ended, or a schedule of the session's is due.
//!
//! Seen with CLI 2.1.330: an `init` without a prompt's lifecycle begins such a run, and a result that names no prompt
//! ends it. A prompt that is written in the run waits in the CLI for the end of the run, or joins the run behind its next
//! tool call. So prompts wait here until the run is over. A prompt that was written just before the run may still join
//! it; the CLI tells that the prompt has started, and the run is the prompt's turn from then on.
//!
//! ```text
//!          init, no turn                          result, idle        Completed | Failed | Interrupted
//!   None ───────────────────────────────► Open ────────────────────►
//!    │ init, a prompt was written           ▲  │ CLI ends             Interrupted(CliExit)
//!    ▼ and has not started                  │  └ the prompt starts    Joined
//!   Held ── anything but the prompt's start ┘
//!    └───── the prompt starts: the `init` is the prompt's
//! ```

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::ConversationState;
use super::results::{PromptProgress, TurnEnd, result_of};
use crate::actor::spans::TurnSpan;
use crate::actor::turn::{TurnKey, TurnSender};
use crate::error::{Error, ErrorKind};
use crate::prompt::Prompt;
use crate::report::{InterruptedBy, Outcome};
use crate::wire::{Message, SessionState};

/// The CLI's own run. See the [module](self).
#[derive(Default)]
pub(super) enum CliRun {
    #[default]
    None,
    /// An `init` that is the run's or that of the prompt which was written before.
    Held(Message),
    Open(OpenRun),
}

/// A run that the CLI has begun.
pub(super) struct OpenRun {
    /// `None` if nobody reads the run.
    turn: Option<TurnSender>,
    pub(super) began: Instant,
    interrupting: bool,
    cancelled: bool,
    /// Callers of `cancel`; dropped when the run has ended.
    await_end: Vec<oneshot::Sender<()>>,
    span: tracing::Span,
}

impl CliRun {
    pub(super) fn open(&self) -> Option<&OpenRun> {
        match self {
            Self::Open(run) => Some(run),
            _ => None,
        }
    }

    pub(super) fn open_mut(&mut self) -> Option<&mut OpenRun> {
        match self {
            Self::Open(run) => Some(run),
            _ => None,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Open(_))
    }
}

impl OpenRun {
    pub(super) fn is(&self, turn: &TurnKey) -> bool {
        self.turn.as_ref().is_some_and(|sender| sender.is(turn))
    }

    pub(super) fn sender(&self) -> Option<&TurnSender> {
        self.turn.as_ref()
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled
    }

    pub(super) fn set_interrupting(&mut self, interrupting: bool) {
        self.interrupting = interrupting;
    }

    /// Notes a cancel. Returns whether it is the first one.
    pub(super) fn cancel(&mut self, ended: oneshot::Sender<()>) -> bool {
        self.await_end.retain(|waiting| !waiting.is_closed());
        self.await_end.push(ended);
        !std::mem::replace(&mut self.cancelled, true)
    }
}

impl ConversationState {
    /// Whether prompts wait for the end of the CLI's own run. The end of the run of a CLI that does not tell its state may
    /// go unnoticed.
    pub(super) fn holds_prompts(&self) -> bool {
        self.cli_run.is_open() && self.cli.tells_state()
    }

    /// Whether a message is about the CLI's own run alone: its result.
    pub(super) fn is_of_cli_run(&self, message: &Message) -> bool {
        let names = |uuid: &str| message.user_message_uuids().iter().any(|named| named == uuid);
        self.cli_run.is_open()
            && message.kind() == "result"
            && self.running.as_ref().is_none_or(|running| !names(running.watch.uuid()))
    }

    /// Notes what a message says about the CLI's own run, before the message is handed over. `ends_turn`: it ends the
    /// running turn. Returns whether the message is held until it is known whose it is.
    pub(super) fn watch_cli_run(&mut self, message: &Message, ends_turn: bool) -> bool {
        let progress = self.running.as_ref().map(|running| running.watch.progress());
        let started = ends_turn || progress == Some(PromptProgress::Started);
        let is_init = matches!(message, Message::System(system) if system.init().is_some());
        match std::mem::take(&mut self.cli_run) {
            CliRun::Open(run) if started => {
                let prompt_uuid = self.running.as_ref().map(|running| running.watch.uuid().to_owned());
                self.end_cli_run(run, Outcome::Joined { prompt_uuid: prompt_uuid.unwrap_or_default() });
            }
            CliRun::Held(init) if started => self.send_to_turn(std::iter::once(init)),
            // It may still tell that the prompt has started.
            held @ CliRun::Held(_) if matches!(message, Message::CommandLifecycle(_)) => self.cli_run = held,
            CliRun::Held(init) => {
                self.open_cli_run();
                self.send_to_turn(std::iter::once(init));
            }
            CliRun::None if is_init && progress.is_none() && self.cli.tells_state() => self.open_cli_run(),
            CliRun::None if is_init && progress < Some(PromptProgress::Started) && progress.is_some() => {
                // A CLI without lifecycles shows by the `init` that it has begun with the prompt.
                self.cli_run = CliRun::Held(message.clone());
                return true;
            }
            run => self.cli_run = run,
        }
        false
    }

    fn open_cli_run(&mut self) {
        let uuid = uuid::Uuid::new_v4().to_string();
        let session_id = self.shared.facts.borrow().session_id.clone();
        let span = self.shared.spans.turn(TurnSpan {
            parent: &self.shared.span,
            prompt: &Prompt::text(""),
            uuid: &uuid,
            epoch: self.cli.ready_epoch().unwrap_or_default(),
            session_id: session_id.as_deref(),
        });
        self.shared.turn_span.set(span.clone());
        let (sender, turn) = self.new_turn(&uuid);
        let turn = self.shared.cli_turns.offer(turn).then_some(sender);
        let (interrupting, cancelled, await_end) = (false, false, Vec::new());
        let began = Instant::now();
        self.cli_run = CliRun::Open(OpenRun { turn, began, interrupting, cancelled, await_end, span });
        self.failure.turn_begins();
        self.limit_cli_run();
    }

    /// Ends the CLI's own run if this message does.
    pub(super) fn cli_run_ends_with(&mut self, message: &Message) {
        let Some(run) = self.cli_run.open() else { return };
        let result = result_of(message).filter(|_| self.is_of_cli_run(message));
        let is_idle = matches!(message, Message::System(system)
            if system.session_state() == Some(SessionState::Idle));
        let outcome = match result {
            Some(TurnEnd::Result(result)) => {
                self.note_recorded();
                self.outcome_of(result, run.interrupting || run.cancelled)
            }
            Some(TurnEnd::Unreadable(text)) => Outcome::failed(Error::new(ErrorKind::Malformed, text), None),
            None if is_idle => {
                let text = "the CLI is idle and gave its own run no result";
                Outcome::failed(Error::new(ErrorKind::Malformed, text), None)
            }
            None => return,
        };
        self.cli_run_ends(outcome);
    }

    /// Ends the CLI's own run, if there is one, and goes on with the prompts.
    pub(super) fn cli_run_ends(&mut self, outcome: Outcome) {
        match std::mem::take(&mut self.cli_run) {
            CliRun::Open(run) => self.end_cli_run(run, outcome),
            CliRun::Held(_) | CliRun::None => return,
        }
        self.tell_drained();
        self.next();
    }

    /// Ends the CLI's own run with the CLI, or with the session.
    pub(super) fn cli_run_ends_with_cli(&mut self, outcome: Outcome) {
        let cancelled = self.cli_run.open().is_some_and(OpenRun::is_cancelled);
        let by_user = Outcome::interrupted(InterruptedBy::User, None);
        self.cli_run_ends(if cancelled { by_user } else { outcome });
    }

    fn end_cli_run(&mut self, run: OpenRun, mut outcome: Outcome) {
        // The usage of a run that a prompt has joined is the prompt's, and that of a run that nobody reads is the next turn's.
        if run.turn.is_some() && !matches!(outcome, Outcome::Joined { .. }) {
            outcome.set_usage(self.meter.turn_ends());
        }
        self.shared.spans.turn_ends(&run.span, &outcome, run.began.elapsed());
        if let Some(turn) = run.turn {
            turn.end(outcome);
        }
        // After the outcome is there.
        drop(run.await_end);
        let running = self.running.as_mut();
        self.shared
            .turn_span
            .set(running.as_ref().map_or_else(|| self.shared.span.clone(), |running| running.span.clone()));
        match running {
            // The interrupt of a cancel has its own limit.
            Some(running) if running.cancelled => {}
            // The prompt has waited for the run.
            Some(running) => {
                running.first_sent = Instant::now();
                self.start_limits();
                self.arm_limits();
            }
            None => self.limits.end_turn(),
        }
    }

    /// Ends the reader's part of the run: the CLI goes on with it.
    pub(super) fn end_cli_run_for_reader(&mut self, outcome: Outcome) {
        if let Some(turn) = self.cli_run.open_mut().and_then(|run| run.turn.take()) {
            turn.end(outcome);
        }
    }
}
