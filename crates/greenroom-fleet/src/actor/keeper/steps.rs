//! The steps of the keeper's duties. Each asks the backend, and says when the duty's next moment is.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::looks::Looks;
use super::watch::NodeWatch;
use super::{DUTIES, Duty, LOOK, NextMoment, SECOND, SendToName, WakeNames, locked};
use crate::actor::context::{FleetShared, shown};
use crate::actor::deletion;
use crate::backend::Requests;
use crate::id::{AttemptId, CommandId, Name, Term, Timestamp};
use crate::request::{Owned, Ownership, Page};

/// Prompts or questions that expire in one request, and requests in one step.
const EXPIRE: usize = 256;
const EXPIRE_ROUNDS: usize = 8;
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
    pub(super) wake: WakeNames,
    pub(super) send: SendToName,
    /// A hint for each duty.
    pub(super) hints: [Notify; DUTIES.len()],
    pub(super) looks: Mutex<Looks>,
    stuck: Mutex<StuckDeletions>,
    strangers: Mutex<HashSet<(Name, Term)>>,
    /// Commands that are on their way: the backend may still list them.
    pub(super) commands: Arc<Mutex<HashSet<CommandId>>>,
    watch: NodeWatch,
}

/// Names whose files could not be removed.
#[derive(Default)]
struct StuckDeletions {
    count: usize,
    /// The pause after the last step.
    pause: Duration,
}

impl KeeperContext {
    pub(super) fn new(shared: Arc<FleetShared>, wake: WakeNames, send: SendToName) -> Self {
        let (hints, looks, stuck) = Default::default();
        let (strangers, commands, watch) = Default::default();
        Self { shared, wake, send, hints, looks, stuck, strangers, commands, watch }
    }

    /// Says that there may be something to do for a duty.
    pub(super) fn hint(&self, duty: Duty) {
        self.hints[duty as usize].notify_one();
    }

    pub(super) async fn step(&self, duty: Duty, is_hinted: bool) -> NextMoment {
        match duty {
            Duty::Renew => self.watch.renew(&self.shared).await,
            Duty::Expire => self.expire().await,
            Duty::Wake => self.wake_names().await,
            Duty::Forget => self.forget().await,
            Duty::Delete => self.delete().await,
            Duty::Release => self.release().await,
            Duty::Watch => self.watch.look(&self.shared).await,
            Duty::Command => self.carry_out_commands(is_hinted).await,
        }
    }

    async fn expire(&self) -> NextMoment {
        let backend = &self.shared.backend;
        for _ in 0..EXPIRE_ROUNDS {
            let prompts = backend.expire_prompts(EXPIRE).await?;
            let questions = backend.expire_questions(EXPIRE).await?;
            if prompts < EXPIRE && questions.len() < EXPIRE {
                let next = backend.next_expiry().await?;
                let pause = next.map_or(LOOK, |at| LOOK.min(at.since(backend.now())));
                return Ok(Instant::now() + pause);
            }
        }
        Ok(Instant::now())
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
        let limit = locked(&self.stuck).count + DELETE;
        let failed = deletion::resume_marked(&self.shared, limit).await?;
        let mut stuck = locked(&self.stuck);
        stuck.count = failed;
        stuck.pause = if failed == 0 { Duration::ZERO } else { (stuck.pause * 2).clamp(SECOND, LOOK * 3) };
        Ok(Instant::now() + if failed == 0 { LOOK } else { stuck.pause })
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
        let strangers: HashSet<_> = {
            // Read after the answers of the backend, so that a claim that was answered meanwhile is known.
            let awake = shared.awake();
            let is_known = |name: &Name, claim: AttemptId| {
                awake.get(name).is_some_and(|cell| cell.holdings().claim == Some(claim))
            };
            listed.retain(|(name, _, claim)| !is_known(name, *claim));
            listed.into_iter().map(|(name, term, _)| (name, term)).collect()
        };
        let before = std::mem::replace(&mut *locked(&self.strangers), strangers.clone());
        for (name, term) in strangers.intersection(&before) {
            let owner = Ownership { name: name.clone(), node: shared.node, term: *term };
            // `Fenced`: somebody else has released it.
            if let Owned::Done(_) = shared.backend.release(owner).await? {
                tracing::warn!(name = shown(name), %term, "released a name without an owner");
            }
        }
        Ok(Instant::now() + LOOK)
    }
}
