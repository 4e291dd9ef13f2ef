//! The server's clock, as far as its answers tell.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::id::Timestamp;

/// The server's clock. Between two answers it goes on with the time that passes on this host: a host whose clock is set changes nothing.
#[derive(Debug, Default)]
pub(super) struct ServerClock(Mutex<Option<(Timestamp, Instant)>>);

impl ServerClock {
    /// The moment now, earlier by the way of an answer at most. The clock of this host, until the server has answered.
    pub(super) fn now(&self) -> Timestamp {
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.map_or_else(Timestamp::now, |(moment, at)| moment.after(at.elapsed()))
    }

    /// Takes in the moment of an answer, which came this time after its request.
    pub(super) fn learn(&self, told: Timestamp, took: Duration) {
        let now = Instant::now();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (earliest, latest) = (told, told.after(took));
        // Of all moments that are possible the one that is nearest to what was known: it does not jump with each answer.
        let expected = known.map(|(moment, at)| moment.after(now.duration_since(at)));
        *known = Some((expected.unwrap_or(earliest).clamp(earliest, latest), now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_follows_the_server_and_keeps_what_is_possible() {
        let (clock, slow) = (ServerClock::default(), Duration::from_secs(5));
        clock.learn(Timestamp(1_000_000), slow);
        let first = clock.now();
        assert!((1_000_000..1_004_000).contains(&first.0), "{first:?}");
        // Possible: the answer was given five seconds ago, or now.
        clock.learn(Timestamp(998_000), slow);
        assert!(clock.now() >= first);
        // The server's clock was set back, and forward.
        clock.learn(Timestamp(500_000), slow);
        assert!((500_000..=509_000).contains(&clock.now().0), "{:?}", clock.now());
        clock.learn(Timestamp(2_000_000), slow);
        assert!((2_000_000..2_004_000).contains(&clock.now().0), "{:?}", clock.now());
    }
}
