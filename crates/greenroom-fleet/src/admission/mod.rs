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
//! - A slot is free after `freed` only, from whatever state, or after `at cap`, from *starting* back to *asking*.
//!
//! # A tenant at its cap
//!
//! The cap of a tenant's live sessions holds over all nodes. This machine knows the names of its node alone, so the backend decides:
//!
//! ```text
//!  open (its cap) ──AtCap: a claim is refused──► shared (the slots that it holds here) ──lift: names of it are free elsewhere──► open
//! ```
//!
//! A tenant that is *shared* gets a slot only in place of another one of its own, as at its cap. So idle sessions make room on the nodes that
//! hold them. If it holds none here, it waits, and takes no slot from others.
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
//! cap evicts only its own.
//!
//! A busy holder (background work, or an open question between two turns) keeps its slot, and has its next turns on it while earlier requests wait:
//!
//! ```text
//!  yields ──Busy(true)──► keeps its slot, over turns ──Busy(false): it was seen idle, or `limits.background` is over──► yields
//! ```
//!
//! The name's actor counts this time from the first `Busy(true)`. So endless background work keeps a slot from other requests for
//! `limits.background` and one more turn.
//!
//! Each call costs O(log n) in the names that ask. `next` also looks at the promised names, at most `activations_at_once`.

mod grant;
mod seat;
mod tenants;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::Serialize;
use tokio::time::Instant;

use crate::id::{Name, Tenant};
use crate::limits::{FleetLimits, Quotas};
use seat::{Seat, Slot};
use tenants::{Ring, TenantState};

/// A name's request, or a change of its slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AdmissionMessage {
    /// The name asks. `order`: the place of its prompt in the order in which all prompts were accepted; `None` for a request without
    /// a prompt, which comes after all prompts that names have asked for by then.
    ///
    /// Asking again changes nothing until the request is granted, but a turn replaces a request to warm, and another prompt moves
    /// the name to the place of that prompt. A holder may ask for its next turn; a request to warm makes an idle holder count as
    /// used now.
    Ask { want: Want, order: Option<u64> },
    /// The name wants nothing any more: its prompts have expired. A slot that it holds stays. A name that is being started
    /// is idle when it has `Started`.
    Withdraw,
    /// The activation of the name is up: it runs its turn, or is idle if it asks for none.
    Started,
    /// The CLI of an idle holder has begun a turn by itself: it runs, and its tenant pays for it like for any turn. A request for its next turn
    /// stands.
    BegunByCli,
    /// The turn of the name has ended, or could not begin. The name is idle.
    TurnEnded,
    /// Background work or a question keeps an idle holder from being evicted, until the name says that it is over, or that its time is up.
    /// The holder counts as idle from then on.
    Busy(bool),
    /// The name ends the session of a holder by itself: it was idle for long, or was asked to. The holder gets no further turn on this
    /// slot, and the slot is free after `Freed`.
    Leaving,
    /// The process group of the name is gone: its slot is free. Also after a failed activation, whose request is spent: ask again
    /// to try again. A name that has asked since is activated again in its order.
    Freed,
    /// The backend has refused the name an owner, because its tenant is at its cap on all nodes together. Its slot is free, and its request
    /// stands again. Until [`Admission::lift`] the tenant has no more slots here than it holds now.
    AtCap,
}

/// The wish of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// One turn, and the slot that it needs.
    Turn,
    /// A slot without a turn: the session is started ahead of its next prompt.
    Warm,
}

/// An order to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    /// The name has a slot from now on: it starts its session, then says `Started` or, if that fails, `Freed`. If the name asks for
    /// a turn by the time of `Started`, the turn is granted with the slot.
    Activate,
    /// The name may begin one turn on the slot that it holds. It says `TurnEnded` when the turn has ended, or if it could not begin.
    Turn,
    /// The name gives its slot back, because another name needs the slot: it ends its session, then says `Freed`.
    Passivate,
}

/// Names by what they do. A name that runs a turn and asks for its next one counts in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Tally {
    /// Names that were chosen for a slot, and have none yet.
    pub promised: usize,
    /// Names whose session starts.
    pub starting: usize,
    /// Names that run a turn.
    pub running: usize,
    /// Names whose session is idle.
    pub idle: usize,
    /// Names whose session ends.
    pub leaving: usize,
    /// Names that ask and have no grant yet.
    pub asking: usize,
}

impl Tally {
    /// Names that hold a slot: starting, running, idle and leaving.
    pub fn live(&self) -> usize {
        self.starting + self.running + self.idle + self.leaving
    }

    /// A slot is free now, with `cap` slots in all.
    fn has_slot(&self, cap: usize) -> bool {
        self.live() < cap
    }

    /// One more slot is free or on its way, with `cap` slots in all.
    fn has_room(&self, cap: usize) -> bool {
        self.live() + self.promised < cap.saturating_add(self.leaving)
    }
}

/// The tally of the node, and of each tenant that holds or asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub node: Tally,
    pub tenants: HashMap<Tenant, Tally>,
}

