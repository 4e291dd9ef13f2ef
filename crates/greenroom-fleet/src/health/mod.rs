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
//! Each [`Extent`] has its own machine: the node, a profile, a tenant with a profile, and a credential. The node's machine is for the disk,
//! the memory and the guardian, a profile's for the CLI. A login that is missing at the start of a session holds back its tenant's sessions
//! with the profile.
//!
//! While an extent is degraded, its names queue for the one [`Try`], without a slot and without owning the name, so another node can run
//! it. The try begins after a pause of [`FleetLimits::backoff`], which doubles up to [`FleetLimits::backoff_max`]. A name that is dropped
//! with the try leaves it to the next one. A key is tried by a turn, because a CLI starts with any key.
//!
//! # Credentials
//!
//! A credential that the API rejects is held on all nodes: a row of the backend ([`Hold`]) decides, and the machine of the credential copies
//! the row. The row has the end of the pause on the backend's clock, and the prompt that tries. A failure and a pass change the row:
//!
//! ```text
//!  reject, end_try, release_hold ──► the row ── a hint, a begin that it refuses, or five seconds ──► `learn`: the machine
//! ```

mod extent;
mod report;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep_until};

use crate::event::FleetEvent;
use crate::id::{NodeId, Timestamp};
use crate::limits::FleetLimits;
use crate::lock::locked;
use crate::record::{Cause, Credential, Hold, Trying};
use extent::Extent;
pub(crate) use extent::Membership;
pub use report::{Degradation, Health};

/// The pause of a node before it tries a credential that another node tries: that node is lost, perhaps.
const ELSEWHERE: Duration = Duration::from_secs(60);

/// The time for which a session whose prompt was rejected leaves a try to others.
const OTHERS: Duration = Duration::from_millis(500);

/// Extents that are degraded at a time, without credentials. Failures in further ones count as the machine's, too: each name backs off by itself.
const EXTENTS: usize = 1024;

/// An extent that is degraded.
struct Degraded {
    report: Degradation,
    /// The end of the pause.
    next: watch::Sender<Instant>,
    /// Has the one permit to try. Closed when the extent is healthy again.
    turns: Arc<Semaphore>,
    /// The row of a credential.
    hold: Option<Hold>,
}

impl Degraded {
    fn new(report: Degradation, next: Instant, hold: Option<Hold>) -> Self {
        Self { report, next: watch::Sender::new(next), turns: Arc::new(Semaphore::new(1)), hold }
    }

    /// The cause, as it is told.
    fn event(&self) -> FleetEvent {
        let Degradation { cause, profile, tenant, credential, until, why, .. } = self.report.clone();
        FleetEvent::Degraded { cause, profile, tenant, credential, until, why }
    }

    /// The extent is healthy again.
    fn mended(self) -> FleetEvent {
        self.turns.close();
        let Degradation { cause, profile, tenant, credential, .. } = self.report;
        FleetEvent::Mended { cause, profile, tenant, credential }
    }
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
    next: watch::Receiver<Instant>,
    extent: Extent,
    turns: Arc<Semaphore>,
}

impl Held {
    /// The credential that is held.
    pub(crate) fn credential(&self) -> Option<Credential> {
        match &self.extent {
            Extent::Credential(credential) => Some(credential.clone()),
            _ => None,
        }
    }
}

/// The health of a node: the machine of each extent that is degraded.
pub(crate) struct NodeHealth {
    degraded: Mutex<HashMap<Extent, Degraded>>,
    /// Counts changes of holds.
    holds: watch::Sender<u64>,
}

impl NodeHealth {
    pub(crate) fn new() -> Self {
        Self { degraded: Mutex::default(), holds: watch::Sender::new(0) }
    }

    pub(crate) fn is_healthy(&self) -> bool {
        locked(&self.degraded).is_empty()
    }

    /// Lets a session start, and begin its first turn, perhaps as a try. A session that is held back gives its tries up, so that it
    /// holds none while it waits for another.
    pub(crate) fn admit(&self, tries: &mut Vec<Try>, of: &Membership) -> Result<(), Held> {
        self.admit_to(Extent::all(of), tries)
    }

    /// Lets a live session begin a turn, in the same way.
    pub(crate) fn admit_turn(&self, tries: &mut Vec<Try>, of: &Membership) -> Result<(), Held> {
        self.admit_to(Extent::of_turn(of), tries)
    }

