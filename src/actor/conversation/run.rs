//! Decide when a run is over: the CLI works at nothing any more, in the foreground or the background.
//!
//! A `result` ends a turn ([`results`](super::results)), not the run: a background agent that finishes may begin
//! another turn, and closing stdin before would take the application's tools away from it. The signs are the CLI's
//! session state, its results, and the background tasks that it has announced. A ceiling ends the run of a CLI that
//! says too little, or that has more than 16,384 background tasks.
//!
//! ```text
//!                 prompt written
//!   Ended ───────────────────────────► Open, no result
//!     ▲                                     │ result
//!     │  idle, or state unknown,            ▼
//!     └─ and no background task ◄──── Open, result seen ──── ceiling passes ───► Ended
//!     │                                     ▲
//!     └──── running / requires_action / a message of the main thread: open again
//! ```

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::time::Duration;

use tokio::time::Instant;

use crate::actor::base::deadlines::after;
use crate::wire::{Message, SessionState, TaskEvent};

/// Kinds of background tasks that keep a run open. Shells and monitors do not: they may never end.
const ENDING_TASKS: [&str; 2] = ["local_agent", "local_workflow"];

/// Most running background tasks whose ids are kept. If there were more, nobody knows whether one still runs, so a run
/// without other work ends at its ceiling; without a ceiling, when the CLI ends.
const MOST_TASKS: usize = 16_384;

/// Watches whether the run is over.
pub(crate) struct RunTracker {
    ended: bool,
    result_seen: bool,
    state: Option<SessionState>,
    /// Hashes of the ids of background tasks: the CLI chooses how long the ids are.
    tasks: HashSet<u64>,
    /// The same for the other kinds, which keep no run open.
    other_tasks: HashSet<u64>,
    /// Whether tasks were announced that are in neither set, because it was full.
    tasks_overflowed: bool,
    ceiling: Option<Duration>,
    ceiling_at: Option<Instant>,
}

impl RunTracker {
    pub(crate) fn new(ceiling: Option<Duration>) -> Self {
        Self {
            ended: true,
            result_seen: false,
            state: None,
            tasks: HashSet::new(),
            other_tasks: HashSet::new(),
            tasks_overflowed: false,
            ceiling,
            ceiling_at: None,
        }
    }

    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    /// Number of background tasks that keep the run open, at most [`MOST_TASKS`].
    pub(crate) fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// The time to call [`ceiling`](RunTracker::ceiling), unless another event comes first.
    pub(crate) fn ceiling_at(&self) -> Option<Instant> {
        self.ceiling_at
    }

    /// A prompt is written.
    pub(crate) fn prompted(&mut self) {
        self.ended = false;
        self.result_seen = false;
        self.ceiling_at = None;
    }

    /// Whether a background task of any kind runs, or may run.
    pub(crate) fn has_any_task(&self) -> bool {
        self.tasks_overflowed || !self.tasks.is_empty() || !self.other_tasks.is_empty()
    }

    /// Forgets the state of the old CLI: a new one is ready.
    pub(crate) fn restarted(&mut self) {
        *self = Self::new(self.ceiling);
    }

    /// Ends a run at its ceiling if it has seen a result and no background task keeps it open.
    pub(crate) fn ceiling(&mut self, now: Instant) {
        if self.ceiling_at.is_some_and(|at| at <= now) {
            self.ceiling_at = None;
            if self.result_seen && self.tasks.is_empty() {
                self.ended = true;
                self.tasks_overflowed = false;
            }
        }
    }

    /// A message of the CLI.
    pub(crate) fn message(&mut self, message: &Message, now: Instant) {
        match message {
            Message::Result(_) => self.result(now),
            // A result that cannot be read counts too.
            Message::Other(other) if other.kind() == "result" => self.result(now),
            Message::System(system) => {
                if let Some(state) = system.session_state() {
                    self.state(state, now);
                }
                match system.task() {
                    Some(TaskEvent::Started { task_id, task_type }) => {
                        let keeps_open =
                            task_type.as_deref().is_some_and(|kind| ENDING_TASKS.contains(&kind));
                        self.task_started(&task_id, keeps_open);
                    }
                    Some(TaskEvent::Ended { task_id, .. })
                        if self.task_ended(&task_id) && self.result_seen =>
                    {
                        self.settle(now);
                    }
                    _ => {}
                }
            }
            Message::Assistant(_) | Message::StreamEvent(_) if message.parent_tool_use_id().is_none() => {
                self.reopen()
            }
            _ => {}
        }
    }

    fn task_started(&mut self, task_id: &str, keeps_open: bool) {
        let task = self.tasks.hasher().hash_one(task_id);
        let tasks = if keeps_open { &mut self.tasks } else { &mut self.other_tasks };
        if tasks.len() < MOST_TASKS {
            tasks.insert(task);
        } else if keeps_open && !tasks.contains(&task) {
            self.tasks_overflowed = true;
        }
    }

    /// Returns whether the task was one that kept the run open.
    fn task_ended(&mut self, task_id: &str) -> bool {
        let task = self.tasks.hasher().hash_one(task_id);
        self.other_tasks.remove(&task);
        self.tasks.remove(&task)
    }

    fn state(&mut self, state: SessionState, now: Instant) {
        match state {
            SessionState::Idle if self.result_seen => {
                self.state = Some(state);
                self.settle(now);
                return;
            }
            SessionState::Idle => {}
            SessionState::Running | SessionState::RequiresAction => self.reopen(),
            _ => return,
        }
        if state == SessionState::Running && self.result_seen {
            self.arm(now);
        }
        self.state = Some(state);
    }

    /// The turn's result has come, or is known to be lost.
    pub(crate) fn result(&mut self, now: Instant) {
        self.result_seen = true;
        self.settle(now);
    }

    fn reopen(&mut self) {
        self.ended = false;
        self.ceiling_at = None;
    }

    fn arm(&mut self, now: Instant) {
        self.ceiling_at = self.ceiling.map(|ceiling| after(now, ceiling));
    }

    /// Ends the run after a result, or waits for the CLI to become idle and for its tasks.
    fn settle(&mut self, now: Instant) {
        let idle = !matches!(self.state, Some(SessionState::Running | SessionState::RequiresAction));
        if idle && self.tasks.is_empty() && !self.tasks_overflowed {
            self.ended = true;
            self.ceiling_at = None;
        } else {
            self.arm(now);
        }
    }
}
