//! Every time limit of the library.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment that far away never comes.
pub(crate) const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Every time limit that a session applies. There is no other. One of more than ten years counts as ten years.
///
/// In a config file each is a number of milliseconds, and `null` stands for "no limit" where there may be none.
///
/// ```
/// use std::time::Duration;
/// use greenroom::Timeouts;
///
/// let timeouts = Timeouts { tool: Some(Duration::from_secs(30)), ..Timeouts::default() };
/// assert!(timeouts.shutdown_bound() >= timeouts.drain);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// From starting the CLI to its answer to `initialize`. A CLI that has to be started twice, because it does not know
    /// how servers were announced to it, has this time twice. Default: 60 s.
    #[serde(with = "millis")]
    pub start: Duration,
    /// For each request to the CLI; when it passes, the request is withdrawn. Default: 60 s.
    #[serde(with = "millis")]
    pub control_request: Duration,
    /// The same for requests that wait for a tool or for the model: `mcp_call`, `side_question`,
    /// `generate_session_title`, `get_context_usage` in full. Default: 180 s, which is longer than the 30 s and 120 s
    /// that the CLI gives a server to come up and a tool to run.
    #[serde(with = "millis")]
    pub long_request: Duration,
    /// For a tool call, counted from its arrival; a tool's own limit goes before it. Default: none.
    #[serde(with = "optional_millis")]
    pub tool: Option<Duration>,
    /// For a request of a tool server to the CLI ([`ToolContext::request`](crate::ToolContext::request)); when it passes,
    /// the CLI is told that nobody waits any more. Default: 60 s, as in the MCP SDKs.
    #[serde(with = "millis")]
    pub mcp_request: Duration,
    /// For a hook handler; its request is then answered with an error. Default: 60 s, the CLI's own limit. At most a day,
    /// with `None` too.
    #[serde(with = "optional_millis")]
    pub hook: Option<Duration>,
    /// For a permission, elicitation or dialog handler; a permission is then denied, an elicitation or dialog
    /// cancelled. Default: none (a person may be thinking).
    #[serde(with = "optional_millis")]
    pub permission: Option<Duration>,
    /// For a whole turn; when it passes, the turn is interrupted. Default: none.
    #[serde(with = "optional_millis")]
    pub turn: Option<Duration>,
    /// How long the CLI may send no message during a turn; when it passes, the turn is interrupted. Only messages count:
    /// a tool that works, or a person who thinks about a permission, for longer than this is cut off too. Default: none.
    #[serde(with = "optional_millis")]
    pub silence: Option<Duration>,
    /// How long a cancelled handler may go on before its task is aborted. Default: 5 s.
    #[serde(with = "millis")]
    pub cancel_grace: Duration,
    /// How long calls wait for a tool server that is restarting, before they are answered with an error.
    /// Default: 10 s.
    #[serde(with = "millis")]
    pub server_restart: Duration,
    /// How long the CLI may leave our writes unread before it is given up. Default: 60 s.
    #[serde(with = "millis")]
    pub stdin_stall: Duration,
    /// How long `stop` lets the turn in flight go on. Default: 5 s.
    #[serde(with = "millis")]
    pub drain: Duration,
    /// How long the CLI may take to exit after its stdin was closed. It writes the end of the transcript then.
    /// Default: 5 s.
    #[serde(with = "millis")]
    pub exit_after_eof: Duration,
    /// How long the CLI may take to exit after SIGTERM. Default: 5 s.
    #[serde(with = "millis")]
    pub exit_after_term: Duration,
    /// How long the system may take to hand over a killed process. Default: 2 s.
    #[serde(with = "millis")]
    pub reap: Duration,
    /// How long a part of the tree may take to stop, on top of [`cancel_grace`](Timeouts::cancel_grace) where it
    /// runs handlers. Default: 1 s.
    #[serde(with = "millis")]
    pub child_stop: Duration,
    /// How long a one-shot [`query`](crate::query) keeps stdin open after a result while the CLI has not said
    /// that it is idle. `None`: for ever. Default: 600 s, as in the official SDKs.
    #[serde(with = "optional_millis")]
    pub run_ceiling: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        let secs = Duration::from_secs;
        Self {
            start: secs(60),
            control_request: secs(60),
            long_request: secs(180),
            tool: None,
            mcp_request: secs(60),
            hook: Some(secs(60)),
            permission: None,
            turn: None,
            silence: None,
            cancel_grace: secs(5),
            server_restart: secs(10),
            stdin_stall: secs(60),
            drain: secs(5),
            exit_after_eof: secs(5),
            exit_after_term: secs(5),
            reap: secs(2),
            child_stop: secs(1),
            run_ceiling: Some(secs(600)),
        }
    }
}

