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
/// let mix = FaultMix::all()
///     .weights(&[FaultKind::CliExit, FaultKind::CliSignal, FaultKind::CliCloseStdout, FaultKind::CliHalfLine], 0)
///     .weight(FaultKind::HandlerPanic, 20)
///     .steps(200);
/// let plan = mix.plan(42);
/// assert_eq!(plan.steps().len(), 200);
/// assert!(!plan.steps().iter().any(|step| matches!(step, Step::Fault(FaultKind::CliExit, _))));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultMix {
    faults: BTreeMap<FaultKind, u32>,
    calls: u32,
    calls_at_once: u32,
    prompts: u32,
    settles: u32,
    steps: usize,
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

    /// Sets the weight of a fault; 0 for never.
    #[must_use]
    pub fn weight(mut self, kind: FaultKind, weight: u32) -> Self {
        self.faults.insert(kind, weight);
        self
    }

    /// Sets the weight of each of these faults.
    #[must_use]
    pub fn weights(self, kinds: &[FaultKind], weight: u32) -> Self {
        kinds.iter().fold(self, |mix, kind| mix.weight(*kind, weight))
    }

    /// Sets the weight of calls, and the most calls at once. Default: 12, up to 8 at once.
    #[must_use]
    pub fn calls(mut self, weight: u32, at_once: u32) -> Self {
        self.calls = weight;
        self.calls_at_once = at_once.max(1);
        self
    }

    /// Sets the weight of prompts. Default: 3.
    #[must_use]
    pub fn prompts(mut self, weight: u32) -> Self {
        self.prompts = weight;
        self
    }

    /// Sets the weight of waits until all requests are answered. Default: 3.
    #[must_use]
    pub fn settles(mut self, weight: u32) -> Self {
        self.settles = weight;
        self
    }

    /// Sets the number of steps. Default: 60.
    #[must_use]
    pub fn steps(mut self, steps: usize) -> Self {
        self.steps = steps;
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
            return Step::Calls(1 + n % self.calls_at_once);
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
