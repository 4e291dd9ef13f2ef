//! The weights from which plans are made.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::random::Random;
use super::{FaultKind, FaultPlan, Step};

/// Weights of the steps of a [`FaultPlan`]; only their proportions count.
///
/// ```
/// use greenroom_testkit::{FaultKind, FaultMix, Step};
///
/// // All faults except deaths of the CLI; panics of handlers more often than any other.
/// let deaths = [FaultKind::CliExit, FaultKind::CliSignal, FaultKind::CliCloseStdout, FaultKind::CliHalfLine];
/// let mut mix = FaultMix::all().weights(&deaths, 0).weights(&[FaultKind::HandlerPanic], 20);
/// mix.steps = 200;
/// let plan = mix.plan(42);
/// assert_eq!(plan.steps.len(), 200);
/// assert!(!plan.steps.iter().any(|step| matches!(step, Step::Fault(FaultKind::CliExit, _))));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultMix {
    /// Weights of faults; a fault without a weight never happens.
    pub faults: BTreeMap<FaultKind, u32>,
    /// Weight of calls. Default: 12.
    pub calls: u32,
    /// The most calls at once. Default: 8.
    pub calls_at_once: u32,
    /// Weight of prompts. Default: 3.
    pub prompts: u32,
    /// Weight of waits until all requests are answered. Default: 3.
    pub settles: u32,
    /// Number of steps. Default: 60.
    pub steps: usize,
}

const HANDLERS: [FaultKind; 4] =
    [FaultKind::HandlerPanic, FaultKind::HandlerHang, FaultKind::HandlerSlow, FaultKind::HandlerError];

impl FaultMix {
    /// Calls and prompts without faults. 60 steps, up to 8 calls at once.
    pub fn none() -> Self {
        Self { faults: BTreeMap::new(), calls: 12, calls_at_once: 8, prompts: 3, settles: 3, steps: 60 }
    }

    /// All faults: about half of the steps are faults, most of them in handlers.
    pub fn all() -> Self {
        Self::none().weights(&FaultKind::ALL, 1).weights(&HANDLERS, 2)
    }

    /// Sets the weight of each of these faults; 0 for never.
    #[must_use]
    pub fn weights(mut self, kinds: &[FaultKind], weight: u32) -> Self {
        self.faults.extend(kinds.iter().map(|kind| (*kind, weight)));
        self
    }

    /// Makes the plan of a seed.
    pub fn plan(&self, seed: u64) -> FaultPlan {
        let mut random = Random::new(seed);
        let steps = (0..self.steps).map(|_| self.step(&mut random)).collect();
        FaultPlan { seed: Some(seed), steps }
    }

    fn step(&self, random: &mut Random) -> Step {
        let faults: u32 = self.faults.values().sum();
        let mut at = random.below(self.calls + self.prompts + self.settles + faults);
        let n = random.below(1 << 16);
        if at < self.calls {
            return Step::Calls(1 + n % self.calls_at_once.max(1));
        }
        at -= self.calls;
        if at < self.prompts {
            return Step::Prompt;
        }
        at -= self.prompts;
        for (kind, weight) in &self.faults {
            if at < *weight {
                return Step::Fault(*kind, n);
            }
            at -= weight;
        }
        Step::Settle
    }
}
