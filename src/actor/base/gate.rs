//! Admission: counts the requests of the CLI in flight, for the whole session and for each tool server, against a
//! limit.
//!
//! A request over the limit is refused at once. The first refusal is an event. The next event comes only after the gate
//! was down to half its limit, so a flood of refusals is not a flood of events.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::level::Level;

/// Counts the requests in flight of one session or one tool server.
pub(crate) struct Gate {
    /// Name of the tool server; `None` for the whole session.
    pub(crate) server: Option<String>,
    pub(crate) in_flight: Level,
    /// Handlers that were started and not polled yet.
    beginning: AtomicUsize,
}

impl Gate {
    pub(crate) fn new(server: Option<String>, limit: usize) -> Self {
        Self { server, in_flight: Level::new(limit), beginning: AtomicUsize::new(0) }
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

    /// Whether more requests have entered than the limit allows.
    pub(crate) fn is_over(&self) -> bool {
        self.in_flight.count() > self.in_flight.limit
    }

    /// Error text for a refused request.
    pub(crate) fn refusal(&self) -> String {
        match &self.server {
            Some(server) => {
                format!(
                    "at capacity: {} requests to MCP server '{server}' are in flight",
                    self.in_flight.limit
                )
            }
            None => format!("at capacity: {} requests are in flight", self.in_flight.limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_gate_is_reported_again_only_after_it_was_half_empty() {
        let gate = Gate::new(None, 4);
        (0..5).for_each(|_| gate.in_flight.add(1));
        assert!(gate.is_over() && gate.in_flight.is_news() && !gate.in_flight.is_news());
        gate.in_flight.remove(1);
        assert!(!gate.is_over());
        gate.in_flight.remove(1);
        assert!(!gate.in_flight.is_news(), "one free place is not half");
        gate.in_flight.remove(1);
        assert!(gate.in_flight.is_news() && !gate.in_flight.is_news());
    }
}
