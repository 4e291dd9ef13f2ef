//! The step of a look: reads what waits for a name.

use crate::actor::cell::NameCell;
use crate::actor::context::{FleetShared, has_room, shown};
use crate::actor::retry::{NotDone, repeat};
use crate::backend::Requests;
use crate::error::FleetError;
use crate::id::Timestamp;
use crate::record::{NameRecord, NameState, PromptRecord};

/// The findings of a look at a name.
#[derive(Debug, Default)]
pub(crate) struct Look {
    /// `None`: the name is not known, or the backend does not say.
    pub(in crate::actor::name) tenant: Option<String>,
    /// The prompt that may begin now.
    pub(in crate::actor::name) next: Option<PromptRecord>,
    /// The reason why callers that wait for the session wait in vain.
    pub(in crate::actor::name) not_up: Option<FleetError>,
}

/// Looks at what waits for a name. `is_wanted`: callers wait for its session.
pub(in crate::actor::name) async fn look(shared: &FleetShared, cell: &NameCell, is_wanted: bool) -> Look {
    let not_up = |why: &str| Some(FleetError::State(why.to_owned()));
    match read_queue(shared, cell).await {
        Ok((Some(record), next)) => {
            let (next, not_up) = match (blocked(&record), next) {
                (Some(why), _) => (None, not_up(&why)),
                (None, None) if is_wanted => (None, elsewhere(shared, &record).await),
                (None, next) => (next, None),
            };
            Look { tenant: Some(record.tenant), next, not_up }
        }
        Ok((None, _)) => {
            Look { not_up: not_up("the session is not known: send it a prompt first"), ..Look::default() }
        }
        Err(not_done) => {
            let (name, why) = (shown(&cell.name), not_done.to_string());
            if let NotDone::Error(_) = not_done {
                tracing::warn!(name, why, "the backend does not say what waits for a session");
            }
            Look { not_up: not_up(&why), ..Look::default() }
        }
    }
}

/// Reads the record of a name, and the prompt that may begin.
pub(super) async fn read_queue(
    shared: &FleetShared,
    cell: &NameCell,
) -> Result<(Option<NameRecord>, Option<PromptRecord>), NotDone> {
    cell.look();
    let record = repeat(shared, || shared.backend.name_record(cell.name.clone())).await?;
    let Some(found) = record.as_ref().filter(|found| found.queued > 0) else { return Ok((record, None)) };
    if shared.leaves_to_others(&found.profile) {
        return Ok((record, None));
    }
    let bound = usize::try_from(found.queued).unwrap_or(usize::MAX);
    let mut queue = repeat(shared, || shared.backend.queue(cell.name.clone(), bound)).await?;
    let now = shared.backend.now();
    let first = match found.continues {
        Some(id) => queue.iter().position(|prompt| prompt.id == id),
        None => queue.iter().position(|prompt| prompt.is_due(now) && now < prompt.expires_at),
    };
    let next = first.map(|index| queue.swap_remove(index));
    let may_begin = next.is_none() || within_budget(shared, &found.tenant, now).await?;
    Ok((record, next.filter(|_| may_begin)))
}

/// The reason why a name that is known is not activated.
fn blocked(record: &NameRecord) -> Option<String> {
    match &record.state {
        NameState::Quarantined { why, .. } => Some(quarantined(why)),
        NameState::Deleting { .. } => Some("the session is being deleted".to_owned()),
        NameState::Departing { .. } => Some("the session moves to another backend".to_owned()),
        _ => None,
    }
}

/// The reason why a name cannot be activated on this node, for callers that want it up. `None` also if the backend does not say.
async fn elsewhere(shared: &FleetShared, record: &NameRecord) -> Option<FleetError> {
    if shared.backend.is_exclusive() {
        return None;
    }
    if let Some(host) = record.host.as_ref().filter(|host| **host != shared.host) {
        return Some(FleetError::State(other_host(host)));
    }
    if shared.leaves_to_others(&record.profile) {
        return Some(FleetError::State(no_profile(&record.profile)));
    }
    let owner = shared.owner_elsewhere(&record.state).await.ok()?;
    owner.map(|node| FleetError::Elsewhere { node })
}

pub(super) fn quarantined(why: &str) -> String {
    format!("the session is quarantined: {why}")
}

pub(super) fn no_profile(profile: &str) -> String {
    format!("the fleet has no profile '{profile}': add it to the builder")
}

pub(super) fn other_host(host: &str) -> String {
    format!("the session belongs to the host '{host}'")
}

/// True if the tenant has money for a turn.
async fn within_budget(shared: &FleetShared, tenant: &str, now: Timestamp) -> Result<bool, NotDone> {
    let Some(reserve) = shared.reserve(tenant, now) else { return Ok(true) };
    let account = repeat(shared, || shared.backend.tenant(tenant.to_owned())).await?;
    Ok(has_room(&account, &reserve, now))
}