impl Timeouts {
    /// Cuts limits that a clock could not add up: ten years is for ever.
    pub(crate) fn clamp(&mut self) {
        let all = [
            &mut self.start,
            &mut self.control_request,
            &mut self.mcp_request,
            &mut self.long_request,
            &mut self.cancel_grace,
            &mut self.server_restart,
            &mut self.stdin_stall,
            &mut self.drain,
            &mut self.exit_after_eof,
            &mut self.exit_after_term,
            &mut self.reap,
            &mut self.child_stop,
        ];
        let optional = [
            &mut self.tool,
            &mut self.hook,
            &mut self.permission,
            &mut self.turn,
            &mut self.silence,
            &mut self.run_ceiling,
        ];
        for limit in all.into_iter().chain(optional.into_iter().flatten()) {
            *limit = (*limit).min(FOREVER);
        }
    }

    /// The longest that [`Session::stop`](crate::Session::stop) can take, whatever handlers and the CLI do:
    /// drain, end of input, SIGTERM, SIGKILL and reaping, then the rest of the tree. With the defaults: 28 s.
    pub fn shutdown_bound(&self) -> Duration {
        // Tool servers and callbacks stop together; then the router, then the conversation, and at the end whoever
        // did not stop in its time is killed.
        let steps = [self.exit_after_eof, self.exit_after_term, self.reap, self.cancel_grace];
        let steps = steps.into_iter().fold(self.drain, Duration::saturating_add);
        steps.saturating_add(self.child_stop.saturating_mul(6))
    }
}

/// A duration as a number of milliseconds.
pub(crate) mod millis {
    use super::{Deserialize, Duration};
    use serde::{Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(value.as_millis()).unwrap_or(u64::MAX))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

/// A duration as a number of milliseconds, or `null`.
pub(crate) mod optional_millis {
    use super::{Deserialize, Duration, Serialize};
    use serde::{Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        value: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.map(|value| u64::try_from(value.as_millis()).unwrap_or(u64::MAX)).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_are_too_long_for_a_clock_are_for_ever() {
        let mut timeouts = Timeouts {
            start: Duration::MAX,
            drain: Duration::MAX,
            child_stop: Duration::MAX,
            tool: Some(Duration::MAX),
            ..Timeouts::default()
        };
        assert_eq!(timeouts.shutdown_bound(), Duration::MAX);
        timeouts.clamp();
        assert_eq!((timeouts.start, timeouts.tool), (FOREVER, Some(FOREVER)));
        assert!(timeouts.shutdown_bound() < Duration::MAX);
    }

    #[test]
    fn a_config_file_says_milliseconds_and_null() {
        let timeouts: Timeouts =
            serde_json::from_str(r#"{"tool": 1500, "hook": null, "drain": 250}"#).unwrap();
        assert_eq!(timeouts.tool, Some(Duration::from_millis(1500)));
        assert_eq!((timeouts.hook, timeouts.drain), (None, Duration::from_millis(250)));
        let again: Timeouts = serde_json::from_str(&serde_json::to_string(&timeouts).unwrap()).unwrap();
        assert_eq!(again, timeouts);
        assert!(serde_json::from_str::<Timeouts>(r#"{"tol": 1}"#).is_err(), "a typing error is told");
    }
}
