//! Admission: which name may have a slot (a live CLI) and which may run a turn, fairly between tenants.
//!
//! Two tenants with 1,000 prompts each and three slots: both get turns in alternation, and a third tenant that comes now has its
//! first turn after at most one more of each. The machine is pure: it has no actor and no clock. Its owner tells it what has
//! happened, then takes orders from [`Admission::next`] until there is none, and calls it again at [`Admission::wake_at`].
//!
//! # One name
//!
//! ```text
//!  unknown ─ask─► asking ─next in order─► promised ─Activate─► starting ─started─► running
//!     ▲            │  ▲                      │                    │                 ▲   │
//!     ├─withdraw───┘  │                      │                    │ only warmed     │   │ turn_ended
//!     ├─withdraw──────┼──────────────────────┘                    ▼                 │   │
//!     │               │                                         idle ──ask, Turn────┘   │
//!     │               │ asks by then                            │  ▲                    │
//!     │               │                                         │  └────────────────────┘
//!     └──────────── freed ◄──────────────── leaving ◄───────────┘ Passivate, or `leaving`
//!                     ▲
//!                     └─── starting, running or idle: the activation has failed, the session has crashed
//! ```
//!
//! - *Promised*: the name has been chosen for a slot, and its tenant has paid for it. The slot is free or being freed, so each
//!   eviction has one request for which it was needed.
//! - *Idle* and asking: the name is between two turns. It goes on at once if it is the next in order; else a request before its own
//!   may take its slot. It then leaves and keeps its place in the queue.
//! - A name that asks while it *runs* queues when its turn has ended, at the place of its next prompt.
//! - A slot is free after `freed` only, from whatever state.
//!
//! # The order
//!
//! Within a tenant: first come, first served, by the order in which the prompts were accepted, so a restart of the service keeps
//! the order. Between tenants: fair queueing by weight with a turn as the unit of cost. This is
//! deficit round robin with the quantum of a tenant spread over the round: in deficit round robin itself, a tenant of weight 10 has
//! ten turns in a row, and a prompt of another tenant waits for all ten. Here a tenant that begins to ask waits for at most
//! one grant of each other tenant, whatever the weights. A tenant that asks nothing saves nothing.
//!
//! A request to warm queues like one for a turn and costs the same: the slot is what is scarce, and a tenant that warms its
//! names shall not get more slots than one that prompts them. If the name asks for a turn while it is being started, this
//! turn has been paid for.
//!
//! A request is passed over while nothing can be done for it: its tenant is at its cap with no slot to take from itself, as
//! many sessions as allowed are being started, or every holder runs, is busy or was idle for too short a time.
//!
//! # Who is evicted
//!
//! If the next request needs a slot and none is free or on its way: the holder that has been idle for longest and for at least
//! `idle_before_eviction`; else, of the holders between two turns, the one whose next turn is the last in order. A tenant at its own
//! cap evicts only its own. Holders that are busy (background work, an open question) stay.
//!
//! Each call costs O(log n) in the names that ask. `next` also looks at the promised names, at most `activations_at_once`.

mod grant;
mod seat;
mod tenants;
#[cfg(test)]
mod tests;
mod types;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::time::Instant;

use crate::Name;
use seat::{Seat, Slot};
use tenants::{Ring, Tenant};
pub(crate) use types::{Bounds, Counts, Order, Share, Tally, Want};

/// The state of the machine. It knows the names that hold or ask, and their tenants.
#[derive(Debug)]
pub(crate) struct Admission {
    bounds: Bounds,
    shares: HashMap<String, Share>,
    default: Share,
    seats: HashMap<Arc<Name>, Seat>,
    tenants: HashMap<Arc<str>, Tenant>,
    ring: Ring,
    tally: Tally,
    /// Names that were chosen for a slot, in their order.
    promised: BTreeMap<u64, Arc<Name>>,
    /// Holders that want nothing and are not busy: first those that were idle for too short a time when `next` looked last.
    resting: BTreeMap<(Instant, u64), Arc<Name>>,
    rested: BTreeMap<(Instant, u64), Arc<Name>>,
    /// The last number given to a place, a promise or a stamp.
    numbers: u64,
    /// The latest prompt that a name has asked for.
    last_order: u64,
    draining: bool,
}

