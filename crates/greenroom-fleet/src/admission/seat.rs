//! One name: the slot that it holds, and what it asks for.

use std::sync::Arc;
use tokio::time::Instant;

use super::{AdmissionMessage, Tally, Want};
use crate::id::Tenant;

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

impl Slot {
    /// The name holds a slot.
    fn is_held(self) -> bool {
        !matches!(self, Slot::Nothing | Slot::Promised(_))
    }
}

/// A place among the names of a tenant: the order of the prompt, then first come first served.
pub(super) type Rank = (u64, u64);

#[derive(Debug)]
pub(super) struct Seat {
    pub(super) tenant: Arc<Tenant>,
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
    pub(super) fn new(tenant: Arc<Tenant>) -> Self {
        Self { tenant, slot: Slot::Nothing, want: None, order: 0, place: None, busy: false, stamp: 0 }
    }

    /// The name asks. `order`: the place of its prompt in the order of all prompts.
    pub(super) fn ask(&mut self, want: Want, order: u64, now: Instant) {
        match (self.slot, want) {
            (Slot::Starting { .. }, Want::Turn) => self.slot = Slot::Starting { turn: true },
            (Slot::Idle { .. }, Want::Warm) if self.want.is_none() => self.slot = Slot::Idle { since: now },
            (Slot::Starting { .. } | Slot::Running | Slot::Idle { .. }, Want::Warm) => {}
            (_, Want::Turn) => {
                let waited = self.want == Some(Want::Warm);
                self.order = if waited { order.min(self.order) } else { order };
                self.want = Some(Want::Turn);
            }
            (_, Want::Warm) if self.want.is_none() => (self.want, self.order) = (Some(Want::Warm), order),
            (_, Want::Warm) => {}
        }
    }

    /// Takes in a message of the name that is no request. A message that does not fit the slot changes nothing.
    pub(super) fn handle(&mut self, message: &AdmissionMessage, now: Instant) {
        let idle = Slot::Idle { since: now };
        match (message, self.slot) {
            (AdmissionMessage::Withdraw, slot) => {
                self.want = None;
                match slot {
                    Slot::Promised(_) => self.slot = Slot::Nothing,
                    Slot::Starting { .. } => self.slot = Slot::Starting { turn: false },
                    _ => {}
                }
            }
            (AdmissionMessage::Started, Slot::Starting { turn: true }) => self.slot = Slot::Running,
            (AdmissionMessage::Started, Slot::Starting { turn: false })
            | (AdmissionMessage::TurnEnded, Slot::Running) => self.slot = idle,
            (AdmissionMessage::BegunByCli, Slot::Idle { .. }) => self.slot = Slot::Running,
            (AdmissionMessage::Busy(busy), slot) => {
                if matches!(slot, Slot::Idle { .. }) && self.busy && !busy {
                    self.slot = idle;
                }
                self.busy = *busy && slot.is_held();
            }
            (AdmissionMessage::Leaving, slot) if slot.is_held() => self.slot = Slot::Leaving,
            (AdmissionMessage::AtCap, Slot::Starting { turn }) => {
                self.want = Some(if turn { Want::Turn } else { Want::Warm });
                (self.slot, self.busy) = (Slot::Nothing, false);
            }
            (AdmissionMessage::Freed, slot) if slot.is_held() => {
                (self.slot, self.busy) = (Slot::Nothing, false);
            }
            _ => {}
        }
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
}

impl Tally {
    /// Counts a name with this seat (`by` is 1), or does not count it any more (-1).
    pub(super) fn count(&mut self, seat: &Seat, by: isize) {
        let of_slot = match seat.slot {
            Slot::Nothing => None,
            Slot::Promised(_) => Some(&mut self.promised),
            Slot::Starting { .. } => Some(&mut self.starting),
            Slot::Running => Some(&mut self.running),
            Slot::Idle { .. } => Some(&mut self.idle),
            Slot::Leaving => Some(&mut self.leaving),
        };
        let of_want = seat.want.map(|_| &mut self.asking);
        for count in of_slot.into_iter().chain(of_want) {
            *count = count.saturating_add_signed(by);
        }
    }
}
