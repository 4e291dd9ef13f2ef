//! Counters of a session.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters since the start of the session. They only grow.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The live counters behind [`Counters`].
        #[derive(Debug, Default)]
        pub(crate) struct Counting {
            $(pub(crate) $name: Count,)*
        }

        impl Counting {
            pub(crate) fn read(&self) -> Counters {
                Counters { $($name: self.$name.get(),)* }
            }
        }
    };
}

counters! {
    /// Control requests of the CLI that were accepted.
    requests,
    /// Accepted requests that their handler answered.
    answered,
    /// Accepted requests that the session answered because they were cancelled or took too long.
    cancelled,
    /// Accepted requests that the session answered with an error because no handler could or may answer.
    refused,
    /// Accepted requests that got no answer: withdrawn by the CLI, or their incarnation ended.
    orphaned,
    /// Answers to requests that had already ended. They are not written.
    late_answers,
    /// Requests with an id that was already in flight. They are dropped.
    duplicate_requests,
    /// Requests that were refused because too many were in flight.
    at_capacity,
    /// Requests for an unknown server, tool or method.
    not_found,
    /// Control requests of an unknown subtype.
    unknown_requests,
    /// Requests that a host must not answer.
    silent_requests,
    /// Answers of the CLI without a matching request.
    unmatched_responses,
    /// Withdrawals and cancellations of requests that are not in flight.
    unmatched_cancels,
    /// Handlers that panicked.
    panics,
    /// Calls and callbacks that exceeded their limit.
    timeouts,
    /// Handlers that were aborted after their grace time.
    aborted,
    /// Lines that are no JSON objects, including blank lines.
    noise_lines,
    /// Lines that start like a frame but cannot be parsed.
    malformed_lines,
    /// Lines over the length limit.
    overlong_lines,
    /// Messages of the conversation.
    messages,
    /// Messages without a receiver: no turn was running, or its `Turn` was dropped.
    unread_messages,
    /// Partial messages that were dropped because nobody read them, as the options allow.
    dropped_partials,
    /// Restarts of the CLI.
    cli_restarts,
    /// Restarts of tool servers.
    server_restarts,
    /// Restarts of the router and of the callbacks.
    control_restarts,
}

/// A counter.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn one(&self) {
        self.add(1);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