impl Admission {
    /// A machine without holders. A tenant that `shares` does not name has the share `default`.
    pub(crate) fn new(bounds: Bounds, shares: HashMap<String, Share>, default: Share) -> Self {
        let bounds = Bounds {
            live: bounds.live.max(1),
            activations_at_once: bounds.activations_at_once.max(1),
            ..bounds
        };
        Self {
            bounds,
            shares,
            default,
            seats: HashMap::new(),
            tenants: HashMap::new(),
            ring: Ring::default(),
            tally: Tally::default(),
            promised: BTreeMap::new(),
            resting: BTreeMap::new(),
            rested: BTreeMap::new(),
            numbers: 0,
            last_order: 0,
            draining: false,
        }
    }

    /// The name asks. `order`: the place of its prompt in the order in which all prompts were accepted; `None` for a request without
    /// a prompt, which comes after all prompts that names have asked for by then.
    ///
    /// Asking again changes nothing until the request is granted, but a turn replaces a request to warm, and another prompt moves
    /// the name to the place of that prompt. A holder may ask for its next turn; a request to warm makes an idle holder count as
    /// used now. The tenant of a name that holds or asks already stays as it is.
    pub(crate) fn ask(&mut self, name: &Name, tenant: &str, want: Want, order: Option<u64>, now: Instant) {
        self.know(name, tenant);
        let order = order.unwrap_or(self.last_order);
        self.last_order = self.last_order.max(order);
        self.change(name, |seat| match (seat.slot, want) {
            (Slot::Starting { .. }, Want::Turn) => seat.slot = Slot::Starting { turn: true },
            (Slot::Idle { .. }, Want::Warm) if seat.want.is_none() => seat.slot = Slot::Idle { since: now },
            (Slot::Starting { .. } | Slot::Running | Slot::Idle { .. }, Want::Warm) => {}
            (_, Want::Turn) => {
                let waited = seat.want == Some(Want::Warm);
                seat.order = if waited { order.min(seat.order) } else { order };
                seat.want = Some(Want::Turn);
            }
            (_, Want::Warm) if seat.want.is_none() => (seat.want, seat.order) = (Some(Want::Warm), order),
            (_, Want::Warm) => {}
        });
    }

    /// The name wants nothing any more: its prompts have expired. A slot that it holds stays. A name that is being started
    /// is idle when it has `started`.
    pub(crate) fn withdraw(&mut self, name: &Name) {
        self.change(name, |seat| {
            seat.want = None;
            match seat.slot {
                Slot::Promised(_) => seat.slot = Slot::Nothing,
                Slot::Starting { .. } => seat.slot = Slot::Starting { turn: false },
                _ => {}
            }
        });
    }

    /// The activation of the name is up: it runs its turn, or is idle if it asks for none.
    pub(crate) fn started(&mut self, name: &Name, now: Instant) {
        self.change(name, |seat| match seat.slot {
            Slot::Starting { turn: true } => seat.slot = Slot::Running,
            Slot::Starting { turn: false } => seat.slot = Slot::Idle { since: now },
            _ => {}
        });
    }

    /// The turn of the name has ended, or could not begin. The name is idle.
    pub(crate) fn turn_ended(&mut self, name: &Name, now: Instant) {
        self.change(name, |seat| {
            if seat.slot == Slot::Running {
                seat.slot = Slot::Idle { since: now };
            }
        });
    }

    /// Background work or a question keeps an idle holder from being evicted, until it is said to be over. The holder counts as
    /// idle from then on.
    pub(crate) fn busy(&mut self, name: &Name, busy: bool, now: Instant) {
        self.change(name, |seat| {
            if let (Slot::Idle { .. }, true, false) = (seat.slot, seat.busy, busy) {
                seat.slot = Slot::Idle { since: now };
            }
            seat.busy = busy && !matches!(seat.slot, Slot::Nothing | Slot::Promised(_));
        });
    }

    /// The owner ends the session of a holder by itself: it was idle for long, or was asked to. The holder gets no further turn on this
    /// slot, and the slot is free after `freed`.
    pub(crate) fn leaving(&mut self, name: &Name) {
        self.change(name, |seat| {
            if !matches!(seat.slot, Slot::Nothing | Slot::Promised(_)) {
                seat.slot = Slot::Leaving;
            }
        });
    }

