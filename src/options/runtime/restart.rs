//! Restart limits of each part of a session.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

with_defaults! {
    /// A restart limit: the number of restarts within a period, and the wait before each restart.
    ///
    /// As in OTP: after more than `intensity` restarts within `period` there is no further restart. The wait starts at
    /// `backoff_min` and doubles with each restart within the period, up to `backoff_max`; up to half of it is random,
    /// so that many sessions do not restart at the same moment.
    /// ```
    /// use std::time::Duration;
    /// use greenroom::options::Restart;
    ///
    /// let never = Restart { intensity: 0, ..Restart::default() };
    /// let at_once = Restart { backoff_min: Duration::ZERO, backoff_max: Duration::ZERO, ..Restart::default() };
    /// # let _ = (never, at_once);
    /// ```
    pub struct Restart {
        /// The most restarts within `period`; 0 for none. Default: 5.
        pub intensity: u32 = 5,
        /// The time over which restarts are counted, in milliseconds in JSON. Default: 60 s.
        pub period: Duration = Duration::from_secs(60),
        /// The wait before the first restart, in milliseconds in JSON. Default: 0.
        pub backoff_min: Duration = Duration::ZERO,
        /// The longest wait, in milliseconds in JSON. Default: 10 s.
        pub backoff_max: Duration = Duration::from_secs(10),
    }
}

with_defaults! {
    /// The restart limits of each part of a session.
    pub struct Restarts {
        /// The CLI process. Beyond the limit the session fails. Default: 5 in 60 s, waiting 250 ms to 10 s.
        pub cli: Restart = Restart { backoff_min: Duration::from_millis(250), ..Restart::default() },
        /// Each tool server: restarts of its actor, and attempts to make its state after the factory has failed.
        /// Meanwhile calls wait for up to [`Timeouts::server_restart`](crate::options::Timeouts::server_restart).
        /// Beyond the limit the server is disabled: every new call is answered with the cause, and the session goes on
        /// unless the server is significant. Default: 5 in 60 s, waiting 250 ms to 10 s.
        pub server: Restart = Restart { backoff_min: Duration::from_millis(250), ..Restart::default() },
        /// Pause before the state of a disabled tool server is made again, and between further attempts. Calls
        /// are refused until an attempt succeeds, which
        /// [`Event::ServerRestarted`](crate::Event::ServerRestarted) reports. `None`: no further attempt. 0 is refused.
        /// Default: 60 s.
        pub server_retry: Option<Duration> = Some(Duration::from_secs(60)),
        /// The control router and the callbacks. Beyond the limit the session fails. Default: 5 in 60 s, without a
        /// wait.
        pub control: Restart = Restart::default(),
        /// Panics of handlers on one tool server. Beyond the limit new calls get a fresh state from the factory;
        /// running calls keep the state that they started with. Panics never disable a server. The two waits are not
        /// used. Default: 3 in 5 s.
        pub panics: Restart = Restart { intensity: 3, period: Duration::from_secs(5), ..Restart::default() },
    }
}

impl Restarts {
    /// Refuses a zero pause: a factory that fails at once would be called without end.
    pub(crate) fn validate(&self) -> Result<()> {
        if self.server_retry == Some(Duration::ZERO) {
            let error = Error::invalid_option("option `restarts.server_retry` is 0");
            return Err(
                error.with_help("leave it out for 60 s, or give `None` (`null`) for no further attempt")
            );
        }
        Ok(())
    }
}
