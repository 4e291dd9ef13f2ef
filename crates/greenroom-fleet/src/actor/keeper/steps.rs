//! The steps of the keeper's duties. Each asks the backend, and says when the duty's next moment is.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::commands::Commands;
use super::duty::{Duty, LOOK, NextMoment, SECOND, locked};
use super::hints::HintedNames;
use super::lease::renew;
use super::watch::NodeWatch;
use super::{OwnedNames, SendToName, WakeNames};
use crate::actor::context::{FleetShared, has_room, shown};
use crate::actor::deletion;
use crate::actor::name::NameMessage;
use crate::backend::Requests;
use crate::error::{BackendError, FleetError};
use crate::id::{AttemptId, Name, Term, Timestamp};
use crate::record::PromptRecord;
use crate::request::{Owned, Ownership, Page, WaitingPage};

/// Prompts or questions that expire in one request, and requests in one step.
const EXPIRE: usize = 256;
const EXPIRE_ROUNDS: usize = 8;
/// Names that a look asks for in one request.
const LOOK_AT: usize = 256;
/// Profiles of other nodes that are logged.
const OTHER_PROFILES: usize = 64;
/// Outcomes that are forgotten in one request.
const FORGET: usize = 500;
/// Requests of a step that forget prompts.
const FORGETS: usize = 16;
/// The time for which commands are kept after their deadline, if the outcomes are kept for so long.
const COMMANDS: Duration = Duration::from_secs(3600);
/// Deletions of one step.
const DELETE: usize = 16;
const MINUTE: Duration = Duration::from_secs(60);

/// The things that all steps share. A keeper that is started again has new ones.
pub(crate) struct KeeperContext {
    pub(super) shared: Arc<FleetShared>,
    wake: WakeNames,
    owned: OwnedNames,
    send: SendToName,
    pub(super) commands: Commands,
    pub(super) hinted: HintedNames,
    looks: Mutex<Looks>,
    stuck: Mutex<HashMap<Name, StuckDeletion>>,
    strangers: Mutex<HashSet<(Name, Term)>>,
    /// Profiles of other nodes that were logged.
    other_profiles: Mutex<HashSet<String>>,
    watch: NodeWatch,
}

/// Looks at all prompts that wait.
#[derive(Default)]
struct Looks {
    /// The last look; `None` before the first.
    last: Option<Instant>,
    /// The next moment at which a name can run that cannot now.
    next_due: Option<Timestamp>,
    /// Tenants that had no money for a turn.
    poor: Vec<PoorTenant>,
}

/// A tenant that has no money for a turn.
#[derive(Clone)]
struct PoorTenant {
    tenant: String,
    /// The start of the budget period in which the tenant has no money.
    period: Timestamp,
    /// The end of that period.
    until: Timestamp,
    /// Money is set aside for turns that run, and some of it may come back.
    is_reserved: bool,
}

impl PoorTenant {
    /// True while nothing gives the tenant money, so the backend need not be asked.
    fn stays_poor(&self, now: Timestamp) -> bool {
        !self.is_reserved && self.period <= now && now < self.until
    }
}

/// A name whose files cannot be removed.
#[derive(Clone, Copy)]
struct StuckDeletion {
    again: Instant,
    pause: Duration,
}

impl KeeperContext {
    pub(super) fn new(
        shared: Arc<FleetShared>,
        wake: WakeNames,
        owned: OwnedNames,
        send: SendToName,
    ) -> Self {
        let commands = Commands::default();
        let (hinted, looks, stuck) = (HintedNames::default(), Mutex::default(), Mutex::default());
        let (strangers, other_profiles, watch) = (Mutex::default(), Mutex::default(), NodeWatch::default());
        Self { shared, wake, owned, send, commands, hinted, looks, stuck, strangers, other_profiles, watch }
    }

    pub(super) async fn step(&self, duty: Duty) -> NextMoment {
        match duty {
            Duty::Renew => renew(&self.shared, &self.watch).await,
            Duty::Expire => self.expire().await,
            Duty::Wake => self.wake_names().await,
            Duty::Forget => self.forget().await,
            Duty::Delete => self.delete().await,
            Duty::Release => self.release().await,
            Duty::Watch => self.watch.look(&self.shared).await,
            Duty::Command => self.commands.carry_out(&self.shared, &self.send).await,
        }
    }

    /// A moment on the backend's clock, or the next look if that comes first.
    fn moment(&self, at: Option<Timestamp>) -> Instant {
        let wait = at.map_or(LOOK, |at| at.since(self.shared.backend.now()));
        Instant::now() + wait.min(LOOK)
    }

    async fn expire(&self) -> NextMoment {
        let backend = &self.shared.backend;
        for _ in 0..EXPIRE_ROUNDS {
            let prompts = backend.expire_prompts(EXPIRE).await?;
            let questions = backend.expire_questions(EXPIRE).await?;
            if prompts < EXPIRE && questions.len() < EXPIRE {
                return Ok(self.moment(backend.next_expiry().await?));
            }
        }
        Ok(Instant::now())
    }

