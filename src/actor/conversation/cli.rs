//! The incarnations of the CLI, as the conversation knows them.
//!
//! ```text
//!   none takes prompts ── ready(n) ──► n takes prompts ── ended(n), or its queue has closed ──► none takes prompts
//! ```

use crate::wire::Message;

/// The incarnation that takes prompts, and those that have ended.
#[derive(Debug, Default)]
pub(super) struct CliState {
    /// The incarnation that takes prompts; `None` while there is none.
    ready: Option<u64>,
    /// The newest incarnation that has ended.
    ended: u64,
    /// Set by the first `command_lifecycle` of the incarnation that takes prompts.
    tells_lifecycle: bool,
    /// Set by the first session state of the incarnation that takes prompts.
    tells_state: bool,
}

impl CliState {
    /// The epoch of the incarnation that takes prompts.
    pub(super) fn ready_epoch(&self) -> Option<u64> {
        self.ready
    }

    /// Messages of ended incarnations are dropped.
    pub(super) fn has_ended(&self, epoch: u64) -> bool {
        epoch <= self.ended
    }

    pub(super) fn tells_lifecycle(&self) -> bool {
        self.tells_lifecycle
    }

    pub(super) fn tells_state(&self) -> bool {
        self.tells_state
    }

    pub(super) fn ready(&mut self, epoch: u64) {
        (self.ready, self.tells_lifecycle, self.tells_state) = (Some(epoch), false, false);
    }

    pub(super) fn message(&mut self, message: &Message) {
        self.tells_lifecycle |= matches!(message, Message::CommandLifecycle(_));
        self.tells_state |= matches!(message, Message::System(system) if system.session_state().is_some());
    }

    /// The queue to the incarnation has closed: its end is still to be told.
    pub(super) fn queue_closed(&mut self) {
        self.ready = None;
    }

    pub(super) fn ended(&mut self, epoch: u64) {
        self.ended = self.ended.max(epoch);
        self.ready = self.ready.filter(|ready| *ready > epoch);
    }
}
