//! Pauses before another attempt.

use std::time::Duration;

/// A pause that doubles with each try that fails.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pause {
    /// The first pause.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
    /// A factor by chance, so that not all begin again at once.
    pub factor: f64,
}

impl Pause {
    /// The pause after so many failures.
    pub(crate) fn after(&self, failures: u32) -> Duration {
        let doubled = self.first.saturating_mul(1 << failures.saturating_sub(1).min(16));
        doubled.min(self.longest).mul_f64(self.factor).max(Duration::from_millis(1))
    }
}
