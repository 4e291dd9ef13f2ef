//! The moment at which the service is killed.

use std::time::Duration;

use tokio::time::Instant;

use crate::protocol::{Dice, Line, Reply};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Moment {
    /// While it opens the fleet, after this time.
    Opening(Duration),
    /// This long after it has opened the fleet.
    Time(Duration),
    /// As soon as it has accepted a prompt, after this time.
    Accepted(Duration),
    /// As soon as it tells an event of this kind, after this time.
    Event(&'static str, Duration),
}

/// The time for which an event is awaited.
const PATIENCE: Duration = Duration::from_secs(1);

impl Moment {
    pub(crate) fn throw(dice: &mut Dice) -> Self {
        const KINDS: [&str; 7] =
            ["activating", "activated", "begun", "ended", "passivating", "passivated", "deleted"];
        let after = Duration::from_millis(200 + dice.below(2300));
        match dice.below(10) {
            0 => Self::Opening(Duration::from_millis(dice.below(400))),
            1..4 => Self::Time(after),
            4..6 => Self::Accepted(after),
            _ => Self::Event(KINDS[dice.below(7) as usize], after),
        }
    }

    pub(crate) fn after(self) -> Duration {
        match self {
            Self::Opening(after) | Self::Time(after) | Self::Accepted(after) | Self::Event(_, after) => after,
        }
    }

    /// Whether the line is what was awaited since `armed`.
    pub(crate) fn is_met(self, armed: Instant, line: &Line) -> bool {
        let is_meant = match (self, line) {
            (Self::Accepted(_), Line::Reply { reply: Reply::Accepted { .. }, .. }) => true,
            (Self::Event(kind, _), Line::Event(found)) => kind == found,
            _ => false,
        };
        is_meant && Instant::now() >= armed
    }

    /// Whether the time is over, whatever is awaited.
    pub(crate) fn is_over(self, armed: Instant) -> bool {
        let patience = if let Self::Time(_) = self { Duration::ZERO } else { PATIENCE };
        Instant::now() >= armed + patience
    }
}
