//! The step of a look: reads what waits for a name.

use crate::actor::cell::NameCell;
use crate::actor::context::{FleetShared, shown};
use crate::actor::retry::{NotDone, repeat};
use crate::backend::Requests;
use crate::error::FleetError;
use crate::record::{NameRecord, NameState, PromptRecord};

/// The reason why a session is not started while its turn is parked.
pub(super) const PARKED: &str =
    "a turn of the session is parked: answer its question, or interrupt the turn, then try again";

/// Looks for the prompt of a name that may begin now. `is_wanted`: callers wait for its session.
///
/// # Errors
/// The reason why they wait in vain. Nothing may begin then.
pub(in crate::actor::name) async fn look(
    shared: &FleetShared,
    cell: &NameCell,
    is_wanted: bool,
) -> Result<Option<PromptRecord>, FleetError> {
    cell.look();
    let (record, next) = read_queue(shared, cell).await.inspect_err(|not_done| {
        if let NotDone::Error(error) = not_done {
            tracing::warn!(name = shown(&cell.name), %error, "the backend does not say what waits for a session");
        }
    })?;
    let Some(record) = record else {
        return Err(FleetError::State("the session is not known: send it a prompt first".to_owned()));
    };
    let why = match &record.state {
        NameState::Quarantined { why, .. } => quarantined(why),
        NameState::Deleting { .. } => "the session is being deleted".to_owned(),
        NameState::Departing { .. } => "the session moves to another backend".to_owned(),
        _ if record.parked.is_some() && is_wanted => PARKED.to_owned(),
        _ if next.is_none() && is_wanted => return check_here(shared, &record).await.map(|()| None),
        _ => return Ok(next),
    };
    Err(FleetError::State(why))
}

/// Reads the record of a name, and the prompt that may begin.
pub(super) async fn read_queue(
    shared: &FleetShared,
    cell: &NameCell,
) -> Result<(Option<NameRecord>, Option<PromptRecord>), NotDone> {
    let record = repeat(shared, || shared.backend.name_record(cell.name.clone())).await?;
    if let Some(found) = &record {
        // A call of the application's code, so before the lock.
        let credential = shared.credential(&cell.name, &found.profile);
        let mut holdings = cell.holdings();
        holdings.profile = Some(found.profile.clone());
        // A session that is up keeps the login that it was started with.
        if holdings.owner.is_none() {
            holdings.credential = Some(credential);
        }
    }
    let Some(found) = record.as_ref().filter(|found| found.queued > 0) else { return Ok((record, None)) };
    let elsewhere = shared.lost.run_until_cancelled(shared.owner_elsewhere(&found.state)).await;
    if matches!(elsewhere.ok_or(NotDone::Fenced)?, Ok(Some(_))) || shared.leaves_to_others(&found.profile) {
        return Ok((record, None));
    }
    let mut next = repeat(shared, || shared.backend.next_prompt(cell.name.clone())).await?;
    if let (Some(_), Some(budget)) = (&next, shared.quotas.of(cell.name.tenant()).budget) {
        let account = repeat(shared, || shared.backend.tenant(cell.name.tenant().clone())).await?;
        next = next.filter(|_| budget.has_room(&account, shared.backend.now()));
    }
    Ok((record, next))
}

/// An error if a name cannot be activated on this node. None if the backend does not say.
async fn check_here(shared: &FleetShared, record: &NameRecord) -> Result<(), FleetError> {
    if shared.backend.is_exclusive() {
        return Ok(());
    }
    if let Some(host) = record.host.as_ref().filter(|host| **host != shared.host) {
        return Err(FleetError::State(other_host(host)));
    }
    if shared.leaves_to_others(&record.profile) {
        return Err(FleetError::State(no_profile(&record.profile)));
    }
    match shared.owner_elsewhere(&record.state).await {
        Ok(Some(node)) => Err(FleetError::Elsewhere { node }),
        _ => Ok(()),
    }
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
