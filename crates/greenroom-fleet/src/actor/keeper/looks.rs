//! The duty to wake names: looks at names that can run.
//!
//! A look is at the names that were hinted at, or at all names. A tenant that has no money for a turn is left out until its next period,
//! unless money is set aside for its running turns: some of it may come back, so each look asks about the tenant.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::steps::KeeperContext;
use super::{Duty, LOOK, NextMoment, SECOND, locked};
use crate::actor::cell::NameCell;
use crate::actor::context::has_room;
use crate::actor::name::NameMessage;
use crate::backend::Requests;
use crate::error::BackendError;
use crate::id::{Name, Timestamp};
use crate::record::PromptRecord;
use crate::request::WaitingPage;

/// Names that are remembered between two looks. With more of them the next look is at all names.
const NAMES: usize = 256;
/// Names that a look asks for in one request.
const LOOK_AT: usize = 256;
/// Profiles of other nodes that are logged.
const OTHER_PROFILES: usize = 64;

/// The looks of a keeper.
#[derive(Default)]
pub(super) struct Looks {
    /// Names for which something may wait.
    hinted: HashSet<Name>,
    /// Names are missing among those.
    is_missed: bool,
    /// The last look at all names; `None` before the first.
    last: Option<Instant>,
    /// The next moment at which a name can run that cannot now: a reminder's, or the first period in which a tenant has money again.
    due: Option<Timestamp>,
    /// Tenants that had no money for a turn.
    poor: HashMap<String, PoorTenant>,
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

impl Looks {
    /// The time until the next look at all names. For names that are missing there is one each second at most: looks must not follow
    /// one another without a pause.
    fn pause(&self, now: Timestamp) -> Duration {
        let Some(last) = self.last else { return Duration::ZERO };
        let pause = if self.is_missed { SECOND } else { LOOK }.saturating_sub(last.elapsed());
        self.due.map_or(pause, |due| pause.min(due.since(now)))
    }
}

impl KeeperContext {
    /// Notes that something may wait for a name.
    pub(super) fn hint_name(&self, name: Name) {
        let mut looks = locked(&self.looks);
        if looks.hinted.len() < NAMES {
            looks.hinted.insert(name);
        } else {
            looks.is_missed = true;
        }
        self.hint(Duty::Wake);
    }

    /// Notes that something may wait for any name.
    pub(super) fn hint_all_names(&self) {
        locked(&self.looks).is_missed = true;
        self.hint(Duty::Wake);
    }

    pub(super) async fn wake_names(&self) -> NextMoment {
        if self.shared.draining.is_cancelled() {
            return Ok(Instant::now() + LOOK);
        }
        let backend = &self.shared.backend;
        let now = backend.now();
        let (hinted, is_of_all) = {
            let mut looks = locked(&self.looks);
            let is_of_all = looks.pause(now).is_zero();
            looks.is_missed &= !is_of_all;
            looks.poor.retain(|_, poor| !poor.is_reserved && poor.period <= now && now < poor.until);
            (std::mem::take(&mut looks.hinted), is_of_all)
        };
        let of = (!is_of_all).then(|| hinted.into_iter().collect());
        let look = async {
            self.look(of, now).await?;
            backend.next_due(now).await
        };
        let reminder = look.await.inspect_err(|_| locked(&self.looks).is_missed = true)?;
        let mut looks = locked(&self.looks);
        looks.due = looks.poor.values().map(|poor| poor.until).chain(reminder).min();
        if is_of_all {
            looks.last = Some(Instant::now());
        }
        Ok(Instant::now() + looks.pause(backend.now()))
    }

    /// Wakes those of the names that can run, or of all names, each tenant's in the order in which their prompts were accepted, but
    /// none of a tenant that has no money for a turn. Tells the other names that are awake here: they may wait for a prompt that another
    /// node runs.
    async fn look(&self, of: Option<Vec<Name>>, now: Timestamp) -> Result<(), BackendError> {
        if of.as_ref().is_some_and(Vec::is_empty) {
            return Ok(());
        }
        let (backend, node) = (&self.shared.backend, self.shared.node);
        let profiles = self.shared.has_peers().then(|| self.shared.profiles.keys().cloned().collect());
        let mut others: HashSet<Name> = {
            let waits =
                |cell: &Arc<NameCell>| cell.holdings().stage.is_some_and(|(stage, _)| stage == "waiting");
            let awake = self.shared.awake();
            match &of {
                Some(names) => {
                    names.iter().filter(|name| awake.get(*name).is_some_and(waits)).cloned().collect()
                }
                None => awake.iter().filter(|(_, cell)| waits(cell)).map(|(name, _)| name.clone()).collect(),
            }
        };
        let without = locked(&self.looks).poor.keys().cloned().collect();
        let mut page = WaitingPage { node, of, without, profiles, after: None, limit: LOOK_AT };
        // The tenants that were asked about.
        let mut known = HashSet::new();
        loop {
            let mut waiting = backend.waiting(page.clone()).await?;
            self.note_other_profile(waiting.other_profile);
            for PromptRecord { tenant, .. } in &waiting.prompts {
                if known.insert(tenant.clone())
                    && let Some(poor) = self.poor(tenant, now).await?
                {
                    page.without.push(tenant.clone());
                    locked(&self.looks).poor.insert(tenant.clone(), poor);
                }
            }
            {
                let looks = locked(&self.looks);
                waiting.prompts.retain(|prompt| !looks.poor.contains_key(&prompt.tenant));
            }
            for prompt in &waiting.prompts {
                others.remove(&prompt.name);
            }
            if !waiting.prompts.is_empty() {
                (self.wake)(waiting.prompts);
            }
            let Some(next) = waiting.next else {
                others.into_iter().for_each(|name| (self.send)(name, NameMessage::NotFound));
                return Ok(());
            };
            page.after = Some(next);
        }
    }

    /// Logs once that names of a profile are left to the other nodes.
    fn note_other_profile(&self, profile: Option<String>) {
        let Some(profile) = profile else { return };
        let others = &mut locked(&self.looks).other_profiles;
        if others.len() < OTHER_PROFILES && others.insert(profile.clone()) {
            tracing::warn!(
                profile,
                "prompts wait for sessions of a profile that this node does not have: other nodes run them, if one has it"
            );
        }
    }

    /// Asks about a tenant. `None`: it has money for a turn.
    async fn poor(&self, tenant: &str, now: Timestamp) -> Result<Option<PoorTenant>, BackendError> {
        let Some(budget) = self.shared.quota(tenant).budget else { return Ok(None) };
        let Some(reserve) = self.shared.reserve(tenant, now) else { return Ok(None) };
        let account = self.shared.backend.tenant(tenant.to_owned()).await?;
        let (period, is_reserved) = (reserve.period, account.reserved > 0);
        let until = period.after(budget.period);
        Ok((!has_room(&account, &reserve, now)).then_some(PoorTenant { period, until, is_reserved }))
    }
}
