//! What the running turn has used.

use crate::message::{SaidUsage, SessionUsage, TurnUsage, UsageTracker};
use crate::wire::Message;

/// Adds up what was used since the last turn has ended.
///
/// A turn may have several results, and parts without one: a CLI that ended before the turn was sent again.
#[derive(Default)]
pub(super) struct TurnMeter {
    tracker: UsageTracker,
    /// What was used since the last turn has ended; `None` if no result came and no CLI ended.
    used: Option<TurnUsage>,
}

impl TurnMeter {
    pub(super) fn message(&mut self, message: &Message) {
        if let Some(used) = self.tracker.feed(message) {
            self.add(used);
        }
    }

    /// Takes what entries for the session's store say.
    pub(super) fn said(&mut self, said: Vec<SaidUsage>) {
        said.into_iter().for_each(|said| self.tracker.feed_said(said));
    }

    /// The CLI has told what it has used since its start. It will end without a result.
    pub(super) fn told(&mut self, usage: &SessionUsage) {
        let used = self.tracker.feed_session(usage);
        self.add(used);
    }

    /// The CLI ended, and will tell no more of what it has used.
    pub(super) fn cli_ended(&mut self) {
        if self.tracker.is_open() {
            let used = self.tracker.end();
            self.add(used);
        }
        self.tracker.process_ended();
    }

    /// The usage of the turn that ends. Not accounted for if no result came.
    pub(super) fn turn_ends(&mut self) -> TurnUsage {
        self.used.take().unwrap_or_default()
    }

    fn add(&mut self, more: TurnUsage) {
        match &mut self.used {
            Some(used) => used.add(more),
            None => self.used = Some(more),
        }
    }
}
