//! What is counted.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of a session, since its start. They only grow.
        ///
        /// ```
        /// # fn look(snapshot: &greenroom::Snapshot) {
        /// assert_eq!(snapshot.counters.late_answers, 0);
        /// # }
        /// ```
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The same, being counted.
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
    /// Of these: answered by whoever was asked.
    answered,
    /// Of these: answered with an error because they were cancelled.
    cancelled,
    /// Of these: answered with an error by the library, for one that could not or may not answer.
    refused,
    /// Of these: withdrawn by the CLI, or of an incarnation that ended, and so never answered.
    orphaned,
    /// Answers that came after the request had been settled. They are not written.
    late_answers,
    /// Requests with an id that was in flight already. They are dropped.
    duplicate_requests,
    /// Requests that were refused because too many were in flight.
    at_capacity,
    /// Requests for a server, tool or method that is not there.
    not_found,
    /// Control requests of a subtype that is not known here.
    unknown_requests,
    /// Requests that must not be answered by a host.
    silent_requests,
    /// Answers of the CLI to nothing that was asked.
    unmatched_responses,
    /// Withdrawals and cancellations of something that is not in flight.
    unmatched_cancels,
    /// Handlers that panicked.
    panics,
    /// Calls and callbacks that outlived their limit.
    timeouts,
    /// Handlers that did not end in their grace time and were aborted.
    aborted,
    /// Lines that are no JSON objects, blank ones among them.
    noise_lines,
    /// Lines that start like a frame and are none.
    malformed_lines,
    /// Lines over the bound.
    overlong_lines,
    /// Messages of the conversation.
    messages,
    /// Messages that nobody could be given: no turn was running, or its reader was gone.
    unread_messages,
    /// Partial messages that were dropped because nobody read them, by choice.
    dropped_partials,
    /// Restarts of the CLI.
    cli_restarts,
    /// Restarts of tool servers.
    server_restarts,
    /// Restarts of the router and of the callbacks.
    control_restarts,
}

/// One counter.
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
