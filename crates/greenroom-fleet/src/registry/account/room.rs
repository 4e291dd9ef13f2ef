//! The room for a new prompt: the bounds of queues, of bytes, of names and of time.
//!
//! # The rate
//!
//! A token bucket. Each prompt takes a token, and tokens come back at the rate of the quota. To let prompts of a tenant be accepted side by
//! side, nobody writes the number of tokens: a row has the moment at which the bucket was full, and a counter the tokens taken since. Only a
//! prompt that finds the bucket full again begins with a new row:
//!
//! ```text
//!  tokens = burst + (now − since) · rate − taken         tokens ≥ burst: since = now, taken = 0
//! ```
//!
//! Prompts that are accepted at the same moment may share the last token.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{Tenant, Timestamp};
use crate::limits::{Quota, Rate};
use crate::record::{NameRecord, NameState};
use crate::registry::map::key::{Key, Table};
use crate::registry::{Result, Step};
use crate::request::{Accept, Refused};

/// Bytes that a prompt counts for besides its content, its messages and its outcome: its record and its places in lists.
pub(in crate::registry) const RECORD_BYTES: u64 = 1024;

/// A tenant may queue this part of the fleet's bound even if the queue is full.
const SHARE: u64 = 512;

/// A bucket of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Bucket {
    /// The moment at which the bucket was full.
    since: Timestamp,
    /// The rate of the refill.
    rate: Rate,
}

impl Bucket {
    /// Thousandths of tokens refilled up to a moment. `None`: the moment is before `since`.
    fn came_back(&self, now: Timestamp) -> Option<u128> {
        let millis = now.0.checked_sub(self.since.0)?;
        Some(u128::from(millis) * u128::from(self.rate.per_minute) * 1000 / 60_000)
    }
}

impl Step<'_> {
    /// The reason to refuse a new prompt of a name. `None`: there is room, and the prompt has taken a token of its tenant.
    pub(in crate::registry) fn no_room(
        &mut self,
        accept: &Accept,
        bytes: u64,
        name: Option<&NameRecord>,
    ) -> Result<Option<Refused>> {
        if let Some(NameRecord { state: NameState::Quarantined { why, .. }, .. }) = name {
            // The prompt would wait for a person, and expire before one comes.
            return Ok(Some(Refused::Quarantined { why: why.clone() }));
        }
        let (tenant, bounds) = (accept.name.tenant(), &accept.bounds);
        if bytes > bounds.prompt_bytes {
            return Ok(Some(Refused::TooLong { bytes, bound: bounds.prompt_bytes }));
        }
        let quota = self.quota_of(tenant, &accept.quota)?;
        if name.is_none() && self.count_of(Table::NamesOf, tenant)? >= quota.names {
            return Ok(Some(Refused::TooManyNames { bound: quota.names }));
        }
        if let Some(budget) = quota.budget
            && self.has_spent(tenant, &budget)?
        {
            return Ok(Some(Refused::OverBudget { retry_after: budget.next_period(self.now) }));
        }
        if let Some(full) = self.full_queue(accept, &quota, name)? {
            return Ok(Some(full));
        }
        if self.count_of(Table::WaitingBytes, tenant)?.saturating_add(bytes) > quota.waiting_bytes {
            return Ok(Some(Refused::WaitingBytes { bound: quota.waiting_bytes }));
        }
        let kept = self.count_of(Table::KeptBytes, tenant)?;
        if kept.saturating_add(bytes + RECORD_BYTES) > quota.kept_bytes {
            return Ok(Some(Refused::KeptBytes { bound: quota.kept_bytes }));
        }
        let Some(rate) = quota.prompts else { return Ok(None) };
        let wait = self.take_token(tenant, rate)?;
        Ok(wait.map(|retry_after| Refused::TooFast { retry_after }))
    }

    /// The refusal if a queue is full.
    fn full_queue(
        &self,
        accept: &Accept,
        quota: &Quota,
        name: Option<&NameRecord>,
    ) -> Result<Option<Refused>> {
        let (tenant, bounds) = (accept.name.tenant(), &accept.bounds);
        // A tenant with few prompts is not refused for those of others.
        let of_others = |own: u64, all: u64, bound: u32| if own < u64::from(bound) / SHARE { 0 } else { all };
        let (what, queues) = if accept.not_before.is_some_and(|moment| moment > self.now) {
            let (own, all) = (
                self.count_of(Table::RemindersOf, tenant)?,
                self.txn.count(&Key::of(Table::RemindersWaiting))?,
            );
            let queues = [
                ("for the tenant", own, quota.reminders),
                ("in the fleet", of_others(own, all, bounds.reminders), bounds.reminders),
            ];
            ("reminders", queues.to_vec())
        } else {
            let of_name = name.map_or(0, |name| name.queued.saturating_sub(name.reminders));
            let (own, all) = (self.count_of(Table::QueuedOf, tenant)?, u64::from(self.queued()?));
            let queues = [
                ("for the session", u64::from(of_name), bounds.name),
                ("for the tenant", own, quota.queued.unwrap_or(bounds.tenant)),
                ("in the fleet", of_others(own, all, bounds.fleet), bounds.fleet),
            ];
            ("prompts", queues.to_vec())
        };
        let full = queues.into_iter().find(|(_, waiting, bound)| *waiting >= u64::from(*bound));
        Ok(full.map(|(of, _, bound)| Refused::QueueFull { what, of, bound }))
    }

    /// Takes a token from the bucket of a tenant. If it is empty, returns the time until the next token.
    fn take_token(&mut self, tenant: &Tenant, rate: Rate) -> Result<Option<Duration>> {
        let (row, taken) = (Key::of(Table::Buckets).tenant(tenant), Key::of(Table::Taken).tenant(tenant));
        let bucket = self.txn.read::<Bucket>(&row)?.filter(|bucket| bucket.rate == rate);
        let came_back = bucket.and_then(|bucket| bucket.came_back(self.now));
        let used = u128::from(self.txn.count(&taken)?) * 1000;
        let missing =
            came_back.and_then(|came_back| used.checked_sub(came_back)).filter(|missing| *missing > 0);
        let Some(missing) = missing else {
            self.txn.exact_count(&taken)?;
            self.txn.write(&row, &Bucket { since: self.now, rate })?;
            self.txn.remove(&taken);
            self.txn.add(&taken, 1);
            return Ok(None);
        };
        let after = (missing + 1000).saturating_sub(u128::from(rate.burst) * 1000);
        if after == 0 {
            self.txn.add(&taken, 1);
            return Ok(None);
        }
        let millis = (after * 60_000).div_ceil(u128::from(rate.per_minute) * 1000);
        Ok(Some(Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))))
    }
}
