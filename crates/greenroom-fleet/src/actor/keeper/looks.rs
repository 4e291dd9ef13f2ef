//! The duty to wake names: looks at names that can run.
//!
//! A look is at the names that were hinted at, or at all names. A tenant that has no money for a turn is left out until its next period,
//! unless money is set aside for its running turns: some of it may come back, so each look asks about the tenant.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::quotas::QuotaWatch;
use super::{LOOK, NextMoment, SECOND, SendToName, WakeNames};
use crate::actor::cell::StageKind;
use crate::actor::context::FleetShared;
use crate::actor::name::NameMessage;
use crate::backend::Requests;
use crate::error::{BackendError, BackendErrorKind};
use crate::id::{Name, Tenant, Timestamp};
use crate::lock::locked;
use crate::request::WaitingPage;

/// Names that are remembered between two looks. With more of them the next look is at all names.
const NAMES: usize = 256;
/// Names that a look asks for in one request.
const LOOK_AT: usize = 256;
/// Profiles of other nodes that are logged.
const OTHER_PROFILES: usize = 64;

/// The looks of a keeper.
pub(super) struct Looks {
    shared: Arc<FleetShared>,
    wake: WakeNames,
    send: SendToName,
    quotas: Arc<QuotaWatch>,
    known: Mutex<Known>,
}

/// The knowledge of a keeper between two looks.
#[derive(Default)]
struct Known {
    /// Names for which something may wait.
    hinted: HashSet<Name>,
    /// Names are missing among those.
    is_missed: bool,
    /// The last look at all names; `None` before the first.
    last: Option<Instant>,
    /// The next moment at which a name can run that cannot now: a reminder's, or the first period in which a tenant has money again.
    due: Option<Timestamp>,
    /// Tenants that had no money for a turn.
    poor: HashMap<Tenant, PoorTenant>,
    /// Profiles of other nodes that were logged.
    other_profiles: HashSet<String>,
}

/// A tenant that has no money for a turn.
struct PoorTenant {
    /// The start of the budget period in which the tenant has no money.
    period: Timestamp,
    /// The end of that period.
    until: Timestamp,
    /// Money is set aside for turns that run, and some of it may come back.
    is_reserved: bool,
}

impl Known {
    /// The time until the next look at all names. For names that are missing there is one each second at most: looks must not follow
    /// one another without a pause.
    fn pause(&self, now: Timestamp) -> Duration {
        let Some(last) = self.last else { return Duration::ZERO };
        let pause = if self.is_missed { SECOND } else { LOOK }.saturating_sub(last.elapsed());
        self.due.map_or(pause, |due| pause.min(due.since(now)))
    }
}

impl Looks {
    pub(super) fn new(
        shared: Arc<FleetShared>,
        wake: WakeNames,
        send: SendToName,
        quotas: Arc<QuotaWatch>,
    ) -> Self {
        Self { shared, wake, send, quotas, known: Mutex::default() }
    }

    /// Notes that the quotas of these tenants have changed.
    pub(super) fn requote(&self, tenants: &[Tenant]) {
        let mut known = locked(&self.known);
        known.poor.retain(|tenant, _| !tenants.contains(tenant));
    }

    /// Notes that something may wait for a name; `None`: for any name.
    pub(super) fn hint(&self, name: Option<Name>) {
        let mut known = locked(&self.known);
        match name {
            Some(name) if known.hinted.len() < NAMES => drop(known.hinted.insert(name)),
            _ => known.is_missed = true,
        }
    }

