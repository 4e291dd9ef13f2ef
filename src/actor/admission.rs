//! Admission: how many requests of the CLI are in flight, of the whole session and of each tool server, and how many may
//! be.
//!
//! One more than may be is refused by the router at once. The first refusal is an event; the next event comes only when
//! the gate has meanwhile been down to half its bound, so that a flood of refusals is not a flood of events.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What counts the requests in flight of one scope.
#[derive(Debug)]
pub(crate) struct Gate {
    /// The tool server; `None` for the whole session.
    pub(crate) server: Option<String>,
    pub(crate) limit: usize,
    in_flight: AtomicUsize,
    /// Handlers whose tasks are ready and were not polled yet.
    beginning: AtomicUsize,
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

    /// A handler is about to begin.
    pub(crate) fn begins(&self) {
        self.beginning.fetch_add(1, Ordering::Relaxed);
    }

    /// One has begun; it may have answered.
    pub(crate) fn has_begun(&self) {
        self.beginning.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether handlers are about to begin, whose answers may come at once.
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

    /// Whether a refusal is the first since there was room, and so worth an event.
    pub(crate) fn is_news(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }

    /// What a refused request is told.
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
    fn a_full_gate_is_news_again_only_after_it_had_room() {
        let gate = Gate::new(None, 4);
        (0..4).for_each(|_| gate.enter());
        assert!(gate.is_full() && gate.is_news() && !gate.is_news());
        gate.leave();
        assert!(!gate.is_full() && !gate.is_news(), "one place is not room");
        gate.leave();
        assert!(gate.is_news() && !gate.is_news());
    }
}