/// The state of the machine. It knows the names that hold or ask, and their tenants.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    limits: FleetLimits,
    quotas: Arc<Quotas>,
    seats: HashMap<Arc<Name>, Seat>,
    tenants: HashMap<Arc<Tenant>, TenantState>,
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
    /// A machine without holders.
    pub(crate) fn new(limits: FleetLimits, quotas: Arc<Quotas>) -> Self {
        Self { limits, quotas, ..Self::default() }
    }

    /// Takes in a message of a name. A message that does not fit the name's slot changes nothing.
    pub(crate) fn handle(&mut self, name: &Name, message: AdmissionMessage, now: Instant) {
        match message {
            AdmissionMessage::Ask { want, order } => {
                self.know(name);
                let order = order.unwrap_or(self.last_order);
                self.last_order = self.last_order.max(order);
                self.change(name, |seat| seat.ask(want, order, now));
            }
            AdmissionMessage::AtCap => {
                let is_refused =
                    self.seats.get(name).is_some_and(|seat| matches!(seat.slot, Slot::Starting { .. }));
                self.refund(name.tenant(), usize::from(is_refused));
                self.change(name, |seat| seat.handle(&message, now));
                // Nobody keeps a slot free for a name that would be refused as well.
                let of_tenant = |other: &&Arc<Name>| other.tenant() == name.tenant();
                let promised: Vec<_> = self.promised.values().filter(of_tenant).cloned().collect();
                self.take_back(promised);
                self.change_tenant(name.tenant(), |tenant| tenant.share = Some(tenant.tally.live()));
            }
            message => {
                if message == AdmissionMessage::BegunByCli && self.is_idle(name) {
                    self.charge(name);
                }
                self.change(name, |seat| seat.handle(&message, now));
            }
        }
    }

    fn is_idle(&self, name: &Name) -> bool {
        self.seats.get(name).is_some_and(|seat| matches!(seat.slot, Slot::Idle { .. }))
    }

    /// Some names of the tenant may have become free on other nodes.
    pub(crate) fn lift(&mut self, tenant: &Tenant) {
        self.change_tenant(tenant, |tenant| tenant.share = None);
    }

    /// The quotas of these tenants have changed.
    pub(crate) fn requote(&mut self, tenants: &[Tenant]) {
        for id in tenants {
            let quota = self.quotas.of(id);
            let Some(tenant) = self.tenants.get_mut(id) else { continue };
            self.ring.reweigh(tenant, quota.weight);
            self.change_tenant(id, |tenant| tenant.cap = quota.live);
        }
    }

    fn change_tenant(&mut self, tenant: &Tenant, change: impl FnOnce(&mut TenantState)) {
        let Some((id, _)) = self.tenants.get_key_value(tenant) else { return };
        let id = Arc::clone(id);
        if let Some(tenant) = self.tenants.get_mut(&id) {
            change(tenant);
            self.ring.file(&id, tenant);
        }
    }

    /// After a restart of the owner: the name holds a slot, and is being started or runs a turn. Holders may then exceed the
    /// bounds; nothing is granted that needs a slot until they do not.
    pub(crate) fn holds(&mut self, name: &Name, starting: bool) {
        // A promise counts on a slot that this holder may have.
        self.take_back(self.promised.values().cloned().collect());
        self.know(name);
        self.change(name, |seat| {
            seat.slot = if starting { Slot::Starting { turn: true } } else { Slot::Running };
            seat.want = seat.want.filter(|want| *want == Want::Turn);
        });
    }

    /// Takes promises back. The names ask on, and their tenants are as before the promises.
    fn take_back(&mut self, promised: Vec<Arc<Name>>) {
        for name in promised {
            self.refund(name.tenant(), 1);
            self.change(&name, |seat| seat.slot = Slot::Nothing);
        }
    }

    /// Gives a tenant back what it has paid for grants of which nothing came. Before the change of the name: a tenant that has asked for
    /// nothing meanwhile saves nothing.
    fn refund(&mut self, tenant: &Tenant, grants: usize) {
        self.change_tenant(tenant, |tenant| tenant.refund(grants));
    }

    /// No further orders: what asks, asks on in vain.
    pub(crate) fn set_draining(&mut self) {
        self.draining = true;
    }

    /// How many names hold, and ask, on the node and of each tenant. Costs O(tenants).
    pub(crate) fn counts(&self) -> Counts {
        let tenants = self.tenants.iter().map(|(id, tenant)| (Tenant::clone(id), tenant.tally)).collect();
        Counts { node: self.tally, tenants }
    }

    /// Makes a seat for a name that is not known, and a tenant for it.
    fn know(&mut self, name: &Name) {
        if self.seats.contains_key(name) {
            return;
        }
        let id = Arc::new(name.tenant().clone());
        let new = || TenantState::new(&self.quotas.of(&id));
        self.tenants.entry(Arc::clone(&id)).or_insert_with(new).names += 1;
        self.seats.insert(Arc::new(name.clone()), Seat::new(id));
    }

    /// Changes a name, and enters it and its tenant in the lists in which they belong then. A name that is not known stays
    /// unknown.
    fn change(&mut self, name: &Name, change: impl FnOnce(&mut Seat)) {
        let Some((name, mut seat)) = self.seats.remove_entry(name) else { return };
        let id = Arc::clone(&seat.tenant);
        // A seat keeps its tenant.
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        tenant.remove(&seat);
        self.tally.count(&seat, -1);
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
        self.tally.count(&seat, 1);
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
        self.ring.file(&id, tenant);
        if tenant.names == 0 {
            self.tenants.remove(&id);
        }
    }
}
