//! The accounts of tenants: prompts that wait, and money.

use super::txn::{Key, Table};
use super::{Result, Step};
use crate::record::{PromptRecord, TenantRecord};
use crate::request::Reserve;

impl Step<'_> {
    pub(crate) fn tenant(&self, tenant: String) -> Result<TenantRecord> {
        self.account(&tenant)
    }

    /// The account of a tenant; an empty one if the tenant is not known.
    pub(super) fn account(&self, tenant: &str) -> Result<TenantRecord> {
        Ok(self.txn.read(&Key::of(Table::Tenants).text(tenant))?.unwrap_or_default())
    }

    /// Prompts that wait in the whole fleet.
    pub(crate) fn queued(&self) -> Result<u32> {
        Ok(self.txn.read(&Key::of(Table::Meta).text("queued"))?.unwrap_or(0))
    }

    pub(super) fn count_queued(&mut self, tenant: &str, by: i32) -> Result<()> {
        let mut account = self.account(tenant)?;
        account.queued = account.queued.saturating_add_signed(by);
        self.put_tenant(tenant, &account)?;
        let all = self.queued()?.saturating_add_signed(by);
        self.txn.write(&Key::of(Table::Meta).text("queued"), &all)
    }

    /// Whether the tenant has spent so much in the period that no turn can begin in it. What is reserved for running turns may
    /// come back.
    pub(super) fn spent(&self, tenant: &str, budget: &Reserve) -> Result<bool> {
        let account = self.account(tenant)?;
        let spent = if account.period < budget.period { 0 } else { account.spent };
        Ok(budget.budget.saturating_sub(spent) < budget.amount.max(1))
    }

    /// Reserves money for a turn. The money that is left, if that is too little.
    pub(super) fn reserve(&mut self, prompt: &mut PromptRecord, reserve: Reserve) -> Result<Option<u64>> {
        let mut account = self.account(&prompt.tenant)?;
        // A node that is late at the end of a period does not begin the last one again. A period of the future is left by a clock
        // that was wrong.
        if reserve.period > account.period || account.period > self.now {
            (account.period, account.spent, account.reserved) = (reserve.period, 0, 0);
        }
        let left = reserve.budget.saturating_sub(account.spent).saturating_sub(account.reserved);
        if left < reserve.amount.max(1) {
            return Ok(Some(left));
        }
        account.reserved = account.reserved.saturating_add(reserve.amount);
        (prompt.reserved, prompt.period) = (reserve.amount, account.period);
        self.put_tenant(&prompt.tenant, &account)?;
        Ok(None)
    }

    /// Replaces the reservation of a turn by its cost. The cost of a turn that outlasted its period counts for the new period.
    pub(super) fn settle(&mut self, prompt: &mut PromptRecord, cost: u64) -> Result<()> {
        let mut account = self.account(&prompt.tenant)?;
        if account.period == prompt.period {
            account.reserved = account.reserved.saturating_sub(prompt.reserved);
        }
        account.spent = account.spent.saturating_add(cost);
        prompt.reserved = 0;
        self.put_tenant(&prompt.tenant, &account)
    }

    fn put_tenant(&mut self, tenant: &str, account: &TenantRecord) -> Result<()> {
        let key = Key::of(Table::Tenants).text(tenant);
        if *account == TenantRecord::default() {
            return self.txn.remove(&key);
        }
        self.txn.write(&key, account)
    }
}
