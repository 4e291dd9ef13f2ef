//! The accounts of tenants: their quotas, what they use, and money.
//!
//! | counter of a tenant | is | changes with |
//! |---|---|---|
//! | `QueuedOf`, `RemindersOf` | prompts that wait | `enqueue`, `dequeue` |
//! | `WaitingBytes` | bytes of these prompts | the same |
//! | `KeptBytes` | bytes that are kept of its prompts | accept, append, the end of a prompt, `forget_prompt`, a move |
//! | `NamesOf` | its names | a new name, `remove_name`, a move |
//! | `ParkedOf` | its turns that are parked | park, a lost owner, a decision, the end of a parked turn |
//! | `LiveOf` | its names that have an owner | a claim, and whatever ends an ownership: `count_owned` |
//! | `Spent`, `Reserved` | money of its period, and of its running turns | begin, finish, a lost owner |
//!
//! A request adds to a counter without expecting it, and compares it with a bound without expecting it. Two bounds are exact: the money
//! of a begin, and the names with an owner at a claim expect their counters.
//!
//! # The cap of live sessions over all nodes
//!
//! ```text
//!                     LiveOf < cap                               release, a failed activation, `recover` of a dead node
//!  claim ──────────────────────────────► owned, LiveOf + 1 ───────────────────────────────────► free, LiveOf - 1, `Freed` is told
//!    └── LiveOf = cap ──► `AtCap`: the name waits, and its node asks again after `Freed` of the tenant
//! ```
//!
//! A CLI runs only while its name has an owner, so the live CLIs of a tenant are never more than its cap, on all nodes together. A dead node
//! holds its share until its names are recovered or claimed.

use serde::{Deserialize, Serialize};

use crate::error::{BackendError, BackendErrorKind};
use crate::event::FleetEvent;
use crate::id::{Tenant, Timestamp};
use crate::limits::{Budget, BudgetLevel, Quota};
use crate::record::{PromptRecord, TenantRecord};
use crate::registry::map::key::{Key, Table, tenant_and_rest};
use crate::registry::{Result, Step, parsed};
use crate::request::{Change, Page};

/// The money of a tenant without its sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Account {
    /// The start of the period to which `Spent` belongs.
    period: Timestamp,
    /// The budget for which a turn has reserved money last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    budget: Option<Budget>,
    /// The level that was told of in this period.
    #[serde(default)]
    told: BudgetLevel,
}

