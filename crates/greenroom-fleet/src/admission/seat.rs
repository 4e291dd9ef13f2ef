//! One name: the slot that it holds, and what it asks for.

use std::sync::Arc;
use tokio::time::Instant;

use super::types::{Tally, Want};

/// Where a name is with its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// It holds none.
    Nothing,
    /// It has been chosen for a slot that is free or on its way, and its tenant has paid. The number is its place among those.
    Promised(u64),
    /// Its session is being started; `turn` if a turn is granted with the slot.
    Starting {
        turn: bool,
    },
    Running,
    Idle {
        since: Instant,
    },
    Leaving,
}

/// A place among the names of a tenant: the order of the prompt, then first come first served.
pub(super) type Rank = (u64, u64);

#[derive(Debug)]
pub(super) struct Seat {
    pub(super) tenant: Arc<str>,
    pub(super) slot: Slot,
    pub(super) want: Option<Want>,
    /// The place of its prompt in the order in which all prompts were accepted.
    pub(super) order: u64,
    /// Its place among the names of its tenant that ask. Kept while it leaves.
    pub(super) place: Option<Rank>,
    /// Background work or a question: it may have another turn, but its slot is not taken from it.
    pub(super) busy: bool,
    /// Tells holders apart that are idle since the same moment.
    pub(super) stamp: u64,
}

impl Seat {
    pub(super) fn new(tenant: Arc<str>) -> Self {
        Self { tenant, slot: Slot::Nothing, want: None, order: 0, place: None, busy: false, stamp: 0 }
    }

    /// It stands in the queue of its tenant. While it starts or runs, its next turn does not queue yet.
    pub(super) fn queues(&self) -> bool {
        self.want.is_some() && matches!(self.slot, Slot::Nothing | Slot::Idle { .. } | Slot::Leaving)
    }

    /// It is idle, wants nothing and may be evicted when it is old enough.
    pub(super) fn rests_since(&self) -> Option<(Instant, u64)> {
        match self.slot {
            Slot::Idle { since } if self.want.is_none() && !self.busy => Some((since, self.stamp)),
            _ => None,
        }
    }

    /// It neither holds nor asks.
    pub(super) fn is_gone(&self) -> bool {
        self.want.is_none() && self.slot == Slot::Nothing
    }

    pub(super) fn tally(&self) -> Tally {
        let mut tally = Tally { asking: usize::from(self.want.is_some()), ..Tally::default() };
        match self.slot {
            Slot::Nothing | Slot::Promised(_) => return tally,
            Slot::Starting { .. } => tally.starting = 1,
            Slot::Running => tally.running = 1,
            Slot::Idle { .. } => tally.idle = 1,
            Slot::Leaving => tally.leaving = 1,
        }
        tally.live = 1;
        tally
    }
}

impl Tally {
    pub(super) fn add(&mut self, other: Tally) {
        self.live += other.live;
        self.starting += other.starting;
        self.running += other.running;
        self.idle += other.idle;
        self.leaving += other.leaving;
        self.asking += other.asking;
    }

    pub(super) fn remove(&mut self, other: Tally) {
        self.live -= other.live;
        self.starting -= other.starting;
        self.running -= other.running;
        self.idle -= other.idle;
        self.leaving -= other.leaving;
        self.asking -= other.asking;
    }
}
