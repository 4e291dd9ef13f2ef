//! Admission: counts the requests of the CLI in flight, for the whole session and for each tool server, against a
//! limit.
//!
//! A request over the limit is refused at once. The first refusal is an event. The next event comes only after the gate
//! was down to half its limit, so a flood of refusals is not a flood of events.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Counts the requests in flight of one session or one tool server.
#[derive(Debug)]
pub(crate) struct Gate {
    /// Name of the tool server; `None` for the whole session.
    pub(crate) server: Option<String>,
    pub(crate) limit: usize,
    in_flight: AtomicUsize,
    /// Handlers that were started and not polled yet.
    beginning: AtomicUsize,
    /// Whether the current overload was already reported.
    told: AtomicBool,
}

impl Gate {
    pub(crate) fn new(server: Option<String>, limit: usize) -> Self {
        Self {
            server,
            limit,
            in_flight: AtomicUsize::new(0),
            beginning: AtomicUsize::new(0),
            told: AtomicBool::new(false),
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Counts a handler that is about to be started.
    pub(crate) fn begins(&self) {
        self.beginning.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts that handler as begun: it was polled, and may have answered.
    pub(crate) fn has_begun(&self) {
        self.beginning.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether handlers are about to begin. The writer waits for their answers, to write them in one go.
    pub(crate) fn is_beginning(&self) -> bool {
        self.beginning.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn is_full(&self) -> bool {
        self.in_flight() >= self.limit
    }

    pub(crate) fn enter(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self) {
        let left = self.in_flight.fetch_sub(1, Ordering::Relaxed) - 1;
        if left <= self.limit / 2 && self.told.load(Ordering::Relaxed) {
            self.told.store(false, Ordering::Relaxed);
        }
    }

    /// Whether a refusal is the first one since the gate was down to half its limit, and so worth an event.
    pub(crate) fn is_news(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }

    /// Error text for a refused request.
    pub(crate) fn refusal(&self) -> String {
        match &self.server {
            Some(server) => {
                format!("at capacity: {} requests to MCP server '{server}' are in flight", self.limit)
            }
            None => format!("at capacity: {} requests are in flight", self.limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_gate_is_reported_again_only_after_it_was_half_empty() {
        let gate = Gate::new(None, 4);
        (0..4).for_each(|_| gate.enter());
        assert!(gate.is_full() && gate.is_news() && !gate.is_news());
        gate.leave();
        assert!(!gate.is_full() && !gate.is_news(), "one free place is not half");
        gate.leave();
        assert!(gate.is_news() && !gate.is_news());
    }
}
