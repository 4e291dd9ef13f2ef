//! The server's clock, as far as its answers tell.

use std::sync::{Mutex, PoisonError};

use greenroom::guardian::BootTime;

use crate::id::Timestamp;

/// The server's clock. Between two answers it goes on with the time that passes on this host, also while the host is suspended. A host whose
/// clock is set changes nothing.
#[derive(Debug, Default)]
pub(super) struct ServerClock(Mutex<Option<(Timestamp, BootTime)>>);

impl ServerClock {
    /// The moment now, earlier by the way of an answer at most. The clock of this host, until the server has answered.
    pub(super) fn now(&self) -> Timestamp {
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.map_or_else(Timestamp::now, |(moment, at)| moment.after(BootTime::now().since(at)))
    }

    /// Takes in the moment of an answer to a question that was asked at a moment.
    pub(super) fn learn(&self, told: Timestamp, asked: BootTime) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = BootTime::now();
        let (earliest, latest) = (told, told.after(now.since(asked)));
        // The clock goes on from what was known, as far as the answer allows, so it does not jump with each answer.
        let expected = known.map(|(moment, at)| moment.after(now.since(at)));
        *known = Some((expected.unwrap_or(earliest).clamp(earliest, latest), now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_follows_the_server_and_keeps_what_is_possible() {
        let clock = ServerClock::default();
        // An answer at once, and one to a question that was asked when the machine started.
        let (at_once, slow) = (BootTime::now, BootTime::default);
        clock.learn(Timestamp(1_000_000), at_once());
        let first = clock.now();
        assert!(first >= Timestamp(1_000_000), "{first:?}");
        // Possible: the answer has been on its way for a while.
        clock.learn(Timestamp(999_000), slow());
        assert!(clock.now() >= first);
        // The server's clock was set back, and forward.
        clock.learn(Timestamp(500_000), at_once());
        assert!(clock.now() < first, "{:?}", clock.now());
        clock.learn(Timestamp(2_000_000), slow());
        assert!(clock.now() >= Timestamp(2_000_000), "{:?}", clock.now());
    }
}