    /// The process group of the name is gone: its slot is free. Also after a failed activation, whose request is spent: ask again
    /// to try again. A name that has asked since is activated again in its order.
    pub(crate) fn freed(&mut self, name: &Name) {
        self.change(name, |seat| {
            if !matches!(seat.slot, Slot::Nothing | Slot::Promised(_)) {
                (seat.slot, seat.busy) = (Slot::Nothing, false);
            }
        });
    }

    /// After a restart of the owner: the name holds a slot, and is being started or runs a turn. Holders may then exceed the
    /// bounds; nothing is granted that needs a slot until they do not.
    pub(crate) fn holds(&mut self, name: &Name, tenant: &str, starting: bool) {
        // A promise counts on a slot that this holder may have.
        let promised: Vec<_> = self.promised.values().cloned().collect();
        for other in promised {
            self.change(&other, |seat| seat.slot = Slot::Nothing);
        }
        self.know(name, tenant);
        self.change(name, |seat| {
            seat.slot = if starting { Slot::Starting { turn: true } } else { Slot::Running };
            seat.want = seat.want.filter(|want| *want == Want::Turn);
        });
    }

    /// No further orders: what asks, asks on in vain.
    pub(crate) fn set_draining(&mut self) {
        self.draining = true;
    }

    /// How many names hold, and ask, on the node and of each tenant. Costs O(tenants).
    pub(crate) fn counts(&self) -> Counts {
        let Tally { live, starting, running, idle, leaving, asking } = self.tally;
        let tenants = self.tenants.iter().map(|(id, tenant)| (id.to_string(), tenant.tally)).collect();
        Counts { live, starting, running, idle, leaving, asking, tenants }
    }

    /// Makes a seat for a name that is not known, and a tenant for it.
    fn know(&mut self, name: &Name, tenant: &str) {
        if self.seats.contains_key(name) {
            return;
        }
        let id = match self.tenants.get_key_value(tenant) {
            Some((id, _)) => Arc::clone(id),
            None => {
                let id: Arc<str> = tenant.into();
                let share = self.shares.get(tenant).unwrap_or(&self.default);
                self.tenants.insert(Arc::clone(&id), Tenant::new(share));
                id
            }
        };
        if let Some(tenant) = self.tenants.get_mut(&id) {
            tenant.names += 1;
        }
        self.seats.insert(Arc::new(name.clone()), Seat::new(id));
    }

    /// Changes a name, and enters it and its tenant in the lists in which they belong then. A name that is not known stays
    /// unknown.
    fn change(&mut self, name: &Name, change: impl FnOnce(&mut Seat)) {
        let Some((name, mut seat)) = self.seats.remove_entry(name) else { return };
        let id = Arc::clone(&seat.tenant);
        // A seat keeps its tenant.
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        let queued = tenant.queued();
        tenant.remove(&seat);
        self.tally.remove(seat.tally());
        if let Some(since) = seat.rests_since() {
            self.resting.remove(&since);
            self.rested.remove(&since);
        }
        if let Slot::Promised(order) = seat.slot {
            self.promised.remove(&order);
        }

        change(&mut seat);
        self.numbers += 1;
        seat.stamp = self.numbers;
        match seat.slot {
            Slot::Promised(_) => {}
            _ if seat.queues() => {
                let (_, number) = seat.place.unwrap_or((0, self.numbers));
                seat.place = Some((seat.order, number));
            }
            _ => seat.place = None,
        }

        tenant.enter(&name, &seat);
        self.tally.add(seat.tally());
        if let Some(since) = seat.rests_since() {
            self.resting.insert(since, Arc::clone(&name));
        }
        if let Slot::Promised(order) = seat.slot {
            self.promised.insert(order, Arc::clone(&name));
        }
        if seat.is_gone() {
            tenant.names -= 1;
        } else {
            self.seats.insert(name, seat);
        }
        self.ring.file(&id, tenant, queued);
        if tenant.names == 0 {
            self.tenants.remove(&id);
        }
    }
}
