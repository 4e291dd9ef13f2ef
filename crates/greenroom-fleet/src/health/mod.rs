//! The health of a node: which causes keep its sessions from starting, and who tries again.
//!
//! ```text
//!              a session fails by the cause                the pause is over, and a name is there
//!  Healthy ───────────────────────────────► Degraded ──────────────────────────────────────► Trying
//!     ▲                                         ▲                                              │ │
//!     │                                         └── fails by the cause: a longer pause ────────┤ │
//!     │                                         └── ends otherwise: the next name tries ───────┘ │
//!     └───────────────────── the session is up, or the model has answered ───────────────────────┘
//! ```
//!
//! Each [`Extent`] has its own machine: the node, a profile, and a tenant with a profile. The node's machine is for the disk, the
//! memory and the guardian, a profile's for the CLI. A profile may give each tenant a key, so a rejected key holds back its tenant alone.
//!
//! While an extent is degraded, its names queue for the one [`Try`], without a slot and without owning the name, so another node can run
//! it. The try begins after a pause of [`FleetLimits::backoff`], which doubles up to [`FleetLimits::backoff_max`]. A name that is dropped
//! with the try leaves it to the next one. A key is tried by a turn, because a CLI starts with any key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

use crate::event::FleetEvent;
use crate::id::{Tenant, Timestamp};
use crate::limits::FleetLimits;
use crate::lock::locked;
use crate::record::Cause;

/// Extents that are degraded at a time. Failures in further ones count as the machine's, too: each name backs off by itself.
const EXTENTS: usize = 1024;

/// The health of a node, in a [`FleetSnapshot`](crate::FleetSnapshot).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "is", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Health {
    /// No cause keeps sessions from starting on this node.
    Healthy,
    /// Sessions cannot start on this node. It tries again, one session at a time.
    Degraded {
        /// The causes, the oldest first; at most 1,024.
        causes: Vec<Degradation>,
    },
}

/// A cause that keeps sessions of a node from starting.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Degradation {
    /// The cause.
    pub cause: Cause,
    /// The profile whose sessions it holds back. `None`: every profile.
    pub profile: Option<String>,
    /// The tenant whose sessions it holds back. `None`: every tenant.
    pub tenant: Option<Tenant>,
    /// The error of the first session that has failed by it.
    pub why: String,
    /// When that session failed.
    pub since: Timestamp,
    /// Sessions that have failed by it: the first one, and each one that has tried since.
    pub tries: u32,
}

/// The sessions that a cause holds back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Extent {
    profile: Option<String>,
    tenant: Option<Tenant>,
}

impl Extent {
    /// The extents of a session, the widest first.
    fn all(profile: &str, tenant: &Tenant) -> [Self; 3] {
        let (profile, tenant) = (Some(profile.to_owned()), Some(tenant.clone()));
        [
            Self { profile: None, tenant: None },
            Self { profile: profile.clone(), tenant: None },
            Self { profile, tenant },
        ]
    }

    /// The sessions that a cause holds back, of which a session of this profile and tenant is one.
    fn of(cause: Cause, profile: Option<String>, tenant: Option<Tenant>) -> Self {
        match cause {
            Cause::DiskFull | Cause::NoMemory | Cause::GuardianLost => Self { profile: None, tenant: None },
            Cause::CliMissing | Cause::ProfileUnfit => Self { profile, tenant: None },
            Cause::KeyRejected => Self { profile, tenant },
        }
    }
}

/// An extent that is degraded.
struct Degraded {
    report: Degradation,
    /// The end of the pause.
    next: Instant,
    /// Has the one permit to try. Closed when the extent is healthy again.
    turns: Arc<Semaphore>,
}

/// The permit to try although an extent is degraded. Dropping it leaves the try to the next name.
pub(crate) struct Try {
    extent: Extent,
    cause: Cause,
    _permit: OwnedSemaphorePermit,
}

/// A session that a cause holds back.
pub(crate) struct Held {
    /// The cause.
    pub(crate) cause: Cause,
    extent: Extent,
    turns: Arc<Semaphore>,
}

/// The health of a node: the machine of each extent that is degraded.
pub(crate) struct NodeHealth {
    degraded: Mutex<HashMap<Extent, Degraded>>,
}

impl NodeHealth {
    pub(crate) fn new() -> Self {
        Self { degraded: Mutex::default() }
    }

    pub(crate) fn is_healthy(&self) -> bool {
        locked(&self.degraded).is_empty()
    }

    /// Lets a session start, or begin a turn, perhaps as a try. A session that is held back gives its tries up, so that it holds none
    /// while it waits for another.
    pub(crate) fn admit(&self, tries: &mut Vec<Try>, profile: &str, tenant: &Tenant) -> Result<(), Held> {
        let degraded = locked(&self.degraded);
        if degraded.is_empty() {
            return Ok(());
        }
        for extent in Extent::all(profile, tenant) {
            let Some(entry) = degraded.get(&extent) else { continue };
            if tries.iter().any(|held| held.extent == extent) {
                continue;
            }
            let permit =
                if Instant::now() < entry.next { None } else { entry.turns.clone().try_acquire_owned().ok() };
            let cause = entry.report.cause;
            let Some(permit) = permit else {
                tries.clear();
                return Err(Held { cause, extent, turns: entry.turns.clone() });
            };
            tries.push(Try { extent, cause, _permit: permit });
        }
        Ok(())
    }

