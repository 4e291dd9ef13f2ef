//! Quotas: what each tenant may use.
//!
//! Three places say what a tenant's quota is. The first one that knows the tenant counts, as a whole:
//!
//! ```text
//!  a row of the backend (`set_quota`) ──► the tenant's own quota of the builder (`tenant`) ──► the builder's `default_quota`
//! ```
//!
//! The rules of the registry read the row themselves, so a quota that was set counts from the next prompt, claim and begin on, on every node.
//! A node also keeps the rows in its memory ([`Quotas`]), for the order of slots and for the time of turns: it reads them again after a
//! hint, and every five seconds if one has changed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{Tenant, Timestamp};
use crate::lock::locked;
use crate::record::TenantRecord;

/// The bounds of a tenant. They hold for the tenant in the whole fleet, over all nodes.
///
/// Prompts that several nodes accept at the same moment may exceed the bounds of prompts, bytes and names together, by those prompts.
/// `live` and `budget` are exact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Quota {
    /// Turns that the tenant gets in each round, when tenants wait for slots. Default: 1.
    pub weight: u32,
    /// Sessions of the tenant that have an owner at one moment, which those with a CLI process are. Sessions of a lost node count until
    /// other nodes have recovered them. Default: only [`FleetLimits::live`](crate::FleetLimits::live) bounds them, on each node.
    pub live: usize,
    /// Prompts of the tenant that wait, without reminders. Default: [`QueueBounds::tenant`](crate::QueueBounds::tenant).
    pub queued: Option<u32>,
    /// Reminders of the tenant that wait, before and after their moments. Default: 1,024.
    pub reminders: u32,
    /// Sessions that the tenant has, awake or asleep. Default: 1,000,000.
    pub names: u64,
    /// How fast prompts of the tenant are accepted. Default: no bound.
    pub prompts: Option<Rate>,
    /// Bytes of the tenant's prompts that wait, reminders included, as JSON. Default: 64 MiB.
    pub waiting_bytes: u64,
    /// Bytes that the fleet keeps of the tenant's prompts: their content, messages and outcomes as JSON, and 1 KiB for each prompt. Over
    /// it, prompts are refused; turns that run go on. Default: 4 GiB.
    pub kept_bytes: u64,
    /// The longest time of a turn. A turn that takes longer is interrupted, and its session is killed ten seconds later if its CLI goes on.
    /// The time of questions counts. Default: 1 hour.
    pub turn: Duration,
    /// The time for which a CLI waits for the answer to a question, if it is shorter than
    /// [`FleetLimits::question`](crate::FleetLimits::question). Default: that time.
    pub question: Option<Duration>,
    /// Turns of the tenant that are parked at one moment, about. Over it, a question holds its session as if it could not be deferred. Turns
    /// of lost owners are parked also over it. Default: 10,000.
    pub parked: u32,
    /// Money that the tenant may spend in each period. Default: no bound.
    pub budget: Option<Budget>,
}

/// How fast prompts are accepted: a token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// Prompts in a minute, over a long time. At least 1.
    pub per_minute: u32,
    /// Prompts at once, after a pause. At least 1.
    pub burst: u32,
}

/// The money that a tenant may spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// The money for each period, in micro-dollars.
    pub amount: u64,
    /// The length of a period. Periods are counted from 1970-01-01 00:00 UTC.
    pub period: Duration,
    /// The money that is set aside for a turn while it runs, in micro-dollars. A turn begins only if that much is left. It is also the
    /// cost of a turn whose CLI did not tell another one: of a turn that was cut off, or whose CLI was killed. At least 1, unless `amount` is 0.
    pub reserve: u64,
}

/// How much of a budget is spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BudgetLevel {
    #[default]
    Ample,
    /// Four fifths, or more.
    NearlySpent,
    /// Less is left than is set aside for a turn.
    Spent,
}

/// The time by which the clocks of two nodes may differ, as far as they follow one backend.
const SKEW: Duration = Duration::from_secs(60);

impl Budget {
    /// The start of the period that a moment lies in.
    pub(crate) fn period_at(&self, moment: Timestamp) -> Timestamp {
        moment.period(self.period)
    }

    /// True if the money of a period counts now. A node whose clock is a little late does not begin the last period again. A period of the
    /// future is left by a clock that was wrong.
    pub(crate) fn is_current(&self, period: Timestamp, now: Timestamp) -> bool {
        self.period_at(now) <= period && period <= now.after(SKEW)
    }

    /// True if there is money for a turn besides what is used.
    pub(crate) fn allows(&self, used: u64) -> bool {
        self.amount.saturating_sub(used) >= self.reserve.max(1)
    }

    /// True if an account has money for a turn.
    pub(crate) fn has_room(&self, account: &TenantRecord, now: Timestamp) -> bool {
        let spent = if self.is_current(account.period, now) { account.spent } else { 0 };
        self.allows(spent.saturating_add(account.reserved))
    }

