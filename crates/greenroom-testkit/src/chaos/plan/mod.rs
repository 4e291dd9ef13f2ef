//! Fault plans: the calls, prompts and faults of a run, as plain data that can be replayed.

mod mix;
mod random;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use mix::FaultMix;

/// A sequence of calls, prompts and faults, made from a seed. A seed makes the same plan on every machine.
/// [`Chaos`](crate::Chaos) plays a plan against a session.
///
/// ```
/// use greenroom_testkit::{FaultKind, FaultMix, FaultPlan, Step};
///
/// let plan = FaultMix::all().plan(7);
/// assert_eq!(plan, FaultMix::all().plan(7));
/// println!("{plan}"); // the seed, and the steps
///
/// // A plan can be stored in a file, written by hand, or made from fewer kinds of faults.
/// let text = serde_json::to_string(&plan)?;
/// assert_eq!(serde_json::from_str::<FaultPlan>(&text)?, plan);
/// let by_hand = FaultPlan::new([Step::Calls(3), Step::Fault(FaultKind::RouterPanic, 0), Step::Settle]);
/// let only_panics = FaultMix::none().weights(&[FaultKind::HandlerPanic], 1).plan(7);
/// # let _ = (by_hand, only_panics);
/// # serde_json::Result::Ok(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultPlan {
    seed: Option<u64>,
    /// The steps in order.
    pub steps: Vec<Step>,
}

/// A step of a [`FaultPlan`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Step {
    /// The application sends a prompt.
    Prompt,
    /// The CLI makes this many tool calls at once.
    Calls(u32),
    /// A fault. The number selects a detail, such as the server, the exit code or the delay.
    Fault(FaultKind, u32),
    /// Wait until every call is answered and every prompt has an outcome.
    Settle,
}

/// A kind of fault. `Display` prints its name in snake case, such as `cli_half_line`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FaultKind {
    /// A call is made whose handler panics.
    HandlerPanic,
    /// A call is made whose handler never returns. It is cancelled when the plan settles.
    HandlerHang,
    /// A call is made whose handler first waits up to two seconds.
    HandlerSlow,
    /// A call is made whose handler returns an error.
    HandlerError,
    /// The actor of a tool server panics.
    ServerPanic,
    /// The actor of a tool server is killed.
    ServerKill,
    /// The control router panics.
    RouterPanic,
    /// The callbacks' actor panics.
    CallbacksPanic,
    /// The actor that owns the CLI panics.
    PortPanic,
    /// The actor that owns the CLI is killed.
    PortKill,
    /// The CLI exits with a code.
    CliExit,
    /// The CLI is ended by a signal.
    CliSignal,
    /// The CLI closes its stdout and keeps running.
    CliCloseStdout,
    /// The CLI dies in the middle of a line.
    CliHalfLine,
    /// The CLI writes lines that are no frames.
    CliNoise,
    /// The CLI writes invalid frames: torn frames, answers to no request, unknown requests.
    CliGarbage,
    /// The CLI reuses the id of a request in flight.
    CliDuplicateId,
    /// The CLI withdraws a request.
    CliWithdraw,
    /// The CLI cancels a tool call.
    CliCancel,
}

impl FaultKind {
    /// All kinds of faults.
    pub const ALL: [FaultKind; 19] = [
        FaultKind::HandlerPanic,
        FaultKind::HandlerHang,
        FaultKind::HandlerSlow,
        FaultKind::HandlerError,
        FaultKind::ServerPanic,
        FaultKind::ServerKill,
        FaultKind::RouterPanic,
        FaultKind::CallbacksPanic,
        FaultKind::PortPanic,
        FaultKind::PortKill,
        FaultKind::CliExit,
        FaultKind::CliSignal,
        FaultKind::CliCloseStdout,
        FaultKind::CliHalfLine,
        FaultKind::CliNoise,
        FaultKind::CliGarbage,
        FaultKind::CliDuplicateId,
        FaultKind::CliWithdraw,
        FaultKind::CliCancel,
    ];
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Serde writes a unit variant as its name.
        self.serialize(f)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Prompt => f.write_str("prompt"),
            Step::Calls(1) => f.write_str("1 call"),
            Step::Calls(count) => write!(f, "{count} calls"),
            Step::Fault(kind, n) => write!(f, "fault {kind} ({n})"),
            Step::Settle => f.write_str("settle"),
        }
    }
}

impl FaultPlan {
    /// A plan written by hand.
    pub fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        Self { seed: None, steps: steps.into_iter().collect() }
    }

    /// Smaller plans, the smallest first: without one half, without one quarter, and so on to single steps, then with
    /// fewer calls. If a plan shows a bug, find a smaller plan that shows the bug, and shrink that plan further.
    pub fn shrink(&self) -> impl Iterator<Item = FaultPlan> + use<> {
        let (plan, len) = (self.clone(), self.steps.len());
        let sizes = std::iter::successors(Some(len.div_ceil(2)), |size| (*size > 1).then(|| size / 2));
        let cuts = sizes
            .filter(|size| *size > 0)
            .flat_map(move |size| (0..len).step_by(size).map(move |from| from..(from + size).min(len)));
        let (cut, fewer) = (plan.clone(), plan);
        let without = cuts.map(move |range| {
            let mut smaller = cut.clone();
            smaller.steps.drain(range);
            smaller
        });
        let fewer = (0..len).filter_map(move |at| match fewer.steps[at] {
            Step::Calls(count) if count > 1 => {
                let mut smaller = fewer.clone();
                smaller.steps[at] = Step::Calls(count / 2);
                Some(smaller)
            }
            _ => None,
        });
        without.chain(fewer)
    }

    /// Names the plan in a sentence.
    pub(super) fn name(&self) -> String {
        match self.seed {
            Some(seed) => format!("the plan of seed {seed}"),
            None => "a plan by hand".into(),
        }
    }

    /// The number of steps, in words.
    pub(super) fn size(&self) -> String {
        match self.steps.len() {
            1 => "1 step".into(),
            steps => format!("{steps} steps"),
        }
    }

    /// The plan as an expression of Rust.
    pub(super) fn code(&self) -> String {
        let step = |step: &Step| match step {
            Step::Fault(kind, n) => format!("Step::Fault(FaultKind::{kind:?}, {n})"),
            step => format!("Step::{step:?}"),
        };
        format!("FaultPlan::new([{}])", self.steps.iter().map(step).collect::<Vec<_>>().join(", "))
    }
}

impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}:", self.name(), self.size())?;
        self.steps.iter().enumerate().try_for_each(|(index, step)| write!(f, "\n{:>4}. {step}", index + 1))
    }
}