impl Step<'_> {
    /// The account of a tenant; an empty one if the tenant is not known.
    pub(crate) fn tenant(&self, tenant: Tenant) -> Result<TenantRecord> {
        let of = |table| self.count_of(table, &tenant);
        Ok(TenantRecord {
            queued: at_most(of(Table::QueuedOf)?),
            reminders: at_most(of(Table::RemindersOf)?),
            names: of(Table::NamesOf)?,
            live: at_most(of(Table::LiveOf)?),
            parked: at_most(of(Table::ParkedOf)?),
            waiting_bytes: of(Table::WaitingBytes)?,
            kept_bytes: of(Table::KeptBytes)?,
            period: self.account(&tenant)?.period,
            spent: of(Table::Spent)?,
            reserved: of(Table::Reserved)?,
        })
    }

    /// Prompts that wait in the whole fleet, without reminders.
    pub(crate) fn queued(&self) -> Result<u32> {
        self.txn.count(&Key::of(Table::Queued)).map(at_most)
    }

    /// A counter of a tenant, for a bound.
    pub(in crate::registry) fn count_of(&self, table: Table, tenant: &Tenant) -> Result<u64> {
        self.txn.count(&of(table, tenant))
    }

    /// Adds to a counter of a tenant.
    pub(in crate::registry) fn add_to(&mut self, table: Table, tenant: &Tenant, by: i64) {
        self.txn.add(&of(table, tenant), by);
    }

    /// The quota of a tenant: the one that was set, or `given`. It counts as of the read.
    pub(in crate::registry) fn quota_of(&self, tenant: &Tenant, given: &Quota) -> Result<Quota> {
        let set = self.looking(|step| step.quota(tenant.clone()))?;
        Ok(set.unwrap_or_else(|| given.clone()))
    }

    /// Names the row of a tenant's quota. This saves a read.
    pub(in crate::registry) fn want_quota(&self, tenant: &Tenant) {
        self.txn.want(&of(Table::Quotas, tenant));
    }

    /// The quota that was set for a tenant.
    pub(crate) fn quota(&self, tenant: Tenant) -> Result<Option<Quota>> {
        self.txn.read(&of(Table::Quotas, &tenant))
    }

    /// Sets the quota of a tenant, or removes it.
    pub(crate) fn set_quota(&mut self, tenant: Tenant, quota: Option<Quota>) -> Result<()> {
        let key = of(Table::Quotas, &tenant);
        match quota {
            Some(quota) => {
                quota.check().map_err(|why| BackendError::new(BackendErrorKind::Invalid, why))?;
                self.txn.write(&key, &quota)?;
            }
            None => self.txn.remove(&key),
        }
        self.txn.add(&Key::of(Table::QuotasSet), 1);
        self.told.changes.push(Change::QuotaSet(tenant));
        Ok(())
    }

    /// The number of quotas that were set so far: a node reads the quotas again when it has changed.
    pub(crate) fn quotas_set(&self) -> Result<u64> {
        self.txn.count(&Key::of(Table::QuotasSet))
    }

    /// A page of quotas that were set and can be read, in the order of the tenants' bytes.
    pub(crate) fn quotas(&self, after: Option<Tenant>, limit: usize) -> Result<Vec<(Tenant, Quota)>> {
        let after = after.map(|after| of(Table::Quotas, &after));
        self.page(&Key::of(Table::Quotas), after, limit.min(Page::MOST), |step, key, row| {
            let (tenant, _) = tenant_and_rest(key)?;
            step.readable(parsed(row).map(|quota| Some((tenant, quota))))
        })
    }

    /// True if another name of the tenant may get an owner. The commit expects that no other one has got one since.
    pub(in crate::registry) fn may_live(&self, tenant: &Tenant, quota: &Quota) -> Result<bool> {
        if quota.live == usize::MAX {
            return Ok(true);
        }
        Ok(self.txn.exact_count(&of(Table::LiveOf, tenant))? < quota.live as u64)
    }

    /// True if the tenant has spent so much in the period that no turn can begin in it. What is reserved for running turns may come back.
    pub(in crate::registry) fn has_spent(&self, tenant: &Tenant, budget: &Budget) -> Result<bool> {
        let account = self.looking(|step| step.account(tenant))?;
        let spent = self.count_of(Table::Spent, tenant)?;
        Ok(!budget.allows(if budget.is_current(account.period, self.now) { spent } else { 0 }))
    }

    /// Reserves money for a turn. `false`: too little is left.
    pub(in crate::registry) fn reserve(&mut self, prompt: &mut PromptRecord, budget: Budget) -> Result<bool> {
        let tenant = prompt.name.tenant().clone();
        let before = self.account(&tenant)?;
        let (spent, reserved) = self.expect_money(&tenant)?;
        let begins = !budget.is_current(before.period, self.now);
        let spent = if begins { 0 } else { spent };
        if !budget.allows(spent.saturating_add(reserved)) {
            return Ok(false);
        }
        let mut account = before;
        if begins {
            self.begin_period(&tenant, &mut account, budget.period_at(self.now));
        }
        if account.budget != Some(budget) {
            (account.budget, account.told) = (Some(budget), account.told.min(budget.level(spent)));
        }
        self.tell_level(&tenant, &mut account, spent);
        if account != before {
            self.txn.write(&of(Table::Tenants, &tenant), &account)?;
        }
        self.add_to(Table::Reserved, &tenant, signed(budget.reserve));
        prompt.reserved = budget.reserve;
        Ok(true)
    }

    /// Replaces the reservation of a turn by its cost; `None`: by the same money. The cost of a turn that outlasted its period counts for the
    /// period in which it ends.
    pub(in crate::registry) fn settle(&mut self, prompt: &mut PromptRecord, cost: Option<u64>) -> Result<()> {
        let tenant = prompt.name.tenant().clone();
        let reserved = std::mem::take(&mut prompt.reserved);
        self.add_to(Table::Reserved, &tenant, -signed(reserved));
        let cost = cost.unwrap_or(reserved);
        let Some(budget) = self.looking(|step| step.account(&tenant))?.budget else {
            self.add_to(Table::Spent, &tenant, signed(cost));
            return Ok(());
        };
        let before = self.account(&tenant)?;
        let (spent, _) = self.expect_money(&tenant)?;
        let mut account = before;
        let begins = !budget.is_current(account.period, self.now);
        if begins {
            self.begin_period(&tenant, &mut account, budget.period_at(self.now));
        }
        self.add_to(Table::Spent, &tenant, signed(cost));
        let spent = if begins { cost } else { spent.saturating_add(cost) };
        self.tell_level(&tenant, &mut account, spent);
        if account != before {
            self.txn.write(&of(Table::Tenants, &tenant), &account)?;
        }
        Ok(())
    }

    /// Lets the commit expect that nobody has spent or reserved anything. Answers with the money that is spent and reserved.
    fn expect_money(&self, tenant: &Tenant) -> Result<(u64, u64)> {
        let exact = |table| self.txn.exact_count(&of(table, tenant));
        Ok((exact(Table::Spent)?, exact(Table::Reserved)?))
    }

    /// Begins a period without money that is spent. Turns that run keep their reservations.
    fn begin_period(&mut self, tenant: &Tenant, account: &mut Account, period: Timestamp) {
        (account.period, account.told) = (period, BudgetLevel::Ample);
        self.txn.remove(&of(Table::Spent, tenant));
    }

    /// Tells of each level of the budget that the account has come to, once in a period.
    fn tell_level(&mut self, tenant: &Tenant, account: &mut Account, spent: u64) {
        let Some(budget) = account.budget else { return };
        let (level, told) = (budget.level(spent), account.told);
        let (tenant, budget) = (|| tenant.clone(), budget.amount);
        if level > BudgetLevel::Ample && told < BudgetLevel::NearlySpent {
            self.made(FleetEvent::BudgetNearlySpent { tenant: tenant(), spent, budget });
        }
        if level == BudgetLevel::Spent && told < level {
            self.made(FleetEvent::BudgetSpent { tenant: tenant(), spent, budget });
        }
        account.told = told.max(level);
    }

    /// The period of a tenant's money, and the money that is spent. The commit expects that nobody spends or reserves anything.
    pub(in crate::registry) fn expect_account(&self, tenant: &Tenant) -> Result<(Timestamp, u64)> {
        let (spent, _) = self.expect_money(tenant)?;
        Ok((self.account(tenant)?.period, spent))
    }

    pub(in crate::registry) fn set_account(
        &mut self,
        tenant: &Tenant,
        period: Timestamp,
        money: u64,
    ) -> Result<()> {
        let key = of(Table::Tenants, tenant);
        match period == Timestamp::default() {
            true => self.txn.remove(&key),
            false => self.txn.write(&key, &Account { period, ..self.account(tenant)? })?,
        }
        self.txn.remove(&of(Table::Spent, tenant));
        self.add_to(Table::Spent, tenant, signed(money));
        Ok(())
    }

    fn account(&self, tenant: &Tenant) -> Result<Account> {
        Ok(self.txn.read(&of(Table::Tenants, tenant))?.unwrap_or_default())
    }
}

fn of(table: Table, tenant: &Tenant) -> Key {
    Key::of(table).tenant(tenant)
}

/// An amount that a counter can be added to a thousand times.
pub(in crate::registry) fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX).min(1 << 53)
}

fn at_most(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