    /// The time until the next period.
    pub(crate) fn next_period(&self, now: Timestamp) -> Duration {
        self.period_at(now).after(self.period).since(now)
    }

    pub(crate) fn level(&self, spent: u64) -> BudgetLevel {
        if !self.allows(spent) {
            BudgetLevel::Spent
        } else if spent >= self.amount - self.amount / 5 {
            BudgetLevel::NearlySpent
        } else {
            BudgetLevel::Ample
        }
    }
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            weight: 1,
            live: usize::MAX,
            queued: None,
            reminders: 1024,
            names: 1_000_000,
            prompts: None,
            waiting_bytes: 64 << 20,
            kept_bytes: 4 << 30,
            turn: Duration::from_secs(3600),
            question: None,
            parked: 10_000,
            budget: None,
        }
    }
}

impl Quota {
    /// Sets the weight.
    #[must_use]
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// Sets the cap of live sessions.
    #[must_use]
    pub fn live(mut self, live: usize) -> Self {
        self.live = live;
        self
    }

    /// Sets the bound of prompts that wait.
    #[must_use]
    pub fn queued(mut self, queued: u32) -> Self {
        self.queued = Some(queued);
        self
    }

    /// Sets the number of prompts that are accepted in a minute, and at once after a pause.
    #[must_use]
    pub fn prompts(mut self, per_minute: u32, burst: u32) -> Self {
        self.prompts = Some(Rate { per_minute, burst });
        self
    }

    /// Sets the longest time of a turn.
    #[must_use]
    pub fn turn(mut self, turn: Duration) -> Self {
        self.turn = turn;
        self
    }

    /// Sets the budget of a day in dollars, with a tenth of the budget, and at most a dollar, set aside for each running turn.
    #[must_use]
    pub fn budget_usd(mut self, dollars: f64) -> Self {
        let amount = micro_dollars(dollars);
        self.budget = Some(Budget {
            amount,
            period: Duration::from_secs(24 * 3600),
            reserve: (amount / 10).clamp(amount.min(1), 1_000_000),
        });
        self
    }

    /// The reason why the quota cannot work, for the person who sets it.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if self.weight == 0 || self.live == 0 {
            return Err(
                "the `weight` and `live` of a quota are at least 1, or its tenant would never get a turn",
            );
        }
        if self.turn.is_zero() {
            return Err(
                "the `turn` of a quota is longer than nothing, or each turn would be interrupted at once",
            );
        }
        if self.prompts.is_some_and(|rate| rate.per_minute == 0 || rate.burst == 0) {
            return Err("`per_minute` and `burst` of a rate are at least 1, or no prompt would be accepted");
        }
        let Some(budget) = self.budget else { return Ok(()) };
        if budget.reserve > budget.amount {
            return Err("the `reserve` of a budget is at most its `amount`, or no turn could begin");
        }
        if budget.reserve == 0 && budget.amount > 0 {
            return Err(
                "the `reserve` of a budget is at least one micro-dollar, because a turn whose CLI tells no cost costs the reserve",
            );
        }
        if budget.period.is_zero() {
            return Err("the `period` of a budget is longer than nothing");
        }
        Ok(())
    }
}

/// Dollars in micro-dollars, rounded to the nearest one. A negative number or none counts as nothing.
pub(crate) fn micro_dollars(dollars: f64) -> u64 {
    (dollars * 1e6).round() as u64
}

/// The quotas as a node knows them.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    given: HashMap<Tenant, Quota>,
    default: Quota,
    /// The rows of the backend.
    set: Mutex<BTreeMap<Tenant, Quota>>,
}

impl Quotas {
    /// The quotas of a builder.
    pub(crate) fn new(given: HashMap<Tenant, Quota>, default: Quota) -> Self {
        Self { given, default, set: Mutex::default() }
    }

    /// The quota of a tenant.
    pub(crate) fn of(&self, tenant: &Tenant) -> Quota {
        locked(&self.set).get(tenant).unwrap_or_else(|| self.given(tenant)).clone()
    }

    /// The quota that counts where the backend has none.
    pub(crate) fn given(&self, tenant: &Tenant) -> &Quota {
        self.given.get(tenant).unwrap_or(&self.default)
    }

    /// Takes in all rows of the backend. Answers with the tenants whose quotas have changed.
    pub(crate) fn replace(&self, rows: BTreeMap<Tenant, Quota>) -> Vec<Tenant> {
        let mut set = locked(&self.set);
        let before = std::mem::replace(&mut *set, rows);
        let differs = |tenant: &&Tenant| before.get(*tenant) != set.get(*tenant);
        let mut changed: Vec<_> = before.keys().chain(set.keys()).filter(differs).cloned().collect();
        changed.sort();
        changed.dedup();
        changed
    }
}