    pub(super) async fn step(&self) -> NextMoment {
        let shared = &self.shared;
        if shared.draining.is_cancelled() {
            return Ok(Instant::now() + LOOK);
        }
        let now = shared.backend.now();
        let (hinted, is_of_all) = {
            let mut known = locked(&self.known);
            let is_of_all = known.pause(now).is_zero();
            known.is_missed &= !is_of_all;
            known.poor.retain(|_, poor| !poor.is_reserved && poor.period <= now && now < poor.until);
            (std::mem::take(&mut known.hinted), is_of_all)
        };
        let of = (!is_of_all).then(|| hinted.into_iter().collect());
        let look = async {
            self.quotas.lift(shared, is_of_all).await?;
            self.look(of, now).await?;
            shared.backend.next_due(now).await
        };
        let reminder = look.await.inspect_err(|_| locked(&self.known).is_missed = true)?;
        let mut known = locked(&self.known);
        known.due = known.poor.values().map(|poor| poor.until).chain(reminder).min();
        if is_of_all {
            known.last = Some(Instant::now());
        }
        Ok(Instant::now() + known.pause(shared.backend.now()))
    }

    /// Wakes those of the names that can run, or of all names, each tenant's in the order in which their prompts were accepted, but
    /// none of a tenant that has no money for a turn. Tells the other names that are awake here: they may wait for a prompt that another
    /// node runs.
    async fn look(&self, of: Option<Vec<Name>>, now: Timestamp) -> Result<(), BackendError> {
        if of.as_ref().is_some_and(Vec::is_empty) {
            return Ok(());
        }
        let shared = &self.shared;
        let profiles = shared.has_peers().then(|| shared.profiles.keys().cloned().collect());
        let mut others: HashSet<Name> = {
            let awake = shared.awake();
            let waits = |name: &&Name| awake.get(*name).is_some_and(|cell| cell.is_in(StageKind::Waiting));
            match &of {
                Some(names) => names.iter().filter(waits).cloned().collect(),
                None => awake.keys().filter(waits).cloned().collect(),
            }
        };
        let without = locked(&self.known).poor.keys().cloned().collect();
        let mut page = WaitingPage { node: shared.node, of, without, profiles, after: None, limit: LOOK_AT };
        // The tenants that were asked about.
        let mut asked = HashSet::new();
        loop {
            let mut waiting = shared.backend.waiting(page.clone()).await?;
            for tenant in waiting.prompts.iter().map(|prompt| prompt.name.tenant()) {
                if asked.insert(tenant.clone())
                    && let Some(poor) = self.poor(tenant, now).await?
                {
                    page.without.push(tenant.clone());
                    locked(&self.known).poor.insert(tenant.clone(), poor);
                }
            }
            {
                let mut known = locked(&self.known);
                if let Some(profile) = waiting.other_profile
                    && known.other_profiles.len() < OTHER_PROFILES
                    && known.other_profiles.insert(profile.clone())
                {
                    tracing::warn!(
                        profile,
                        "prompts wait for sessions of a profile that this node does not have: other nodes run them, if one has it"
                    );
                }
                waiting.prompts.retain(|prompt| !known.poor.contains_key(prompt.name.tenant()));
            }
            for prompt in &waiting.prompts {
                others.remove(&prompt.name);
            }
            if !waiting.prompts.is_empty() {
                (self.wake)(waiting.prompts);
            }
            let Some(next) = waiting.next else {
                others.into_iter().for_each(|name| (self.send)(name, NameMessage::Wake(None)));
                return Ok(());
            };
            page.after = Some(next);
        }
    }

    /// Asks about a tenant. `None`: it has money for a turn. A tenant whose account cannot be read has none in this look.
    async fn poor(&self, tenant: &Tenant, now: Timestamp) -> Result<Option<PoorTenant>, BackendError> {
        let Some(budget) = self.shared.quotas.of(tenant).budget else { return Ok(None) };
        let period = budget.period_at(now);
        let until = period.after(budget.period);
        let account = match self.shared.backend.tenant(tenant.clone()).await {
            Err(error) if error.kind() == BackendErrorKind::Damaged => {
                tracing::error!(tenant = tenant.as_str(), %error, "a tenant is passed over: its account cannot be read");
                return Ok(Some(PoorTenant { period, until, is_reserved: true }));
            }
            account => account?,
        };
        let is_reserved = account.reserved > 0;
        Ok((!budget.has_room(&account, now)).then_some(PoorTenant { period, until, is_reserved }))
    }
}