    async fn wake_names(&self) -> NextMoment {
        let hinted = self.hinted.take();
        if self.shared.draining.is_cancelled() {
            return Ok(Instant::now() + LOOK);
        }
        let now = self.shared.backend.now();
        let (since_look, is_due) = {
            let looks = locked(&self.looks);
            let since_look = looks.last.map(|last| last.elapsed());
            (since_look, looks.next_due.is_some_and(|due| due <= now))
        };
        let passed = |pause| since_look.is_none_or(|since| since >= pause);
        // Names that are missing are looked for each second at most: looks must not follow one another without a pause.
        let looks = is_due || passed(LOOK) || (hinted.all && passed(SECOND));
        let step = if looks { self.look(now).await } else { self.look_at(hinted.names, now).await };
        if step.is_err() || (hinted.all && !looks) {
            self.hinted.lost();
        }
        let next = step?;
        if hinted.all && !looks {
            return Ok(next.min(Instant::now() + SECOND.saturating_sub(since_look.unwrap_or_default())));
        }
        Ok(next)
    }

    /// Wakes all names that can run.
    async fn look(&self, now: Timestamp) -> NextMoment {
        let poor = self.still_poor(now).await?;
        let poor = self.wake_names_of(None, poor, now).await?;
        locked(&self.looks).poor = poor;
        let next = self.next_due(now).await?;
        locked(&self.looks).last = Some(Instant::now());
        Ok(next)
    }

    /// Wakes those of the names that can run.
    async fn look_at(&self, names: HashSet<Name>, now: Timestamp) -> NextMoment {
        if !names.is_empty() {
            self.wake_names_of(Some(names.into_iter().collect()), Vec::new(), now).await?;
        }
        let next = self.next_due(now).await?;
        let since_look = locked(&self.looks).last.map(|last| last.elapsed()).unwrap_or_default();
        Ok(next.min(Instant::now() + LOOK.saturating_sub(since_look)))
    }

    /// Wakes names that can run, each tenant's in the order in which their prompts were accepted, but none of a tenant that has
    /// no money for a turn. Returns these tenants; `poor` are those that are known before. Tells the other names that are awake here:
    /// they may wait for a prompt that another node runs.
    async fn wake_names_of(
        &self,
        of: Option<Vec<Name>>,
        mut poor: Vec<PoorTenant>,
        now: Timestamp,
    ) -> Result<Vec<PoorTenant>, BackendError> {
        let (backend, node) = (&self.shared.backend, self.shared.node);
        let profiles = self.shared.has_peers().then(|| self.shared.profiles.keys().cloned().collect());
        let mut others: HashSet<Name> = match &of {
            Some(names) => names.iter().filter(|name| self.shared.is_awake(name)).cloned().collect(),
            None => locked(&self.shared.awake).clone(),
        };
        let without: Vec<String> = poor.iter().map(|poor| poor.tenant.clone()).collect();
        // The tenants that were asked about, and `true` for those with money for a turn.
        let mut can_pay: HashMap<String, bool> =
            without.iter().map(|tenant| (tenant.clone(), false)).collect();
        let mut page = WaitingPage { node, of, without, profiles, after: None, limit: LOOK_AT };
        loop {
            let mut waiting = backend.waiting(page.clone()).await?;
            self.note_other_profile(waiting.other_profile);
            for PromptRecord { tenant, .. } in &waiting.prompts {
                if can_pay.contains_key(tenant) {
                    continue;
                }
                let found = self.poor(tenant, now).await?;
                can_pay.insert(tenant.clone(), found.is_none());
                if let Some(found) = found {
                    page.without.push(tenant.clone());
                    poor.push(found);
                }
            }
            waiting.prompts.retain(|prompt| can_pay.get(&prompt.tenant).is_some_and(|can_pay| *can_pay));
            for prompt in &waiting.prompts {
                others.remove(&prompt.name);
            }
            self.wake(waiting.prompts);
            let Some(next) = waiting.next else {
                others.into_iter().for_each(|name| (self.send)(name, NameMessage::NotFound));
                return Ok(poor);
            };
            page.after = Some(next);
        }
    }

    /// Logs once that names of a profile are left to the other nodes.
    fn note_other_profile(&self, profile: Option<String>) {
        let Some(profile) = profile else { return };
        let mut others = locked(&self.other_profiles);
        if others.len() < OTHER_PROFILES && others.insert(profile.clone()) {
            tracing::warn!(
                profile,
                "prompts wait for sessions of a profile that this node does not have: other nodes run them, if one has it"
            );
        }
    }

    /// Tenants that had no money for a turn at the last look and have none now.
    async fn still_poor(&self, now: Timestamp) -> Result<Vec<PoorTenant>, BackendError> {
        let (mut still, poor) = (Vec::new(), locked(&self.looks).poor.clone());
        for tenant in poor {
            match tenant.stays_poor(now) {
                true => still.push(tenant),
                false => still.extend(self.poor(&tenant.tenant, now).await?),
            }
        }
        Ok(still)
    }

