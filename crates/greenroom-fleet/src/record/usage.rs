//! The usage of turns: money and tokens.

use std::ops::AddAssign;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::id::{Tenant, Timestamp};

/// The money and the tokens that turns have used, as far as their CLIs told: subagents and side calls included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Usage {
    /// Turns with which a CLI has begun and whose run has ended.
    pub turns: u64,
    /// Runs of turns that ended without telling what they have used: the CLI was killed, or its node was lost. What they have used is
    /// missing here. A budget counts its reserve for them.
    pub unmetered: u64,
    /// Money in micro-dollars.
    pub cost: u64,
    /// Tokens that the model read and that were in no cache.
    pub input: u64,
    /// Tokens that the model wrote.
    pub output: u64,
    /// Tokens that the model read from the cache.
    pub cache_read: u64,
    /// Tokens that were written to the cache.
    pub cache_creation: u64,
}

impl Usage {
    /// The money in dollars.
    pub fn cost_usd(&self) -> f64 {
        self.cost as f64 / 1e6
    }

    pub(crate) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// The numbers, in the order of their counters.
    pub(crate) fn counts(&mut self) -> [&mut u64; 7] {
        [
            &mut self.turns,
            &mut self.unmetered,
            &mut self.cost,
            &mut self.input,
            &mut self.output,
            &mut self.cache_read,
            &mut self.cache_creation,
        ]
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, mut more: Self) {
        for (sum, more) in self.counts().into_iter().zip(more.counts()) {
            *sum = sum.saturating_add(*more);
        }
    }
}

impl std::iter::Sum for Usage {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, more| {
            sum += more;
            sum
        })
    }
}

/// The use of the prompt cache by sessions that were woken on a node, by their first requests to the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Wakes {
    /// Sessions that were woken, and whose model has answered since.
    pub wakes: u64,
    /// Sessions that have lost the prompt cache by their sleep: [`FleetEvent::CacheLost`](crate::FleetEvent::CacheLost).
    pub lost: u64,
    /// Tokens that their first requests read from the cache.
    pub cache_read: u64,
    /// Tokens that their first requests wrote to the cache.
    pub cache_creation: u64,
}

impl Wakes {
    /// Counts a first request. Returns whether it has lost the cache.
    pub(crate) fn count(&mut self, (cache_read, cache_creation): (u64, u64)) -> bool {
        let is_lost = cache_read < cache_creation;
        self.wakes += 1;
        self.lost += u64::from(is_lost);
        self.cache_read += cache_read;
        self.cache_creation += cache_creation;
        is_lost
    }
}

/// Chooses what is summed up of the usage of tenants or sessions: by default each day of the last 30.
///
/// Days and hours are those of UTC. The first and the last day or hour count in full.
///
/// ```
/// use std::time::{Duration, SystemTime};
///
/// use greenroom_fleet::UsageQuery;
///
/// let today = UsageQuery::since(SystemTime::now() - Duration::from_secs(24 * 3600)).by_hour();
/// # let _ = today;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageQuery {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    pub(crate) period: Duration,
}

/// The usage of a tenant or of a session in a period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UsageEntry {
    /// The start of the day or of the hour.
    pub start: Timestamp,
    /// The tenant.
    pub tenant: Tenant,
    /// The usage. Turns count for the period in which they have ended.
    pub usage: Usage,
}

/// An hour and a day.
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);
/// Days of a query that names no time.
const DAYS: u32 = 30;

impl UsageQuery {
    /// Each day of the last 30.
    pub fn new() -> Self {
        let now = SystemTime::now();
        Self::since(now.checked_sub(DAY * DAYS).unwrap_or(now))
    }

    /// Each day from this moment on.
    pub fn since(from: SystemTime) -> Self {
        Self { from: Timestamp::of(from), to: Timestamp(u64::MAX), period: DAY }
    }

    /// Ends the time of the query at this moment. Default: now.
    #[must_use]
    pub fn until(mut self, to: SystemTime) -> Self {
        self.to = Timestamp::of(to);
        self
    }

    /// Sums up each hour in place of each day. Sessions have days only.
    #[must_use]
    pub fn by_hour(mut self) -> Self {
        self.period = HOUR;
        self
    }

    /// The time in whole periods of a length.
    pub(crate) fn span(&self, period: Duration) -> (Timestamp, Timestamp) {
        let end = self.to.period(period);
        (self.from.period(period), if end < self.to { end.after(period) } else { end })
    }
}

impl Default for UsageQuery {
    fn default() -> Self {
        Self::new()
    }
}
