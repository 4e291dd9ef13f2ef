//! All time limits of the library.

use std::time::Duration;

use serde::{Deserialize, Serialize};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

with_defaults! {
    /// All time limits of a session. Only a session store has more, in
    /// [`StoreOptions`](crate::options::StoreOptions); a tool and a hook may have one of their own.
    ///
    /// Set the fields that you want to change and take the rest from [`Timeouts::default`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use greenroom::options::Timeouts;
    ///
    /// let timeouts = Timeouts { tool: Some(Duration::from_secs(30)), ..Timeouts::default() };
    /// // The longest that `Session::stop` can take.
    /// assert_eq!(timeouts.shutdown_bound(), Duration::from_secs(28));
    /// ```
    ///
    /// In JSON each limit is a number of milliseconds, and `null` means "no limit" where that is possible. A limit of
    /// more than ten years counts as ten years.
    ///
    /// # Timeouts by subject
    #[doc = include_str!("timeouts.md")]
    pub struct Timeouts {
        /// From the start of the CLI to its answer to `initialize`. A CLI that has to be restarted because it does not
        /// support the way in which servers or settings were sent gets this time twice. Default: 60 s.
        pub start: Duration = secs(60),
        /// For each request to the CLI. Beyond it, the request is withdrawn and fails. Default: 60 s.
        pub control_request: Duration = secs(60),
        /// As `control_request`, for a request that waits for the API: `get_context_usage` in full. Default: 180 s.
        pub long_request: Duration = secs(180),
        /// For a tool call, from its arrival; a limit of the tool itself takes precedence. Beyond it, the call is
        /// answered with an error and its handler is cancelled. Default: none.
        pub tool: Option<Duration> = None,
        /// For a hook handler. Beyond it, the hook counts as failed. Default: 600 s, the CLI's own limit (measured with
        /// CLI 2.1.330). At most a day, also with `None`.
        pub hook: Option<Duration> = Some(secs(600)),
        /// For a permission, elicitation or dialog handler. Beyond it, a permission is denied, and an elicitation or
        /// dialog is cancelled. Default: none, because a person may have to decide.
        pub permission: Option<Duration> = None,
        /// For a whole turn. Beyond it, the turn is interrupted. Default: none.
        pub turn: Option<Duration> = None,
        /// Longest silence of the CLI during a turn. Beyond it, the turn is interrupted, also while a tool runs or a
        /// person decides on a permission: only messages count. Default: none.
        pub silence: Option<Duration> = None,
        /// Longest time without work: no turn, no queued prompt and no background work of the CLI
        /// ([`Session::wait_idle`](crate::Session::wait_idle)), counted from the start or the last work. Beyond it, the
        /// session stops by itself, in order, and further prompts fail with [`Stopped`](crate::ErrorKind::Stopped). A
        /// prompt is either accepted and runs, or is refused. Resume the conversation with another session. Default:
        /// none.
        pub idle: Option<Duration> = None,
        /// Time for a cancelled handler to return before its task is aborted. Default: 5 s.
        pub cancel_grace: Duration = secs(5),
        /// Longest wait of calls for a tool server that restarts or has no state yet. Beyond it, they are answered with
        /// an error. Also the limit for the server's factory. Default: 10 s.
        pub server_restart: Duration = secs(10),
        /// Longest time for which the CLI may leave our writes unread. Beyond it, the CLI counts as hung and is
        /// restarted. Default: 60 s.
        pub stdin_stall: Duration = secs(60),
        /// Time that `stop` gives the running turn to end. Default: 5 s.
        pub drain: Duration = secs(5),
        /// Time for the CLI to exit after its stdin was closed, when it writes the end of its transcript. Beyond it,
        /// the CLI gets SIGTERM. Default: 5 s.
        pub exit_after_eof: Duration = secs(5),
        /// Time for the CLI to exit after SIGTERM. Beyond it, the CLI gets SIGKILL. Default: 3 s.
        pub exit_after_term: Duration = secs(3),
        /// Time for the CLI to exit after the host has ended without stopping the session. The CLI gets SIGTERM at
        /// once; beyond this time the guardian sends SIGKILL to all that is left. In steps of 100 ms. Default: 2 s.
        pub exit_after_host: Duration = secs(2),
        /// Longest wait for the system to end a killed CLI and everything that the CLI has started, and for the search that
        /// shows that it has. Beyond it, [`Event::LeftoversRemain`](crate::Event::LeftoversRemain) tells what still runs, and
        /// [`Session::stop`](crate::Session::stop) fails unless that has ended meanwhile. Default: 4 s.
        pub reap: Duration = secs(4),
        /// Time for each part of a session to stop, besides [`cancel_grace`](Timeouts::cancel_grace) for running
        /// handlers. Beyond it, the part is killed. Default: 1 s.
        pub child_stop: Duration = secs(1),
        /// Longest time for which a one-shot [`query`](crate::query) keeps stdin open after a result while the CLI has
        /// not reported that it is idle, or may still work at some of more than 16,384 background tasks. `None`: without
        /// limit. Default: 600 s, as in the official SDKs.
        pub run_ceiling: Option<Duration> = Some(secs(600)),
    }
}

impl Timeouts {
    /// The longest that [`Session::stop`](crate::Session::stop) can take, whatever handlers and the CLI do: `drain`,
    /// `exit_after_eof`, `exit_after_term`, `reap`, `cancel_grace`, and six times `child_stop`. With the defaults: 28
    /// s.
    pub fn shutdown_bound(&self) -> Duration {
        // Tool servers and callbacks stop together; then the router, then the conversation. Parts that did not stop in
        // time are killed at the end.
        let steps = [self.exit_after_eof, self.exit_after_term, self.reap, self.cancel_grace];
        let steps = steps.into_iter().fold(self.drain, Duration::saturating_add);
        steps.saturating_add(self.child_stop.saturating_mul(6))
    }

    /// The longest that [`Session::kill`](crate::Session::kill) can take, whatever handlers, the store and the CLI do:
    /// twice `reap`, for a process that is being started and for its end, and six times `child_stop`. With the
    /// defaults: 14 s. A CLI that the system can end at once is gone within milliseconds.
    pub fn kill_bound(&self) -> Duration {
        self.reap.saturating_mul(2).saturating_add(self.child_stop.saturating_mul(6))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{FOREVER, Setting};

    #[test]
    fn limits_that_a_clock_cannot_add_are_cut() {
        let mut timeouts = Timeouts {
            start: Duration::MAX,
            drain: Duration::MAX,
            child_stop: Duration::MAX,
            tool: Some(Duration::MAX),
            ..Timeouts::default()
        };
        assert_eq!(timeouts.shutdown_bound(), Duration::MAX);
        timeouts.cut();
        assert_eq!((timeouts.start, timeouts.tool), (FOREVER, Some(FOREVER)));
        assert!(timeouts.shutdown_bound() < Duration::MAX);
    }
}