    fn admit_to<const N: usize>(&self, extents: [Extent; N], tries: &mut Vec<Try>) -> Result<(), Held> {
        let degraded = locked(&self.degraded);
        if degraded.is_empty() {
            return Ok(());
        }
        for extent in extents {
            let Some(entry) = degraded.get(&extent) else { continue };
            if tries.iter().any(|held| held.extent == extent) {
                continue;
            }
            let permit = if Instant::now() < *entry.next.borrow() {
                None
            } else {
                entry.turns.clone().try_acquire_owned().ok()
            };
            let cause = entry.report.cause;
            let Some(permit) = permit else {
                tries.clear();
                let (next, turns) = (entry.next.subscribe(), entry.turns.clone());
                return Err(Held { cause, next, extent, turns });
            };
            tries.push(Try { extent, cause, _permit: permit });
        }
        Ok(())
    }

    /// The cause that holds a session back.
    pub(crate) fn cause(&self, of: &Membership) -> Option<Cause> {
        let degraded = locked(&self.degraded);
        Extent::all(of).iter().find_map(|extent| degraded.get(extent)).map(|entry| entry.report.cause)
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
        let is_held = |extent| {
            let waits = |entry: &Degraded| now < *entry.next.borrow() || entry.turns.available_permits() == 0;
            degraded.get(&extent).is_some_and(|entry| has_peers || waits(entry))
        };
        !degraded.is_empty()
            && (is_held(Extent::Node) || profiles.all(|profile| is_held(Extent::Profile(profile.clone()))))
    }

    /// The cause for which a live session must not begin a turn: its credential is held, or the login of its tenant was rejected, and the
    /// session does not hold the try. Other causes do not affect live sessions.
    pub(crate) fn rejects(&self, tries: &[Try], of: &Membership) -> Option<Cause> {
        let degraded = locked(&self.degraded);
        let mut extents = Extent::of_turn(of).into_iter();
        let held = extents
            .find(|extent| degraded.contains_key(extent) && !tries.iter().any(|held| held.extent == *extent));
        held.and_then(|extent| Some(degraded.get(&extent)?.report.cause))
    }

    /// The hold of a credential, as this node knows it.
    pub(crate) fn hold(&self, credential: &Credential) -> Option<Hold> {
        locked(&self.degraded).get(&Extent::Credential(credential.clone()))?.hold.clone()
    }

    /// Tells of changes of holds. Read [`hold`](Self::hold) after each.
    pub(crate) fn holds(&self) -> watch::Receiver<u64> {
        self.holds.subscribe()
    }

    /// Waits until the session may try. `None`: its extent is healthy again. A session whose prompt `was_rejected` lets the others try
    /// first: perhaps the API rejects this prompt alone.
    pub(crate) async fn turn(&self, held: Held, was_rejected: bool) -> Option<Try> {
        let Held { cause, mut next, extent, turns } = held;
        loop {
            if was_rejected {
                pause_over(&mut next, OTHERS).await?;
            }
            // An error: the semaphore is closed.
            let permit = turns.clone().acquire_owned().await.ok()?;
            // Another session may have tried meanwhile.
            if was_rejected && Instant::now() < *next.borrow() {
                continue;
            }
            pause_over(&mut next, Duration::ZERO).await?;
            return Some(Try { extent, cause, _permit: permit });
        }
    }

