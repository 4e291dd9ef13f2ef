//! The accounts of tenants: prompts that wait, and money.

use super::key::{Key, Table};
use super::{Result, Step};
use crate::id::{Tenant, Timestamp};
use crate::record::{PromptRecord, TenantRecord};
use crate::request::Reserve;

impl Step<'_> {
    /// The account of a tenant; an empty one if the tenant is not known.
    pub(crate) fn tenant(&self, tenant: Tenant) -> Result<TenantRecord> {
        let (queued, period) = (self.queued_of(&tenant)?, self.period(&tenant)?);
        let (spent, reserved) = (self.txn.count(&spent(&tenant))?, self.txn.count(&reserved(&tenant))?);
        Ok(TenantRecord { queued, period, spent, reserved })
    }

    /// Prompts that wait in the whole fleet.
    pub(crate) fn queued(&self) -> Result<u32> {
        self.txn.count(&Key::of(Table::Queued)).map(at_most)
    }

    /// Prompts of a tenant that wait.
    pub(super) fn queued_of(&self, tenant: &Tenant) -> Result<u32> {
        self.txn.count(&Key::of(Table::QueuedOf).tenant(tenant)).map(at_most)
    }

    pub(super) fn count_queued(&mut self, tenant: &Tenant, by: i64) {
        self.txn.add(&Key::of(Table::QueuedOf).tenant(tenant), by);
        self.txn.add(&Key::of(Table::Queued), by);
    }

    /// Whether the tenant has spent so much in the period that no turn can begin in it. What is reserved for running turns may
    /// come back.
    pub(super) fn spent(&self, tenant: &Tenant, budget: &Reserve) -> Result<bool> {
        let (period, spent) = (self.period(tenant)?, self.txn.count(&spent(tenant))?);
        let spent = if is_current(period, budget, self.now) { spent } else { 0 };
        Ok(budget.budget.saturating_sub(spent) < budget.amount.max(1))
    }

    /// Reserves money for a turn. `false`: too little is left.
    pub(super) fn reserve(&mut self, prompt: &mut PromptRecord, reserve: Reserve) -> Result<bool> {
        let (mut period, mut sums) = self.expect_account(prompt.name.tenant())?;
        let begins = !is_current(period, &reserve, self.now);
        if begins {
            (period, sums) = (reserve.period, 0);
        }
        if reserve.budget.saturating_sub(sums) < reserve.amount.max(1) {
            return Ok(false);
        }
        if begins {
            self.set_account(prompt.name.tenant(), period, 0)?;
        }
        self.txn.add(&reserved(prompt.name.tenant()), signed(reserve.amount));
        (prompt.reserved, prompt.period) = (reserve.amount, period);
        Ok(true)
    }

    /// Replaces the reservation of a turn by its cost. The cost of a turn that outlasted its period counts for the new period.
    pub(super) fn settle(&mut self, prompt: &mut PromptRecord, cost: u64) -> Result<()> {
        if prompt.reserved > 0 && self.period(prompt.name.tenant())? == prompt.period {
            // A clock that was wrong may have begun the period anew, without this reservation.
            let back = prompt.reserved.min(self.txn.count(&reserved(prompt.name.tenant()))?);
            self.txn.add(&reserved(prompt.name.tenant()), -signed(back));
        }
        self.txn.add(&spent(prompt.name.tenant()), signed(cost));
        prompt.reserved = 0;
        Ok(())
    }

    /// Lets the commit expect that nobody has spent or reserved anything. Answers with the period of the account, and the sum of its money.
    pub(super) fn expect_account(&self, tenant: &Tenant) -> Result<(Timestamp, u64)> {
        let sums = self.txn.exact_count(&spent(tenant))? + self.txn.exact_count(&reserved(tenant))?;
        Ok((self.period(tenant)?, sums))
    }

    pub(super) fn set_account(&mut self, tenant: &Tenant, period: Timestamp, money: u64) -> Result<()> {
        match period == Timestamp::default() {
            true => self.txn.remove(&Key::of(Table::Tenants).tenant(tenant)),
            false => self.txn.write(&Key::of(Table::Tenants).tenant(tenant), &period)?,
        }
        self.txn.remove(&reserved(tenant));
        self.txn.remove(&spent(tenant));
        self.txn.add(&spent(tenant), signed(money));
        Ok(())
    }

    /// The start of the budget period to which the money of a tenant belongs.
    fn period(&self, tenant: &Tenant) -> Result<Timestamp> {
        Ok(self.txn.read(&Key::of(Table::Tenants).tenant(tenant))?.unwrap_or_default())
    }
}

/// True if the money of an account counts for a reservation. A node that is late at the end of a period does not begin the last one again. A
/// period of the future is left by a clock that was wrong.
pub(crate) fn is_current(period: Timestamp, reserve: &Reserve, now: Timestamp) -> bool {
    reserve.period <= period && period <= now
}

fn spent(tenant: &Tenant) -> Key {
    Key::of(Table::Spent).tenant(tenant)
}

fn reserved(tenant: &Tenant) -> Key {
    Key::of(Table::Reserved).tenant(tenant)
}

/// Money that a counter can be added to a thousand times.
fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX).min(1 << 53)
}

fn at_most(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
