//! Every bound on memory and on work in flight.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Result};

with_defaults! {
    /// All bounds on the memory of a session and on its work in flight. Only a session store has more, in
    /// [`StoreOptions`](crate::options::StoreOptions).
    ///
    /// Set the fields that you want to change and take the rest from [`Limits::default`].
    ///
    /// ```
    /// use greenroom::options::Limits;
    ///
    /// // A host that refuses work early instead of queueing it.
    /// let limits = Limits { prompts_queued: 4, calls_in_flight: 100, ..Limits::default() };
    /// ```
    ///
    /// Zero is refused.
    ///
    /// # Limits by subject
    #[doc = include_str!("limits.md")]
    pub struct Limits {
        /// Longest line that is read from the CLI, in bytes. A longer line is skipped. Default: 64 MiB.
        pub line_bytes: usize = 64 << 20,
        /// Most prompts that wait for their turn, together with messages from [`Session::steer`](crate::Session::steer)
        /// whose fate is not known yet. A further prompt fails with [`AtCapacity`](crate::ErrorKind::AtCapacity).
        /// Default: 256.
        pub prompts_queued: usize = 256,
        /// Most requests of the CLI in flight at once; most of them are tool calls. Notifications to
        /// tool servers, such as cancellations, are accepted above the limit, until `calls_per_server` and 1,024 messages
        /// wait for the server. Default: 16,384.
        pub calls_in_flight: usize = 16_384,
        /// Most requests in flight for each tool server. Set it below `calls_in_flight` to keep one server from using
        /// up the capacity of all. Default: 16,384.
        pub calls_per_server: usize = 16_384,
        /// Most blocking handlers that run at once for each tool server; further calls wait. A handler that timed out
        /// occupies its thread until it returns. Default: 64.
        pub blocking_calls: usize = 64,
        /// Most unread messages of one turn, in bytes of JSON. Past it the turn ends with
        /// [`Overflow`](crate::ErrorKind::Overflow): messages that wait can still be read, the CLI goes on, and the next
        /// prompt works. A single message larger than the bound is accepted if no other waits. Default: 64 MiB.
        pub unread_bytes: usize = 64 << 20,
        /// Most messages between the reader of the pipe and the conversation, in bytes of JSON. When it is full, the
        /// reader waits for the conversation, which never waits for your code. Default: 16 MiB.
        pub message_lane_bytes: usize = 16 << 20,
        /// Most progress and log notifications of tools that wait to be written. When it is full, the tool that sends
        /// the next notification waits. Default: 1,024.
        pub notifications_queued: usize = 1024,
        /// Most lines that wait for the CLI to read its stdin. Beyond this the CLI counts as hung and is restarted.
        /// Default: 65,536.
        pub lines_queued: usize = 65_536,
        /// Most bytes that wait for the CLI to read its stdin. When it is full:
        ///
        /// - a new request of the CLI is answered with the error "at capacity", with
        ///   [`Event::OutboundFull`](crate::Event::OutboundFull);
        /// - handlers that have not started, and notifications of tools, wait;
        /// - requests of the application fail with [`AtCapacity`](crate::ErrorKind::AtCapacity), except interrupts and changes of
        ///   the MCP servers.
        ///
        /// Accepted work is never dropped: the results of running handlers, and the prompt whose turn it is, are added
        /// beyond the bound. A CLI that reads nothing is restarted after
        /// [`Timeouts::stdin_stall`](crate::options::Timeouts::stdin_stall).
        ///
        /// Prompts that wait for their turn have a bound of the same size of their own, in bytes of JSON. A further
        /// prompt fails with `AtCapacity`, unless no other prompt waits. Default: 64 MiB.
        pub outbound_bytes: usize = 64 << 20,
        /// Most supervision events that are kept for each subscriber; at most 1,048,576. Default: 1,024.
        pub events_kept: usize = 1024,
        /// Most messages that are kept for each subscriber of [`Session::messages`](crate::Session::messages); at most
        /// 1,048,576. Default: 1,024.
        pub messages_kept: usize = 1024,
        /// Most bytes of the events, and as many of the messages, that are kept for slow subscribers: each event with its
        /// texts, each message with its JSON, once for all subscribers. Past the bound the oldest are dropped, and
        /// subscribers that have not received them are told how many they missed. A single message that is larger is kept
        /// alone. Default: 16 MiB.
        pub kept_bytes: usize = 16 << 20,
        /// Size of the end of the CLI's stderr that is kept for errors, in bytes. Default: 16 KiB.
        pub stderr_tail_bytes: usize = 16 << 10,
        /// Longest stderr line that is kept whole, in bytes; the rest of a longer line is dropped. Default: 8 KiB.
        pub stderr_line_bytes: usize = 8 << 10,
    }
}

impl Limits {
    /// Most entries that are kept for a slow subscriber.
    pub(crate) const MOST_KEPT: usize = 1 << 20;

    pub(crate) fn validate(&self) -> Result<()> {
        // A small message takes more memory than the bytes of its JSON, so a huge value would let a stalled subscriber hold
        // much more than `kept_bytes`.
        for (name, value) in [("events_kept", self.events_kept), ("messages_kept", self.messages_kept)] {
            if value > Self::MOST_KEPT {
                let text = format!("option `limits.{name}` is {value}");
                let help = format!("give it at most {}", Self::MOST_KEPT);
                return Err(Error::invalid_option(text).with_help(help));
            }
        }
        let Ok(Value::Object(all)) = serde_json::to_value(self) else { return Ok(()) };
        match all.iter().find(|(_, value)| **value == 0) {
            Some((name, _)) => Err(Error::invalid_option(format!("option `limits.{name}` is 0"))
                .with_help("give it at least 1, or leave it out for the default")),
            None => Ok(()),
        }
    }
}
