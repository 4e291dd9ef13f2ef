//! The result of a plan.

use std::fmt;

use greenroom::Outcome;
use greenroom::report::Counters;

use crate::chaos::plan::FaultPlan;
use crate::invariants::Report;
use crate::wire::transcript::Transcript;

/// The result of playing a [`FaultPlan`]; print it with `{}`.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Run {
    /// The plan that was played.
    pub plan: FaultPlan,
    /// Failures in words, besides the violations in the report. Empty if there were none.
    pub problems: Vec<String>,
    /// The result of checking the transcript.
    pub report: Report,
    /// The lines on the wire; empty [if not kept](super::Chaos::without_transcript).
    pub transcript: Transcript,
    /// Number of tool calls.
    pub calls: u64,
    /// Number of prompts that ended with one outcome.
    pub prompts: u64,
    /// The outcomes of the prompts; empty if no transcript was kept.
    pub outcomes: Vec<Outcome>,
    /// The session's counters.
    pub counters: Counters,
}

impl Run {
    /// Whether the run kept every promise.
    pub fn is_fine(&self) -> bool {
        self.problems.is_empty() && self.report.is_fine()
    }

    /// A line for each failure; several lines if the failure has several.
    pub(super) fn failures(&self) -> String {
        let violations = self.report.violations.iter().map(ToString::to_string);
        let lines = violations.chain(self.problems.iter().cloned());
        lines.map(|failure| format!("\n- {}", failure.replace('\n', "\n  "))).collect()
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.plan)?;
        match self.is_fine() {
            true => writeln!(f, "Every promise was kept.")?,
            false => writeln!(f, "It fails:{}", self.failures())?,
        }
        writeln!(f, "{} calls, {} prompts with an outcome", self.calls, self.prompts)?;
        write!(f, "{}", self.report.counts)
    }
}
