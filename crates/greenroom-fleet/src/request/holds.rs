//! Requests about credentials that the API rejects for now.

use std::time::Duration;

use super::Finish;
use crate::id::Timestamp;
use crate::record::{Cause, Credential};

/// The end of a turn that the API has rejected.
#[derive(Clone, Debug, PartialEq)]
pub struct Reject {
    /// The end of the turn. Its outcome counts unless the prompt waits again.
    pub finish: Finish,
    /// The credential.
    pub credential: Credential,
    /// The cause.
    pub cause: Cause,
    /// The error.
    pub why: String,
    /// The moment at which the limit is reset, as the API told it.
    pub resets_at: Option<Timestamp>,
    /// The pause before the next try, if the API told no moment, or one that has passed.
    pub pause: Pause,
    /// Nothing has run in the turn: its prompt waits again, as if it had not begun.
    pub again: bool,
}

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
