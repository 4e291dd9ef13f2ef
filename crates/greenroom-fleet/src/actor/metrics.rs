//! The counters of a node since its start.
//!
//! Counters follow the events of the fleet, so an event that is emitted by one node is counted by one. No counter has a name, a conversation or a
//! text as its label.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use greenroom::Snapshot;
use greenroom::telemetry::LabelValues;
use greenroom::telemetry::names::WAKE;

use crate::event::FleetEvent;
use crate::lock::locked;
use crate::outcome::snake_case;
use crate::request::Refused;

/// A counter: its name and the value of its label.
type Counter = (&'static str, String);

/// The names of counters, each with its label and its help. A counter without a label has an empty one.
pub(crate) const COUNTERS: [(&str, &str, &str); 19] = [
    ("prompts_accepted_total", "", "Prompts that were accepted."),
    ("prompts_refused_total", "reason", "Prompts that were refused."),
    ("turns_begun_total", "", "Runs of turns with which a CLI has begun."),
    ("turns_total", "outcome", "Prompts that have their outcome, those that were never sent included."),
    ("turns_held_total", "", "Turns that the API has rejected before anything ran, and that wait again."),
    ("turns_continued_total", "", "Turns that lost their owner and go on with their continuation."),
    ("activations_total", "wake", "Sessions that were started, cold or resumed."),
    ("activation_failures_total", "reason", "Sessions that could not be started."),
    ("passivations_total", "reason", "Sessions that were put to sleep."),
    ("quarantines_total", "reason", "Sessions that were quarantined."),
    ("sessions_lost_total", "", "Sessions that this node had to give up."),
    ("sessions_recovered_total", "", "Sessions that were taken from an owner that was lost."),
    ("questions_total", "end", "Questions to people, and those that have ended."),
    ("budgets_spent_total", "", "Budgets of tenants that were spent."),
    ("actor_restarts_total", "", "Actors of the fleet that failed and were restarted."),
    ("backend_failures_total", "", "Requests to the backend that failed and were repeated."),
    ("leases_lost_total", "", "Leases of this node that were lost."),
    ("nodes_lost_total", "", "Nodes that this node has declared dead."),
    ("events_missed_total", "", "Events that the fleet could not emit."),
];

/// The counters of a node.
#[derive(Debug)]
pub(crate) struct Metrics {
    counts: Mutex<BTreeMap<Counter, u64>>,
    waits: Mutex<(u64, Duration)>,
    /// The versions of CLIs that have started.
    clis: LabelValues,
}

impl Default for Metrics {
    fn default() -> Self {
        Self { counts: Mutex::default(), waits: Mutex::default(), clis: LabelValues::new(CLI_VERSIONS) }
    }
}

/// Versions of CLIs that are listed. A node has one or two of them.
const CLI_VERSIONS: usize = 8;

impl Metrics {
    fn add(&self, counter: &'static str, label: impl Into<String>, more: u64) {
        let mut counts = locked(&self.counts);
        let count = counts.entry((counter, label.into())).or_default();
        *count = count.saturating_add(more);
    }

    fn one(&self, counter: &'static str) {
        self.add(counter, "", 1);
    }

    pub(crate) fn event(&self, event: &FleetEvent) {
        match event {
            FleetEvent::Accepted { .. } => self.one("prompts_accepted_total"),
            FleetEvent::Begun { .. } => self.one("turns_begun_total"),
            FleetEvent::Ended { outcome, .. } => self.add("turns_total", *outcome, 1),
            FleetEvent::Held { .. } => self.one("turns_held_total"),
            FleetEvent::Continues { .. } => self.one("turns_continued_total"),
            FleetEvent::Activated { resumed, .. } => {
                self.add("activations_total", wake(*resumed), 1);
            }
            FleetEvent::ActivationFailed { cause, .. } => {
                let reason = cause.as_ref().map_or_else(|| "session".to_owned(), snake_case);
                self.add("activation_failures_total", reason, 1);
            }
            FleetEvent::Passivating { why, .. } => self.add("passivations_total", snake_case(why), 1),
            FleetEvent::Quarantined { kind, .. } => self.add("quarantines_total", snake_case(kind), 1),
            FleetEvent::Fenced { .. } => self.one("sessions_lost_total"),
            FleetEvent::Recovered { .. } => self.one("sessions_recovered_total"),
            FleetEvent::Asked { .. } => self.add("questions_total", "asked", 1),
            FleetEvent::Decided { .. } => self.add("questions_total", "decided", 1),
            FleetEvent::BudgetSpent { .. } => self.one("budgets_spent_total"),
            FleetEvent::ActorRestarted { .. } => self.one("actor_restarts_total"),
            FleetEvent::BackendUnavailable { .. } => self.one("backend_failures_total"),
            FleetEvent::LeaseLost { .. } => self.one("leases_lost_total"),
            FleetEvent::NodeLost { .. } => self.one("nodes_lost_total"),
            FleetEvent::TransitionsMissed { missed } => self.add("events_missed_total", "", *missed),
            _ => {}
        }
    }

    /// A session has started. Returns whether it has resumed its conversation.
    pub(crate) fn started(&self, session: Option<Snapshot>) -> bool {
        let resumed = session.as_ref().is_some_and(|session| session.resumed);
        if let Some(version) = session.and_then(|session| session.cli?.version) {
            self.cli(&version);
        }
        tracing::Span::current().record(WAKE, wake(resumed));
        resumed
    }

    /// A CLI of this version has started.
    pub(crate) fn cli(&self, version: &str) {
        self.add("cli_info", self.clis.bounded(version), 1);
    }

    pub(crate) fn refused(&self, why: &Refused) {
        self.add("prompts_refused_total", why.word(), 1);
    }

    /// A name has waited for its slot.
    pub(crate) fn waited(&self, wait: Duration) {
        let mut waits = locked(&self.waits);
        *waits = (waits.0 + 1, waits.1.saturating_add(wait));
    }

    /// The values of a counter by its label, in the order of the labels.
    pub(crate) fn values(&self, counter: &str) -> Vec<(String, u64)> {
        let counts = locked(&self.counts);
        let of_counter = counts.iter().filter(|((name, _), _)| *name == counter);
        of_counter.map(|((_, label), count)| (label.clone(), *count)).collect()
    }

    /// How often names have waited for a slot, and how long in all.
    pub(crate) fn waits(&self) -> (u64, Duration) {
        *locked(&self.waits)
    }
}

/// How a session has started, in a word.
fn wake(resumed: bool) -> &'static str {
    if resumed { "resumed" } else { "cold" }
}
