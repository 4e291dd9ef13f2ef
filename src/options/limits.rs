//! Every bound on memory and on work in flight.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Every bound that a session applies. There is no other; what happens when one is reached stands beside it.
///
/// ```
/// use greenroom::Limits;
///
/// let limits = Limits { prompts_queued: 4, ..Limits::default() };
/// assert_eq!(limits.calls_in_flight, Limits::default().calls_in_flight);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The longest line read from the CLI, in bytes. A longer one is skipped up to its end, with an event.
    /// Default: 64 MiB.
    pub line_bytes: usize,
    /// Prompts that wait for their turn. One more is refused with
    /// [`AtCapacity`](crate::ErrorKind::AtCapacity). Default: 256.
    pub prompts_queued: usize,
    /// Requests of the CLI in flight at once, tool calls for the most part. One more is answered with an error
    /// that says "at capacity", with an event; withdrawals, cancellations and answers always come through. Nor are more
    /// control frames than this read ahead of being looked at. Default: 16,384.
    pub calls_in_flight: usize,
    /// The same for each tool server: one more is answered with an error that names the server. Lower it so that one
    /// server cannot use up what all share. Default: 16,384.
    pub calls_per_server: usize,
    /// Requests of one tool server to the CLI that wait for an answer
    /// ([`ToolContext::request`](crate::ToolContext::request)). One more is refused. Default: 256.
    pub mcp_requests_per_server: usize,
    /// Resources of one tool server that the CLI has subscribed to. One more is refused. Default: 1,024.
    pub subscriptions_per_server: usize,
    /// Handlers on the blocking lane at once, for each tool server; further ones wait. A handler that was
    /// abandoned there holds its place until it returns. Default: 64.
    pub blocking_calls: usize,
    /// Messages of one turn that the application has not read and that wait in memory, in bytes of JSON. Further ones
    /// go to a temporary file; without one (`spilled_bytes` is 0), the turn ends with
    /// [`Overflow`](crate::ErrorKind::Overflow). Default: 16 MiB.
    pub unread_bytes: usize,
    /// Messages of one turn on their way from memory to that file, in bytes of JSON, besides `unread_bytes`. Few, unless
    /// the disk is slow: nobody waits for it. Past it the turn ends with [`Overflow`](crate::ErrorKind::Overflow); a
    /// larger message goes alone. Default: 64 MiB.
    pub spilling_bytes: usize,
    /// Messages of one turn that wait in that file, which has no name and is closed with the turn, in bytes of the file
    /// (16 more than its JSON for each message). What was read makes room. Past it, and when the file cannot be written,
    /// the turn ends with [`Overflow`](crate::ErrorKind::Overflow): what waits can still be read, the CLI goes on, and so
    /// does the next prompt. 0 for no file. Default: 1 GiB.
    pub spilled_bytes: u64,
    /// Messages between the reader of the pipe and the conversation, in bytes of JSON. Past it the reader waits
    /// for the conversation, which never waits for anyone. Default: 16 MiB.
    pub message_lane_bytes: usize,
    /// Progress and log notifications of tools that wait to be written, in number. Past it the tool that sends
    /// the next one waits. Default: 1,024.
    pub notifications_queued: usize,
    /// Lines that wait for the CLI to read its stdin, in number. Past it the CLI is given up, as one that asks but does
    /// not listen. Default: 65,536.
    pub lines_queued: usize,
    /// Supervision events kept for a subscriber that is slow, in number. Past it the subscriber is told how many
    /// it missed. At most 1,048,576. Default: 1,024.
    pub events_kept: usize,
    /// Messages kept for a slow subscriber of [`Session::messages`](crate::Session::messages), in number. Past
    /// it the subscriber is told how many it missed. Default: 1,024.
    pub messages_kept: usize,
    /// How much of the CLI's stderr is kept for errors, in bytes, from the end. Default: 16 KiB.
    pub stderr_tail_bytes: usize,
    /// The longest stderr line that is kept whole, in bytes; the rest of a longer one is dropped.
    /// Default: 8 KiB.
    pub stderr_line_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            line_bytes: 64 << 20,
            prompts_queued: 256,
            calls_in_flight: 16_384,
            calls_per_server: 16_384,
            mcp_requests_per_server: 256,
            subscriptions_per_server: 1024,
            blocking_calls: 64,
            unread_bytes: 16 << 20,
            spilling_bytes: 64 << 20,
            spilled_bytes: 1 << 30,
            message_lane_bytes: 16 << 20,
            notifications_queued: 1024,
            lines_queued: 65_536,
            events_kept: 1024,
            messages_kept: 1024,
            stderr_tail_bytes: 16 << 10,
            stderr_line_bytes: 8 << 10,
        }
    }
}

impl Limits {
    /// The most that may be kept for a slow subscriber.
    pub(crate) const MOST_KEPT: usize = 1 << 20;

    pub(super) fn validate(&self) -> Result<()> {
        let all = [
            ("line_bytes", self.line_bytes),
            ("prompts_queued", self.prompts_queued),
            ("calls_in_flight", self.calls_in_flight),
            ("calls_per_server", self.calls_per_server),
            ("mcp_requests_per_server", self.mcp_requests_per_server),
            ("subscriptions_per_server", self.subscriptions_per_server),
            ("blocking_calls", self.blocking_calls),
            ("unread_bytes", self.unread_bytes),
            ("spilling_bytes", self.spilling_bytes),
            ("message_lane_bytes", self.message_lane_bytes),
            ("notifications_queued", self.notifications_queued),
            ("lines_queued", self.lines_queued),
            ("events_kept", self.events_kept),
            ("messages_kept", self.messages_kept),
            ("stderr_tail_bytes", self.stderr_tail_bytes),
            ("stderr_line_bytes", self.stderr_line_bytes),
        ];
        // In number, not in bytes: a subscriber that stands still must not hold up to whatever was written here.
        for (name, value) in [("events_kept", self.events_kept), ("messages_kept", self.messages_kept)] {
            if value > Self::MOST_KEPT {
                let text = format!("option `limits.{name}` is {value}; the most is {}", Self::MOST_KEPT);
                return Err(Error::invalid_option(text));
            }
        }
        match all.iter().find(|(_, value)| *value == 0) {
            Some((name, _)) => {
                Err(Error::invalid_option(format!("option `limits.{name}` must be at least 1")))
            }
            None => Ok(()),
        }
    }
}
