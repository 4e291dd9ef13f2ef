//! What came of a plan.

use std::fmt;

use crate::report::{Counters, Outcome};
use crate::testkit::invariants::{Counts, Report};
use crate::testkit::plan::FaultPlan;
use crate::testkit::transcript::Transcript;

/// What came of a [`FaultPlan`].
///
/// ```
/// fn look(run: &greenroom::testkit::Run) {
///     println!("{run}");
///     assert!(run.is_fine());
///     println!("{} calls, {} panics", run.calls, run.counters.panics);
/// }
/// # let _ = look;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Run {
    /// What was played.
    pub plan: FaultPlan,
    /// What failed, in words, besides the violations in the report. Empty when nothing did.
    pub problems: Vec<String>,
    /// What came of checking the transcript.
    pub report: Report,
    /// What went over the wire; empty [when it was not kept](super::Chaos::without_transcript).
    pub transcript: Transcript,
    /// Tool calls that were made.
    pub calls: u64,
    /// Prompts that ended, each with one outcome.
    pub prompts: u64,
    /// How each prompt ended; empty when no transcript was kept.
    pub outcomes: Vec<Outcome>,
    /// What the session counted.
    pub counters: Counters,
}

/// How far a plan has been played, at a moment at which everything is answered.
///
/// ```
/// fn print(progress: &greenroom::testkit::Progress) {
///     println!("{} calls so far", progress.calls);
/// }
/// # let _ = print;
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// The step that settled, counted from 0.
    pub step: usize,
    /// Tool calls so far.
    pub calls: u64,
    /// What was counted on the wire so far.
    pub counts: Counts,
}

impl Run {
    /// Whether every promise was kept.
    pub fn is_fine(&self) -> bool {
        self.problems.is_empty() && self.report.is_fine()
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.plan)?;
        writeln!(f, "{} calls, {} prompts with an outcome", self.calls, self.prompts)?;
        write!(f, "{}", self.report)?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n- {problem}"))
    }
}
