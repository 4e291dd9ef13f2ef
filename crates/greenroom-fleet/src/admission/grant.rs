//! Who is next, and who makes room.

use std::sync::Arc;

use tokio::time::Instant;

use super::seat::Slot;
use super::{Admission, Grant, Want};
use crate::id::{Name, Tenant};

/// The request that is next in order, and can be granted now or after an eviction.
enum Pick {
    /// A turn on the slot that the name holds.
    Own(Arc<Name>),
    /// A slot for a name that holds none.
    Slot(Arc<Name>, Arc<Tenant>),
}

impl Admission {
    /// The next order, and the name that gets it. Call it after every change until there is none.
    pub(crate) fn next(&mut self, now: Instant) -> Option<(Arc<Name>, Grant)> {
        if self.draining {
            return None;
        }
        self.age(now);
        loop {
            if let Some(name) = self.startable() {
                self.change(&name, |seat| {
                    seat.slot = Slot::Starting { turn: seat.want == Some(Want::Turn) };
                    seat.want = None;
                });
                return Some((name, Grant::Activate));
            }
            match self.pick()? {
                Pick::Own(name) => {
                    self.charge(&name);
                    self.change(&name, |seat| (seat.slot, seat.want) = (Slot::Running, None));
                    return Some((name, Grant::Turn));
                }
                Pick::Slot(name, tenant) => {
                    if self.promise(&name, &tenant) {
                        continue;
                    }
                    let victim = self.victim(&tenant)?;
                    self.change(&victim, |seat| seat.slot = Slot::Leaving);
                    // Refused only while there are more holders than allowed, which `holds` may have brought.
                    self.promise(&name, &tenant);
                    return Some((victim, Grant::Passivate));
                }
            }
        }
    }

    /// When to call `next` again although nothing has happened: a holder has then been idle for long enough to be evicted.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        let wanted = !self.draining && self.tally.asking > 0;
        let ((since, _), _) = self.resting.first_key_value().filter(|_| wanted)?;
        since.checked_add(self.limits.idle_before_eviction)
    }

    /// Notes which holders have been idle for long enough.
    fn age(&mut self, now: Instant) {
        while let Some(first) = self.resting.first_entry() {
            let (since, _) = *first.key();
            if now.saturating_duration_since(since) < self.limits.idle_before_eviction {
                return;
            }
            let (key, name) = first.remove_entry();
            let Some(id) = self.seats.get(&name).map(|seat| Arc::clone(&seat.tenant)) else { continue };
            if let Some(tenant) = self.tenants.get_mut(&id) {
                tenant.rested.insert(key, Arc::clone(&name));
                self.ring.file(&id, tenant);
            }
            self.rested.insert(key, name);
        }
    }

    /// The first promised name for which there is a slot now.
    fn startable(&self) -> Option<Arc<Name>> {
        if !self.tally.has_slot(self.limits.live) || self.tally.starting >= self.limits.activations_at_once {
            return None;
        }
        let has_slot = |name: &Arc<Name>| {
            let tenant = self.tenants.get(&self.seats.get(name)?.tenant)?;
            Some(tenant.tally.has_slot(tenant.slots()))
        };
        self.promised.values().find(|name| has_slot(name) == Some(true)).cloned()
    }

    fn pick(&self) -> Option<Pick> {
        let ring = &self.ring;
        // Promises beyond this would only wait for other activations, and others could come first until then.
        let at_once = self.limits.activations_at_once;
        let may_promise = self.tally.starting + self.promised.len() < at_once;
        // The promised names wait for slots of their own tenants, so a slot that is free is for others.
        let may_start = self.tally.has_slot(self.limits.live) && self.tally.starting < at_once;
        let some_slot =
            self.tally.has_room(self.limits.live) || !self.rested.is_empty() || !ring.yielding.is_empty();
        let may_open = may_start || (may_promise && some_slot);
        let open = ring.open.first_key_value().filter(|_| may_open);
        let capped = ring.capped.first_key_value().filter(|_| may_promise);
        let slot = [open, capped].into_iter().flatten().min();
        let (_, id) = [slot, ring.ready.first_key_value()].into_iter().flatten().min()?;
        let tenant = self.tenants.get(id)?;
        // The tenant may be first in both lists: its names are served in their order.
        let slotless =
            tenant.slotless.first_key_value().filter(|_| slot.is_some_and(|(_, first)| first == id));
        match (tenant.ready.first_key_value(), slotless) {
            (Some((own, name)), Some((other, _))) if own < other => Some(Pick::Own(Arc::clone(name))),
            (_, Some((_, name))) => Some(Pick::Slot(Arc::clone(name), Arc::clone(id))),
            (Some((_, name)), None) => Some(Pick::Own(Arc::clone(name))),
            (None, None) => None,
        }
    }

    /// Promises a slot to the name and charges its tenant, if a slot is free or on its way.
    fn promise(&mut self, name: &Name, tenant: &Tenant) -> bool {
        let has_room = self.tenants.get(tenant).is_some_and(|tenant| tenant.tally.has_room(tenant.slots()));
        if !has_room || !self.tally.has_room(self.limits.live) {
            return false;
        }
        self.charge(name);
        let order = self.numbers + 1;
        self.change(name, |seat| seat.slot = Slot::Promised(order));
        true
    }

    pub(super) fn charge(&mut self, name: &Name) {
        let Some(seat) = self.seats.get(name) else { return };
        if let Some(tenant) = self.tenants.get_mut(&seat.tenant) {
            self.ring.charge(tenant);
        }
    }

    /// The holder that makes room for the next request, which is the tenant's.
    fn victim(&self, tenant: &Tenant) -> Option<Arc<Name>> {
        let tenant = self.tenants.get(tenant)?;
        let (rested, last) = if tenant.tally.has_room(tenant.slots()) {
            // Every request of this list comes after the one that is next in order, and the last tenant's last comes last.
            let last = self.ring.yielding.last_key_value().and_then(|(_, id)| self.tenants.get(id));
            (&self.rested, last)
        } else {
            (&tenant.rested, Some(tenant))
        };
        let idle = rested.first_key_value().map(|(_, name)| name);
        let yields = || last?.yielding.last_key_value().map(|(_, name)| name);
        idle.or_else(yields).cloned()
    }
}
