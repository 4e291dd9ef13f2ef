//! The usage of turns, by name and day and by tenant and hour.
//!
//! A name's row of a day is read and written by the owner of the name alone. A tenant has many owners at once, so its sums are counters, and
//! a mark says in which hours it has some. Both begin with the time, so old ones are found at the beginning. A request adds to the hour and
//! the day of its own moment, and only rows of days that have ended are removed.

use std::time::Duration;

use uuid::Uuid;

use crate::id::{Name, Tenant, Timestamp};
use crate::record::PromptRecord;
use crate::record::usage::{DAY, HOUR, Usage, UsageEntry};
use crate::registry::map::key::{Key, Table, number, tenant_and_rest, time_at_start};
use crate::registry::{BATCH, Part, Result, Step};

/// Hours of a tenant that a request reads.
const HOURS: usize = 512;

impl Step<'_> {
    /// Names the rows that [`meter`](Self::meter) reads. This saves a read.
    pub(in crate::registry) fn want_usage(&self, name: &Name) {
        self.txn.want(&of_name(self.now, name));
        self.txn.want(&mark(self.now.period(HOUR), name.tenant()));
    }

    /// Counts a run of a turn that has ended, with what its CLI has told. The caller writes the prompt's record.
    pub(in crate::registry) fn meter(
        &mut self,
        prompt: &mut PromptRecord,
        told: Option<Usage>,
    ) -> Result<()> {
        let mut used = told.unwrap_or_default();
        used.turns = u64::from(prompt.usage.turns == 0);
        used.unmetered = u64::from(told.is_none());
        prompt.usage += used;
        let of_name = of_name(self.now, &prompt.name);
        let mut sum = self.readable(self.txn.read::<Usage>(&of_name))?.unwrap_or_default();
        sum += used;
        self.txn.write(&of_name, &sum)?;
        self.count_usage(self.now.period(HOUR), prompt.name.tenant(), used);
        Ok(())
    }

    /// Adds to the sums of a tenant in an hour.
    fn count_usage(&mut self, hour: Timestamp, tenant: &Tenant, mut used: Usage) {
        let mark = mark(hour, tenant);
        if self.looking(|step| step.txn.get(mark.bytes())).is_none() {
            self.txn.mark(&mark);
        }
        for (counter, count) in counters(hour, tenant).into_iter().zip(used.counts()) {
            self.txn.add(&counter, i64::try_from(*count).unwrap_or(i64::MAX).min(1 << 53));
        }
    }

    /// The usage of tenants by hours that begin in a time, in the order of the hours and of the tenants: a page of them after an hour and a
    /// tenant. The last page is an empty one.
    pub(crate) fn usage(
        &self,
        of: Option<Tenant>,
        from: Timestamp,
        to: Timestamp,
        after: Option<(Timestamp, Tenant)>,
    ) -> Result<Vec<UsageEntry>> {
        self.looking(|step| {
            let all = Key::of(Table::UsageHours);
            let Some(tenant) = of else {
                let first = all.clone().time(from);
                let first = match after {
                    Some((hour, tenant)) if hour >= from => mark(hour, &tenant).end(),
                    _ => first.bytes().to_vec(),
                };
                let rows = step.txn.scan(Part::Values, &first, all.time(to).bytes(), BATCH);
                return rows.iter().map(|(key, _)| step.usage_at(&key[1..])).collect();
            };
            // The oldest hour of any tenant: nothing before it is kept.
            let Some((oldest, _)) = step.txn.under(&all, 1).pop() else { return Ok(Vec::new()) };
            let oldest = time_at_start(&oldest)?;
            let next = after.map_or(from, |(hour, _)| hour.after(HOUR));
            let mut hour = first_in(next.max(oldest), HOUR);
            let (mut marks, to) = (Vec::new(), to.min(step.now.after(HOUR)));
            while hour < to && marks.len() < HOURS {
                let mark = mark(hour, &tenant);
                if step.txn.get(mark.bytes()).is_some() {
                    marks.push(mark);
                }
                hour = hour.after(HOUR);
            }
            marks.iter().map(|mark| step.usage_at(mark.rest())).collect()
        })
    }

    /// The usage of an hour and a tenant, by the rest of the key of its mark.
    fn usage_at(&self, mark: &[u8]) -> Result<UsageEntry> {
        let (hour, tenant) = mark.split_at_checked(8).unwrap_or_default();
        let (start, (tenant, _)) = (Timestamp(number(hour)?), tenant_and_rest(tenant)?);
        let mut usage = Usage::default();
        for (counter, count) in counters(start, &tenant).iter().zip(usage.counts()) {
            *count = self.txn.count(counter)?;
        }
        Ok(UsageEntry { start, tenant, usage })
    }

    /// The usage of a name for the days between `from` and `to`.
    pub(crate) fn usage_of_name(
        &self,
        name: Name,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<UsageEntry>> {
        self.looking(|step| {
            let Some((oldest, _)) = step.txn.under(&Key::of(Table::UsageOfName), 1).pop() else {
                return Ok(Vec::new());
            };
            let oldest = time_at_start(&oldest)?;
            let mut day = first_in(from.max(oldest), DAY);
            let (mut days, to) = (Vec::new(), to.min(step.now.after(DAY)));
            while day < to {
                let usage = step.readable(step.txn.read(&of_name(day, &name)))?;
                let tenant = name.tenant().clone();
                days.extend(usage.map(|usage| UsageEntry { start: day, tenant, usage }));
                day = day.after(DAY);
            }
            Ok(days)
        })
    }

    /// Removes the usage of days that ended before `before`, some rows at a time. `0`: nothing is left.
    pub(crate) fn forget_usage(&mut self, before: Timestamp) -> Result<usize> {
        let before = before.min(self.now).period(DAY);
        let names = self.txn.before(Table::UsageOfName, before, BATCH);
        names.iter().for_each(|(key, _)| self.txn.delete(key));
        let hours = self.txn.before(Table::UsageHours, before, BATCH);
        for (key, _) in &hours {
            self.remove_usage(&key[1..])?;
        }
        Ok(names.len() + hours.len())
    }

    /// Removes the sums of an hour and a tenant, by the rest of the key of their mark.
    fn remove_usage(&mut self, mark: &[u8]) -> Result<()> {
        let (hour, tenant) = mark.split_at_checked(8).unwrap_or_default();
        let (hour, (tenant, _)) = (Timestamp(number(hour)?), tenant_and_rest(tenant)?);
        counters(hour, &tenant).iter().for_each(|counter| self.txn.remove(counter));
        self.txn.remove(&Key::of(Table::UsageHours).followed_by(mark));
        Ok(())
    }

    /// Removes the usage of a name.
    pub(in crate::registry) fn remove_days(&mut self, name: &Name) -> Result<()> {
        let Some((oldest, _)) = self.txn.under(&Key::of(Table::UsageOfName), 1).pop() else { return Ok(()) };
        for day in days_of_name(time_at_start(&oldest)?, self.now, name) {
            if self.looking(|step| step.txn.get(day.bytes())).is_some() {
                self.txn.remove(&day);
            }
        }
        Ok(())
    }

    /// Adds the usage that a tenant has had at another backend: each hour once, in their order. `None`: the tenant has come with all of its
    /// usage, and is to be added again when it moves again.
    pub(crate) fn take_usage(
        &mut self,
        tenant: Tenant,
        from: Uuid,
        usage: Option<Vec<UsageEntry>>,
    ) -> Result<()> {
        let key = Key::of(Table::UsageTaken).id(from).tenant(&tenant);
        let taken = self.txn.read::<Timestamp>(&key)?;
        let Some(usage) = usage else {
            self.txn.remove(&key);
            return Ok(());
        };
        for entry in usage.iter().filter(|entry| taken.is_none_or(|taken| entry.start > taken)) {
            self.count_usage(entry.start, &tenant, entry.usage);
            self.txn.write(&key, &entry.start)?;
        }
        Ok(())
    }

    /// Removes the usage of a tenant in these hours.
    pub(crate) fn usage_taken(&mut self, tenant: Tenant, hours: Vec<Timestamp>) -> Result<()> {
        hours.into_iter().try_for_each(|hour| self.remove_usage(mark(hour, &tenant).rest()))
    }
}

/// The days of which names have usage, from the day of the oldest one on, as the key of a name in each of them.
pub(crate) fn days_of_name(oldest: Timestamp, now: Timestamp, name: &Name) -> Vec<Key> {
    let days = std::iter::successors(Some(oldest.period(DAY)), |day| Some(day.after(DAY)));
    days.take_while(|day| *day <= now).map(|day| of_name(day, name)).collect()
}

/// The start of the first whole period from a moment on.
fn first_in(from: Timestamp, period: Duration) -> Timestamp {
    let start = from.period(period);
    if start < from { start.after(period) } else { start }
}

fn of_name(moment: Timestamp, name: &Name) -> Key {
    Key::of(Table::UsageOfName).time(moment.period(DAY)).name(name)
}

fn mark(hour: Timestamp, tenant: &Tenant) -> Key {
    Key::of(Table::UsageHours).time(hour).tenant(tenant)
}

/// The counters of a tenant in an hour, in the order of [`Usage::counts`].
fn counters(hour: Timestamp, tenant: &Tenant) -> [Key; 7] {
    [0, 1, 2, 3, 4, 5, 6].map(|kind| Key::of(Table::UsageOf).time(hour).tenant(tenant).number(kind))
}
