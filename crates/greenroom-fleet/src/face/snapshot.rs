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
use crate::lock::locked;
use crate::record::NameRecord;
use crate::record::usage::{Usage, Wakes};

/// The time for which the answer of admission is awaited.
const ANSWERS: Duration = Duration::from_secs(1);

/// Chooses the names of a [`FleetSnapshot`], among those that are awake on this node. [`Operator::names`] lists names as the backend keeps
/// them, those that sleep or are awake elsewhere included.
///
/// ```
/// use greenroom_fleet::SnapshotQuery;
///
/// let query = SnapshotQuery::active().limit(50);
/// # let _ = query;
/// ```
#[derive(Clone, Debug)]
pub struct SnapshotQuery {
    tenant: Option<Tenant>,
    after: Option<Name>,
    limit: usize,
}

impl SnapshotQuery {
    /// All names that are awake on this node.
    pub fn active() -> Self {
        Self { tenant: None, after: None, limit: 100 }
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
    /// The usage of this node's turns since it started.
    pub usage: Usage,
    /// The prompt cache of the sessions that this node has woken since it started.
    pub wakes: Wakes,
    /// The names of the query that are awake on this node, in the order of their bytes.
    pub names: Vec<NameSnapshot>,
    /// The last name of a page that is full: pass it to [`SnapshotQuery::after`].
    pub next: Option<Name>,
}

/// A name, in a [`FleetSnapshot`].
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct NameSnapshot {
    /// The record in the backend.
    pub record: NameRecord,
    /// The stage of the name on this node: `settled`, `waiting`, `activating`, `held`, `backoff`, `idle`, `running` or
    /// `passivating`.
    pub stage: &'static str,
    /// The time since it does that, in milliseconds.
    pub stage_ms: u64,
    /// The prompt of the turn that runs on this node.
    pub running: Option<PromptId>,
}

impl Operator {
    /// Reports the state of the fleet and of the names that the query chooses.
    ///
    /// # Errors
    /// [`FleetError::Denied`]; [`FleetError::Backend`]; [`FleetError::Ended`] after the end of the fleet.
    pub async fn snapshot(&self, query: SnapshotQuery) -> Result<FleetSnapshot, FleetError> {
        let shared = &self.fleet.handle.shared;
        self.scope.allow(shared, Action::Read, None).await?;
        let (reply, counts) = tokio::sync::oneshot::channel();
        self.fleet.handle.supervisor.cast(FleetMessage::Counts(reply)).map_err(|_| FleetError::Ended)?;
        // While admission is being restarted, nobody knows.
        let counted = tokio::time::timeout(ANSWERS, counts).await;
        let counts = counted.ok().and_then(Result::ok).unwrap_or_default();
        let names = self.active(&query).await?;
        let is_full = names.len() == query.limit;
        let next = names.last().filter(|_| is_full).map(|name| name.record.name.clone());
        Ok(FleetSnapshot {
            node: shared.node,
            draining: shared.draining.is_cancelled(),
            health: shared.health.report(),
            live_limit: shared.limits.live,
            live: counts.node.live(),
            counts: counts.node,
            queued: shared.ask(|backend| backend.queued()).await?,
            tenants: counts.tenants.into_iter().collect(),
            usage: *locked(&shared.used),
            wakes: *locked(&shared.wakes),
            names,
            next,
        })
    }

    async fn active(&self, query: &SnapshotQuery) -> Result<Vec<NameSnapshot>, FleetError> {
        let shared = &self.fleet.handle.shared;
        let cells = shared.awake().clone();
        let chosen = |name: &&Name| {
            Some(*name) > query.after.as_ref()
                && query.tenant.as_ref().is_none_or(|tenant| tenant == name.tenant())
        };
        let mut names: Vec<_> = cells.keys().filter(chosen).collect();
        names.sort();
        let mut found = Vec::new();
        for name in names {
            if found.len() == query.limit {
                break;
            }
            let record = shared.ask(|backend| backend.name_record(name.clone())).await?;
            // A name without a record was deleted a moment ago.
            let (Some(record), Some(cell)) = (record, cells.get(name)) else { continue };
            let holdings = cell.holdings();
            let (stage, since) = holdings.stage.unwrap_or_else(|| (StageKind::Settled, Instant::now()));
            let stage_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
            found.push(NameSnapshot { record, stage: stage.word(), stage_ms, running: holdings.running });
        }
        Ok(found)
    }
}
