//! The limits of a turn (its length, and the silence of its CLI), of a run, and of the time without work.
//!
//! ```text
//!   running ──turn or silence passes──► interrupting ──result──► Interrupted(Limit)
//!                                            │
//!                                            └─ no result within `control_request` ─► the CLI is ended:
//!                                                                  Interrupted(Limit), next incarnation
//! ```

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::ConversationState;
use crate::actor::base::deadlines::{Deadlines, after};
use crate::actor::base::reply::telling;
use crate::actor::base::task::Task;
use crate::actor::messages::conversation::ConversationMessage;
use crate::actor::messages::session::Internal;
use crate::actor::router;
use crate::report::{Event, InterruptedBy};

/// A limit of the turn or, the last two, of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Limit {
    /// Limits the whole turn.
    Turn,
    /// Limits the time since the last message.
    Silence,
    /// Limits the time that the CLI takes to end a turn after an interrupt.
    Ending,
    /// The ceiling of the run.
    Run,
    /// Limits the time without work.
    Idle,
}

/// The limits of the running turn, and of the session.
pub(super) struct Limits {
    deadlines: Deadlines<Limit>,
    silence: Option<Instant>,
    interrupting: Option<Task>,
    /// The limit of the turn that has passed, and its length.
    passed: Option<(&'static str, Duration)>,
}

impl Limits {
    pub(super) fn new() -> Self {
        Self { deadlines: Deadlines::new(), silence: None, interrupting: None, passed: None }
    }

    /// The limit that has ended the turn, if one has.
    pub(super) fn passed(&self) -> Option<InterruptedBy> {
        self.passed.map(|(limit, after)| InterruptedBy::Limit { limit: limit.to_owned(), after })
    }

    /// Ends the limits of a turn.
    pub(super) fn end_turn(&mut self) {
        self.deadlines.retain(|limit| matches!(limit, Limit::Run | Limit::Idle));
        (self.silence, self.interrupting, self.passed) = (None, None, None);
    }
}

impl ConversationState {
    /// Starts the limits of the running turn.
    pub(super) fn start_limits(&mut self) {
        self.limits.end_turn();
        let timeouts = &self.shared.options().timeouts;
        // Counted from the first time that the prompt was written, across restarts of the CLI.
        let of_prompt = || self.running.as_ref().map_or_else(Instant::now, |running| running.first_sent);
        let began = self.cli_run.open().map_or_else(of_prompt, |run| run.began);
        if let Some(limit) = timeouts.turn {
            self.limits.deadlines.insert(after(began, limit), Limit::Turn);
        }
        self.heard();
    }

    /// Starts the limits of the CLI's own run. A prompt that was written before waits for the run, and has its limits
    /// afterwards, unless it is being cancelled.
    pub(super) fn limit_cli_run(&mut self) {
        if self.running.as_ref().is_none_or(|running| !running.cancelled) {
            self.start_limits();
            self.arm_limits();
        }
    }

    /// Whether a prompt's turn or the CLI's own run goes on.
    fn is_in_turn(&self) -> bool {
        self.running.is_some() || self.cli_run.is_open()
    }

    /// Restarts the limit of silence: the CLI has said something.
    pub(super) fn heard(&mut self) {
        let Some(limit) = self.shared.options().timeouts.silence else { return };
        if !self.is_in_turn() || self.limits.passed.is_some() {
            return;
        }
        let next = after(Instant::now(), limit);
        if let Some(last) = self.limits.silence.replace(next) {
            self.limits.deadlines.remove(last, Limit::Silence);
        }
        self.limits.deadlines.insert(next, Limit::Silence);
        self.arm_limits();
    }

    pub(super) fn arm_limits(&mut self) {
        self.limits.deadlines.arm(telling(&self.myself, || ConversationMessage::LimitTick));
    }

    /// Limits the time that the CLI takes to end the turn, which it is told to.
    pub(super) fn limit_ending(&mut self) {
        let limit = self.shared.options().timeouts.control_request;
        self.limits.deadlines.insert(after(Instant::now(), limit), Limit::Ending);
        self.arm_limits();
    }

    pub(super) fn limit_tick(&mut self) {
        if self.holds_limits() {
            return;
        }
        let now = Instant::now();
        for limit in self.limits.deadlines.expired(now) {
            match limit {
                Limit::Run => {
                    self.run.ceiling(now);
                    self.run_changed();
                }
                Limit::Idle => {
                    // At once, so that no prompt is accepted which the stop would give back.
                    self.draining = true;
                    self.shared.tell(Internal::Idle);
                }
                limit => self.limit_passed(limit),
            }
        }
        self.arm_limits();
    }

    fn limit_passed(&mut self, limit: Limit) {
        let Some(epoch) = self.cli.ready_epoch().filter(|_| self.is_in_turn()) else { return };
        let timeouts = &self.shared.options().timeouts;
        let (name, passed) = match limit {
            Limit::Turn => ("turn", timeouts.turn.unwrap_or_default()),
            Limit::Silence => ("silence", timeouts.silence.unwrap_or_default()),
            _ => {
                let reason = format!(
                    "it did not end a turn that it was told to end within {:?}",
                    timeouts.control_request
                );
                return self.shared.tell(Internal::GiveUpCli { epoch, reason });
            }
        };
        let cancelled = match self.cli_run.open() {
            Some(run) => run.is_cancelled(),
            None => self.running.as_ref().is_some_and(|running| running.cancelled),
        };
        if self.limits.passed.is_some() || cancelled {
            return;
        }
        self.limits.passed = Some((name, passed));
        self.limit_ending();
        self.shared.counting.timeouts.one();
        self.shared.emit(Event::TurnTimedOut { limit: name, after: passed });
        let shared = self.shared.clone();
        self.limits.interrupting = Some(Task::spawn(async move {
            let limit = shared.options().timeouts.control_request;
            if let Err(error) = router::ask(&shared, json!({ "subtype": "interrupt" }), limit).await {
                // `Limit::Ending` ends the CLI if the turn goes on.
                tracing::warn!(parent: &shared.span, %error, "a turn over its limit could not be interrupted");
            }
        }));
    }

    /// Sets or ends a limit of the session.
    pub(super) fn limit_session(&mut self, limit: Limit, at: Option<Instant>) {
        self.limits.deadlines.retain(|other| *other != limit);
        if let Some(at) = at {
            self.limits.deadlines.insert(at, limit);
            self.arm_limits();
        }
    }

    /// Starts the limit of a session that has become idle, and ends the limit of a session that has work.
    pub(super) fn limit_idle(&mut self, idle: bool) {
        match self.shared.options().timeouts.idle.filter(|_| idle && !self.draining) {
            None => self.limit_session(Limit::Idle, None),
            Some(_) if self.limits.deadlines.has(&Limit::Idle) => {}
            Some(limit) => self.limit_session(Limit::Idle, Some(after(Instant::now(), limit))),
        }
    }
}