    /// The cause that holds a session back.
    pub(crate) fn cause(&self, profile: &str, tenant: &Tenant) -> Option<Cause> {
        let degraded = locked(&self.degraded);
        Extent::all(profile, tenant)
            .iter()
            .find_map(|extent| degraded.get(extent))
            .map(|entry| entry.report.cause)
    }

    /// True if the sessions of all these profiles are held back. A lone node counts as ready when the pause is over and no session tries: it
    /// has to get a prompt to try. Another node with `has_peers` gets the prompts that its peers accept.
    #[cfg(feature = "axum")]
    pub(crate) fn holds_back<'a>(
        &self,
        mut profiles: impl Iterator<Item = &'a String>,
        has_peers: bool,
    ) -> bool {
        let degraded = locked(&self.degraded);
        let now = Instant::now();
        let is_held = |profile| {
            let entry = degraded.get(&Extent { profile, tenant: None });
            entry.is_some_and(|entry| has_peers || now < entry.next || entry.turns.available_permits() == 0)
        };
        !degraded.is_empty() && (is_held(None) || profiles.all(|profile| is_held(Some(profile.clone()))))
    }

    /// True if a live session must not begin a turn: its tenant's key was rejected, and the session does not hold the try. Other causes do
    /// not affect live sessions.
    pub(crate) fn rejects(&self, tries: &[Try], profile: &str, tenant: &Tenant) -> bool {
        let extent = Extent::of(Cause::KeyRejected, Some(profile.to_owned()), Some(tenant.clone()));
        locked(&self.degraded).contains_key(&extent) && !tries.iter().any(|held| held.extent == extent)
    }

    /// Waits until the session may try. `None`: its extent is healthy again.
    pub(crate) async fn turn(&self, held: Held) -> Option<Try> {
        let Held { cause, extent, turns } = held;
        // An error: the semaphore is closed.
        let permit = turns.acquire_owned().await.ok()?;
        let next = locked(&self.degraded).get(&extent).map(|entry| entry.next)?;
        // Only the holder of the permit changes the end of the pause.
        sleep_until(next).await;
        Some(Try { extent, cause, _permit: permit })
    }

    /// A session has failed by a cause. Returns the event if the extent is degraded from now on, or by another cause than before. `None`
    /// within: the extent was degraded already. An error: too many extents are degraded, so no name queues for this one.
    pub(crate) fn failed(
        &self,
        failed: Degradation,
        tries: &mut Vec<Try>,
        limits: &FleetLimits,
    ) -> Result<Option<FleetEvent>, TooMany> {
        let extent = Extent::of(failed.cause, failed.profile.clone(), failed.tenant.clone());
        let failed = Degradation { profile: extent.profile.clone(), tenant: extent.tenant.clone(), ..failed };
        let has_tried = tries.iter().any(|held| held.extent == extent);
        let mut degraded = locked(&self.degraded);
        let event = FleetEvent::Degraded {
            cause: failed.cause,
            profile: failed.profile.clone(),
            tenant: failed.tenant.clone(),
            why: failed.why.clone(),
        };
        let room = degraded.len() < EXTENTS;
        let told = match degraded.get_mut(&extent) {
            Some(entry) => {
                let is_other = has_tried && entry.report.cause != failed.cause;
                if is_other {
                    entry.report = Degradation { tries: entry.report.tries, ..failed };
                }
                if has_tried {
                    entry.report.tries = entry.report.tries.saturating_add(1);
                    entry.next = Instant::now() + limits.pause(entry.report.tries);
                }
                is_other.then_some(event)
            }
            None if room => {
                let (next, turns) = (Instant::now() + limits.pause(1), Arc::new(Semaphore::new(1)));
                degraded.insert(extent, Degraded { report: failed, next, turns });
                Some(event)
            }
            None => {
                tries.clear();
                return Err(TooMany);
            }
        };
        // Drop the tries last, so that the next name sees the new pause.
        tries.clear();
        Ok(told)
    }

    /// A session is up, or with `by_turn` the model has answered it: the extents of its tries are healthy again. Returns the events.
    pub(crate) fn passed(&self, tries: &mut Vec<Try>, by_turn: bool) -> Vec<FleetEvent> {
        let mut degraded = locked(&self.degraded);
        // A CLI starts with any key.
        let passed = tries.extract_if(.., |held| by_turn || held.cause != Cause::KeyRejected);
        let mended = passed.filter_map(|held| {
            let Degraded { report, turns, .. } = degraded.remove(&held.extent)?;
            turns.close();
            Some(FleetEvent::Mended { cause: report.cause, profile: report.profile, tenant: report.tenant })
        });
        mended.collect()
    }

    /// The health now.
    pub(crate) fn report(&self) -> Health {
        let mut causes: Vec<_> = locked(&self.degraded).values().map(|entry| entry.report.clone()).collect();
        if causes.is_empty() {
            return Health::Healthy;
        }
        causes.sort_by(|a, b| (a.since, &a.profile, &a.tenant).cmp(&(b.since, &b.profile, &b.tenant)));
        Health::Degraded { causes }
    }
}

/// The node already tracks the maximum of degraded extents.
#[derive(Debug)]
pub(crate) struct TooMany;

#[cfg(test)]
mod tests;