    /// A tenant, if it has no money for a turn.
    async fn poor(&self, tenant: &str, now: Timestamp) -> Result<Option<PoorTenant>, BackendError> {
        let Some(budget) = self.shared.quota(tenant).budget else { return Ok(None) };
        let Some(reserve) = self.shared.reserve(tenant, now) else { return Ok(None) };
        let account = self.shared.backend.tenant(tenant.to_owned()).await?;
        let (tenant, period) = (tenant.to_owned(), reserve.period);
        let (until, is_reserved) = (period.after(budget.period), account.reserved > 0);
        Ok((!has_room(&account, &reserve, now)).then_some(PoorTenant { tenant, period, until, is_reserved }))
    }

    /// The next moment at which a name can run that cannot now: a reminder's, or the first period in which a tenant has money
    /// again.
    async fn next_due(&self, now: Timestamp) -> NextMoment {
        let reminder = self.shared.backend.next_due(now).await?;
        let mut looks = locked(&self.looks);
        let periods = looks.poor.iter().map(|poor| poor.until);
        let next = periods.chain(reminder).min();
        looks.next_due = next;
        Ok(self.moment(next))
    }

    fn wake(&self, prompts: Vec<PromptRecord>) {
        if !prompts.is_empty() {
            (self.wake)(prompts);
        }
    }

    async fn forget(&self) -> NextMoment {
        let (backend, retention) = (&self.shared.backend, self.shared.limits.retention);
        let before = |time: Duration| {
            let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            Timestamp(backend.now().0.saturating_sub(millis))
        };
        let mut forgotten = 0;
        // A request does a bounded amount of work, so only 0 says that nothing is left.
        for _ in 0..FORGETS {
            match backend.forget(before(retention), FORGET).await? {
                0 => break,
                some => forgotten += some,
            }
        }
        if !backend.is_exclusive() {
            forgotten =
                forgotten.max(backend.forget_commands(before(retention.min(COMMANDS)), FORGET).await?);
        }
        let pause = if forgotten == 0 { (retention / 10).clamp(SECOND, MINUTE) } else { SECOND };
        Ok(Instant::now() + pause)
    }

    /// Goes on with deletions that a crash, or files that could not be removed, have left.
    async fn delete(&self) -> NextMoment {
        let most = locked(&self.stuck).len() + DELETE;
        let marked = self.shared.backend.deleting(most).await?;
        locked(&self.stuck).retain(|name, _| marked.contains(name));
        for name in marked {
            let known = locked(&self.stuck).get(&name).copied();
            if known.is_some_and(|stuck| Instant::now() < stuck.again) {
                continue;
            }
            match deletion::resume(&self.shared, &name).await {
                Ok(()) => drop(locked(&self.stuck).remove(&name)),
                Err(FleetError::Backend(error)) => return Err(error),
                Err(_) => {
                    let pause = known.map_or(SECOND, |stuck| (stuck.pause * 2).min(MINUTE));
                    let stuck = StuckDeletion { again: Instant::now() + pause, pause };
                    locked(&self.stuck).insert(name, stuck);
                }
            }
        }
        let again = locked(&self.stuck).values().map(|stuck| stuck.again).min();
        let look = Instant::now() + LOOK;
        Ok(again.map_or(look, |again| again.min(look)))
    }

    /// Releases names that the backend counts for this node by a claim that no actor knows, if two looks in a row have found
    /// them.
    async fn release(&self) -> NextMoment {
        let shared = &self.shared;
        let mut listed = Vec::new();
        loop {
            let after = listed.last().map(|(name, _, _): &(Name, Term, AttemptId)| name.clone());
            let page = Page { after, limit: Page::MOST };
            let owned = shared.backend.owned_names(shared.node, page).await?;
            if owned.is_empty() {
                break;
            }
            listed.extend(owned);
        }
        // Asked after the backend, so that a claim that was answered meanwhile is known.
        let Some(known) = (self.owned)().await else { return Ok(Instant::now() + LOOK) };
        let strangers: HashSet<_> = listed
            .into_iter()
            .filter(|(name, _, claim)| !known.contains(&(name.clone(), *claim)))
            .map(|(name, term, _)| (name, term))
            .collect();
        let before = std::mem::replace(&mut *locked(&self.strangers), strangers.clone());
        for (name, term) in strangers.intersection(&before) {
            let owner = Ownership { name: name.clone(), node: shared.node, term: *term };
            match shared.backend.release(owner).await? {
                Owned::Done(_) => {
                    tracing::warn!(name = shown(name), %term, "released a name without an owner")
                }
                // Somebody else has released it.
                Owned::Fenced => {}
            }
        }
        Ok(Instant::now() + LOOK)
    }
}
