//! The state of a fleet at one moment.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use super::operator::Operator;
use crate::access::Action;
use crate::actor::cell::StageKind;
use crate::actor::supervisor::FleetMessage;
use crate::admission::Tally;
use crate::backend::Requests;
use crate::error::FleetError;
use crate::health::Health;
use crate::id::{Name, NodeId, PromptId, Tenant};
use crate::record::NameRecord;
use crate::request::Page;

/// Names that are read from the backend at a time.
const PAGE: usize = 256;
/// The time for which the answer of admission is awaited.
const ANSWERS: Duration = Duration::from_secs(1);

/// Chooses the names of a [`FleetSnapshot`].
///
/// ```
/// use greenroom_fleet::Query;
///
/// let query = Query::stuck().limit(50);
/// # let _ = query;
/// ```
#[derive(Clone, Debug)]
pub struct Query {
    which: Which,
    tenant: Option<Tenant>,
    after: Option<Name>,
    limit: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    All,
    Active,
    Stuck,
}

impl Query {
    fn new(which: Which) -> Self {
        Self { which, tenant: None, after: None, limit: 100 }
    }

    /// All names.
    pub fn all() -> Self {
        Self::new(Which::All)
    }

    /// Names that are not asleep on this node.
    pub fn active() -> Self {
        Self::new(Which::Active)
    }

    /// Names that [somebody has to look at](NameRecord::is_stuck).
    pub fn stuck() -> Self {
        Self::new(Which::Stuck)
    }

    /// Names of this tenant only.
    #[must_use]
    pub fn tenant(mut self, tenant: Tenant) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// Names after this one, in the order of their bytes: the next page.
    #[must_use]
    pub fn after(mut self, name: Name) -> Self {
        self.after = Some(name);
        self
    }

    /// Sets the length of the page. Default: 100.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    fn takes(&self, record: &NameRecord) -> bool {
        (self.which != Which::Stuck || record.is_stuck())
            && self.tenant.as_ref().is_none_or(|tenant| tenant == record.name.tenant())
    }
}

/// The state of a fleet at one moment. Serialises to JSON.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "plain data")]
#[non_exhaustive]
pub struct FleetSnapshot {
    pub node: NodeId,
    pub draining: bool,
    /// The causes that keep sessions from starting on this node.
    pub health: Health,
    /// The cap of live sessions, and how many are live: starting, running a turn, idle, or being ended.
    pub live_limit: usize,
    pub live: usize,
    /// The names of this node by what they do.
    #[serde(flatten)]
    pub counts: Tally,
    /// Prompts that wait in the whole fleet, without reminders.
    pub queued: u32,
    /// Tenants with names that are live or ask.
    pub tenants: BTreeMap<Tenant, Tally>,
    /// The names of the query, in the order of their bytes.
    pub names: Vec<NameSnapshot>,
    /// The last name of a page that is full: pass it to [`Query::after`].
    pub next: Option<Name>,
}

/// A name, in a [`FleetSnapshot`].
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct NameSnapshot {
    /// What the backend keeps.
    pub record: NameRecord,
    /// What the name does on this node: `passive`, `settled`, `waiting`, `activating`, `backoff`, `idle`, `running` or
    /// `passivating`.
    pub stage: &'static str,
    /// The time since it does that, in milliseconds; 0 if it is passive.
    pub stage_ms: u64,
    /// The prompt of the turn that runs on this node.
    pub running: Option<PromptId>,
}

impl Operator {
    /// Reports the state of the fleet and of the names that the query chooses.
    ///
    /// # Errors
    /// [`FleetError::Denied`]; [`FleetError::Backend`]; [`FleetError::Ended`] after the end of the fleet.
    pub async fn snapshot(&self, query: Query) -> Result<FleetSnapshot, FleetError> {
        let shared = &self.fleet.handle.shared;
        self.scope.allow(shared, Action::Read, None).await?;
        let (reply, counts) = tokio::sync::oneshot::channel();
        self.fleet.handle.supervisor.cast(FleetMessage::Counts(reply)).map_err(|_| FleetError::Ended)?;
        // While admission is being restarted, nobody knows.
        let counted = tokio::time::timeout(ANSWERS, counts).await;
        let counts = counted.ok().and_then(Result::ok).unwrap_or_default();
        let (names, next) = self.names(&query).await?;
        Ok(FleetSnapshot {
            node: shared.node,
            draining: shared.draining.is_cancelled(),
            health: shared.health.report(),
            live_limit: shared.limits.live,
            live: counts.node.live(),
            counts: counts.node,
            queued: shared.ask(|backend| backend.queued()).await?,
            tenants: counts.tenants.into_iter().collect(),
            names,
            next,
        })
    }

    async fn names(&self, query: &Query) -> Result<(Vec<NameSnapshot>, Option<Name>), FleetError> {
        let shared = &self.fleet.handle.shared;
        let cells = shared.awake().clone();
        let snapshot = |record: NameRecord| {
            let Some(cell) = cells.get(&record.name) else {
                return NameSnapshot { record, stage: "passive", stage_ms: 0, running: None };
            };
            let holdings = cell.holdings();
            let (stage, since) = holdings.stage.unwrap_or_else(|| (StageKind::Settled, Instant::now()));
            let stage_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
            NameSnapshot { record, stage: stage.word(), stage_ms, running: holdings.running }
        };
        let mut found = Vec::new();
        if query.which == Which::Active {
            let mut names: Vec<_> =
                cells.keys().filter(|name| Some(*name) > query.after.as_ref()).cloned().collect();
            names.sort();
            for name in names {
                if found.len() == query.limit {
                    break;
                }
                let record = shared.ask(|backend| backend.name_record(name.clone())).await?;
                found.extend(record.filter(|record| query.takes(record)).map(snapshot));
            }
        } else {
            let mut after = query.after.clone();
            while found.len() < query.limit {
                let page = Page { after: after.clone(), limit: PAGE };
                let records = match (query.which, &query.tenant) {
                    (Which::Stuck, tenant) => {
                        shared.ask(|backend| backend.stuck_names((*tenant).clone(), page.clone())).await?
                    }
                    (_, Some(tenant)) => {
                        shared.ask(|backend| backend.names_of(tenant.clone(), page.clone())).await?
                    }
                    (_, None) => shared.ask(|backend| backend.names(page.clone())).await?,
                };
                let Some(last) = records.last() else { break };
                after = Some(last.name.clone());
                let left = query.limit - found.len();
                found.extend(
                    records.into_iter().filter(|record| query.takes(record)).take(left).map(snapshot),
                );
            }
        }
        let full = found.len() == query.limit;
        let next = found.last().filter(|_| full).map(|name| name.record.name.clone());
        Ok((found, next))
    }
}
