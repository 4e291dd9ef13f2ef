//! How often each part of the tree may restart.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::timeouts::millis;

/// How often a child may restart before its supervisor gives it up, and how long it waits before each restart.
///
/// The words are OTP's: more than `intensity` restarts within `period`, and the child is given up. The wait
/// starts at `backoff_min` and doubles with each restart within the period up to `backoff_max`; up to half of it
/// is random, so that many sessions do not restart in step.
///
/// ```
/// use std::time::Duration;
/// use greenroom::Restart;
///
/// let never = Restart { intensity: 0, ..Restart::default() };
/// let at_once = Restart { backoff_min: Duration::ZERO, backoff_max: Duration::ZERO, ..Restart::default() };
/// # let _ = (never, at_once);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Restart {
    /// The most restarts within `period`. 0: never restart. Default: 5.
    pub intensity: u32,
    /// The time within which restarts are counted. Default: 60 s.
    #[serde(with = "millis")]
    pub period: Duration,
    /// The wait before the first restart. Default: 0.
    #[serde(with = "millis")]
    pub backoff_min: Duration,
    /// The longest wait. Default: 10 s.
    #[serde(with = "millis")]
    pub backoff_max: Duration,
}

impl Default for Restart {
    fn default() -> Self {
        Self {
            intensity: 5,
            period: Duration::from_secs(60),
            backoff_min: Duration::ZERO,
            backoff_max: Duration::from_secs(10),
        }
    }
}

/// The restart limits of each kind of child.
///
/// ```
/// let restarts = greenroom::Restarts::default();
/// assert_eq!(restarts.panics.intensity, 3);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Restarts {
    /// The CLI process. Past it the session fails. Default: 5 in 60 s, waiting 250 ms to 10 s.
    pub cli: Restart,
    /// Each tool server. Past it every call of that server is answered with the cause, and the session lives on
    /// unless the server is significant. Default: 5 in 60 s, without a wait.
    pub server: Restart,
    /// The control router and the callbacks. Past it the session fails. Default: 5 in 60 s, without a wait.
    pub control: Restart,
    /// Panics of handlers that a tool server puts up with before it restarts with a fresh state; the two waits
    /// are not used. Default: 3 in 5 s.
    pub panics: Restart,
}

impl Default for Restarts {
    fn default() -> Self {
        Self {
            cli: Restart { backoff_min: Duration::from_millis(250), ..Restart::default() },
            server: Restart::default(),
            control: Restart::default(),
            panics: Restart { intensity: 3, period: Duration::from_secs(5), ..Restart::default() },
        }
    }
}

impl Restarts {
    /// Cuts times that a clock could not add up.
    pub(crate) fn clamp(&mut self) {
        for limits in [&mut self.cli, &mut self.server, &mut self.control, &mut self.panics] {
            for time in [&mut limits.period, &mut limits.backoff_min, &mut limits.backoff_max] {
                *time = (*time).min(super::FOREVER);
            }
        }
    }
}