    /// A session could not be started by a cause. Returns the event if the extent is degraded from now on, or by another cause than before.
    /// `None` within: the extent was degraded already. An error: too many extents are degraded, so no name queues for this one.
    pub(crate) fn failed(
        &self,
        failed: Failure,
        tries: &mut Vec<Try>,
        limits: &FleetLimits,
    ) -> Result<Option<FleetEvent>, TooMany> {
        let Failure { cause, of, why, since } = failed;
        let extent = Extent::of(cause, &of);
        let (profile, tenant) = (extent.profile(), extent.tenant());
        let report =
            Degradation { cause, profile, tenant, credential: None, why, since, until: None, tries: 1 };
        let has_tried = tries.iter().any(|held| held.extent == extent);
        let mut degraded = locked(&self.degraded);
        let room = degraded.keys().filter(|extent| !extent.is_credential()).count() < EXTENTS;
        let told = match degraded.get_mut(&extent) {
            Some(entry) => {
                let is_other = has_tried && entry.report.cause != cause;
                if is_other {
                    entry.report = Degradation { tries: entry.report.tries, ..report };
                }
                if has_tried {
                    entry.report.tries = entry.report.tries.saturating_add(1);
                    entry.next.send_replace(Instant::now() + limits.pause(entry.report.tries));
                }
                is_other.then(|| entry.event())
            }
            None if room => {
                let entry = Degraded::new(report, Instant::now() + limits.pause(1), None);
                let event = entry.event();
                degraded.insert(extent, entry);
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

    /// A session is up, or with `by_turn` the model has answered it: the extents of its tries are healthy again. Returns the events. A
    /// credential is held until its row is gone.
    pub(crate) fn passed(&self, tries: &mut Vec<Try>, by_turn: bool) -> Vec<FleetEvent> {
        let mut degraded = locked(&self.degraded);
        // A CLI starts with any key.
        let has_passed =
            |held: &mut Try| !held.extent.is_credential() && (by_turn || held.cause != Cause::KeyRejected);
        let passed = tries.extract_if(.., has_passed);
        passed.filter_map(|held| degraded.remove(&held.extent).map(Degraded::mended)).collect()
    }

    /// Copies the rows of credentials that are held: of all, or of one. Returns the events.
    pub(crate) fn learn(
        &self,
        of: Option<&Credential>,
        holds: Vec<Hold>,
        now: Timestamp,
        node: NodeId,
    ) -> Vec<FleetEvent> {
        let mut degraded = locked(&self.degraded);
        let (mut events, mut changes) = (Vec::new(), 0);
        let is_meant = |extent: &Extent| match (extent, of) {
            (Extent::Credential(credential), Some(of)) => credential == of,
            (extent, _) => extent.is_credential(),
        };
        let is_held: HashSet<_> = holds.iter().map(|hold| hold.credential.clone()).collect();
        let is_over = |extent: &Extent, _: &mut Degraded| {
            is_meant(extent) && !matches!(extent, Extent::Credential(of) if is_held.contains(of))
        };
        events.extend(degraded.extract_if(is_over).map(|(_, entry)| entry.mended()));
        for hold in holds {
            let extent = Extent::Credential(hold.credential.clone());
            // Another name of this node that tries has the permit.
            let tries_here = degraded.get(&extent).is_some_and(|entry| entry.turns.available_permits() == 0);
            let is_here = |trying: &Trying| trying.node == node && tries_here;
            let is_elsewhere = hold.trying.as_ref().is_some_and(|trying| !is_here(trying));
            let pause = hold.until.since(now);
            let next = Instant::now() + if is_elsewhere { pause.max(ELSEWHERE) } else { pause };
            let report = Degradation {
                cause: hold.cause,
                profile: extent.profile(),
                tenant: extent.tenant(),
                credential: Some(hold.credential.clone()),
                why: hold.why.clone(),
                since: hold.since,
                until: Some(hold.until),
                tries: hold.tries,
            };
            let Some(entry) = degraded.get_mut(&extent) else {
                let entry = Degraded::new(report, next, Some(hold));
                events.push(entry.event());
                degraded.insert(extent, entry);
                changes += 1;
                continue;
            };
            let known = entry.hold.replace(hold.clone());
            // Only a look at one credential, after a begin that was refused, may find it as before and pause again.
            let Some(known) = known.filter(|known| *known != hold || of.is_some()) else { continue };
            entry.report = report;
            entry.next.send_replace(next);
            changes += 1;
            if (known.cause, known.resets_at) != (hold.cause, hold.resets_at) {
                events.push(entry.event());
            }
        }
        drop(degraded);
        if changes > 0 || !events.is_empty() {
            self.holds.send_modify(|count| *count += 1);
        }
        events
    }

    /// The health now.
    pub(crate) fn report(&self) -> Health {
        let mut causes: Vec<_> = locked(&self.degraded).values().map(|entry| entry.report.clone()).collect();
        if causes.is_empty() {
            return Health::Healthy;
        }
        let order =
            |of: &Degradation| (of.since, of.profile.clone(), of.tenant.clone(), of.credential.clone());
        causes.sort_by_cached_key(order);
        Health::Degraded { causes }
    }
}

/// Waits until some time after the end of a pause. `None`: the extent is healthy again.
async fn pause_over(next: &mut watch::Receiver<Instant>, longer: Duration) -> Option<()> {
    loop {
        let at = *next.borrow_and_update() + longer;
        tokio::select! {
            biased;
            // An error: the extent is healthy again.
            changed = next.changed() => changed.ok()?,
            () = sleep_until(at) => return Some(()),
        }
    }
}

/// A session that could not be started by a cause.
pub(crate) struct Failure {
    pub(crate) cause: Cause,
    pub(crate) of: Membership,
    pub(crate) why: String,
    pub(crate) since: Timestamp,
}

/// The node already tracks the maximum of degraded extents.
#[derive(Debug)]
pub(crate) struct TooMany;

#[cfg(test)]
mod tests;
