//! The tenants that ask, in the order of their next grants.

use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::Instant;

use super::Tally;
use super::seat::{Rank, Seat, Slot};
use crate::id::{Name, Tenant};
use crate::limits::Quota;

/// The virtual length of a turn for a tenant of weight 1.
const TURN: u128 = 1 << 40;

/// A place in the order of tenants: the tenant's virtual time, then first come first served.
pub(super) type Place = (u128, u64);

/// A tenant that holds or asks.
#[derive(Debug, Default)]
pub(super) struct TenantState {
    weight: u128,
    /// Slots that the tenant may hold. A tenant with zero is never granted anything.
    pub(super) cap: usize,
    /// Slots that it may hold here while it is at its cap on all nodes together.
    pub(super) share: Option<usize>,
    /// Names of it that hold or ask.
    pub(super) names: usize,
    pub(super) tally: Tally,
    /// Names in its queue, those that leave included.
    queue: usize,
    /// The ring counts the tenant among those that ask.
    asks: bool,
    place: Place,
    /// The tenant's place was given to it by the clock: it had not asked just before.
    fresh: bool,
    /// Names that ask and have an idle slot, in their order.
    pub(super) ready: BTreeMap<Rank, Arc<Name>>,
    /// Those of `ready` whose slot may be taken for a request before theirs: they are not busy.
    pub(super) yielding: BTreeMap<Rank, Arc<Name>>,
    /// Names that ask and need a slot, in their order.
    pub(super) slotless: BTreeMap<Rank, Arc<Name>>,
    /// Holders that have been idle for long enough, the least recently used first.
    pub(super) rested: BTreeMap<(Instant, u64), Arc<Name>>,
    /// The place at which it stands in the lists of the ring.
    filed: Place,
}

impl TenantState {
    pub(super) fn new(quota: &Quota) -> Self {
        Self { weight: quota.weight.max(1).into(), cap: quota.live, ..Self::default() }
    }

    /// Slots that the tenant may hold now.
    pub(super) fn slots(&self) -> usize {
        self.share.map_or(self.cap, |share| share.min(self.cap))
    }

    /// Gives back what the tenant has paid for this many grants of which nothing came.
    pub(super) fn refund(&mut self, grants: usize) {
        let paid = (TURN / self.weight).max(1).saturating_mul(grants as u128);
        self.place.0 = self.place.0.saturating_sub(paid);
    }

    /// Enters a name in the lists in which it belongs.
    pub(super) fn enter(&mut self, name: &Arc<Name>, seat: &Seat) {
        self.tally.count(seat, 1);
        let (true, Some(place)) = (seat.queues(), seat.place) else { return };
        self.queue += 1;
        match seat.slot {
            Slot::Nothing => {
                self.slotless.insert(place, Arc::clone(name));
            }
            Slot::Idle { .. } => {
                self.ready.insert(place, Arc::clone(name));
                if !seat.busy {
                    self.yielding.insert(place, Arc::clone(name));
                }
            }
            _ => {}
        }
    }

    /// Removes what `enter` entered, and the name from those that have rested.
    pub(super) fn remove(&mut self, seat: &Seat) {
        self.tally.count(seat, -1);
        if let Some(since) = seat.rests_since() {
            self.rested.remove(&since);
        }
        let (true, Some(place)) = (seat.queues(), seat.place) else { return };
        self.queue -= 1;
        self.slotless.remove(&place);
        self.ready.remove(&place);
        self.yielding.remove(&place);
    }
}

/// The order of tenants: start-time fair queueing. Each tenant has a virtual time, which a turn moves on by one over its weight;
/// the tenant with the earliest time is next.
#[derive(Debug, Default)]
pub(super) struct Ring {
    /// The virtual time of the last grant. A tenant that comes new begins here, so it neither waits for what others had before
    /// nor saves what it did not ask for.
    clock: u128,
    arrivals: u64,
    /// The weights of all tenants that ask.
    weights: u128,
    /// Tenants with a name that asks and has an idle slot.
    pub(super) ready: BTreeMap<Place, Arc<Tenant>>,
    /// Tenants with a name that needs a slot, and room for it within their cap.
    pub(super) open: BTreeMap<Place, Arc<Tenant>>,
    /// Tenants with a name that needs a slot, at their cap, and with a slot that they can take from another name of theirs.
    pub(super) capped: BTreeMap<Place, Arc<Tenant>>,
    /// Tenants with a name that would yield its slot to a request before its own.
    pub(super) yielding: BTreeMap<Place, Arc<Tenant>>,
}

impl Ring {
    /// Charges a tenant for a grant.
    pub(super) fn charge(&mut self, tenant: &mut TenantState) {
        self.clock = self.clock.max(tenant.place.0);
        if tenant.fresh {
            // Newcomers all begin at the clock. It goes on with them, or a stream of newcomers would pass by all others.
            self.clock += (TURN / self.weights.max(1)).max(1);
        }
        // Not before the clock: no credit for having been passed over while nothing could be granted to it.
        let next = (tenant.place.0 + (TURN / tenant.weight).max(1)).max(self.clock);
        tenant.fresh = false;
        tenant.place = (next, self.arrive());
    }

    /// Gives the tenant another weight, for its next grants.
    pub(super) fn reweigh(&mut self, tenant: &mut TenantState, weight: u32) {
        let weight = weight.max(1).into();
        if tenant.asks {
            self.weights = self.weights - tenant.weight + weight;
        }
        tenant.weight = weight;
    }

    /// Enters the tenant in the lists in which it belongs after a change of one of its names.
    pub(super) fn file(&mut self, id: &Arc<Tenant>, tenant: &mut TenantState) {
        match (tenant.asks, tenant.queue > 0) {
            (false, true) => {
                self.weights += tenant.weight;
                // Behind those that ask, and not before the clock.
                tenant.fresh = tenant.place.0 <= self.clock;
                tenant.place = (tenant.place.0.max(self.clock), self.arrive());
            }
            (true, false) => self.weights -= tenant.weight,
            _ => {}
        }
        tenant.asks = tenant.queue > 0;
        let (slotless, room) = (!tenant.slotless.is_empty(), tenant.tally.has_room(tenant.slots()));
        let own_victim = !tenant.rested.is_empty() || !tenant.yielding.is_empty();
        for (list, belongs) in [
            (&mut self.ready, !tenant.ready.is_empty()),
            (&mut self.open, slotless && room),
            (&mut self.capped, slotless && !room && own_victim && tenant.slots() > 0),
            (&mut self.yielding, !tenant.yielding.is_empty()),
        ] {
            list.remove(&tenant.filed);
            if belongs {
                list.insert(tenant.place, Arc::clone(id));
            }
        }
        tenant.filed = tenant.place;
    }

    fn arrive(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals
    }
}
