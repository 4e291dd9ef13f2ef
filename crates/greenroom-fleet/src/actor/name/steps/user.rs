//! The user of the system that a session's CLI runs as, from the activation to the end of the session.

use uuid::Uuid;

use super::NotStarted;
use crate::actor::cell::NameCell;
use crate::actor::context::FleetShared;
use crate::event::FleetEvent;
use crate::files::owner::NewOwner;
use crate::users::SetAside;

/// Takes a user for an activation, if the fleet has a pool of users.
pub(super) async fn take(
    shared: &FleetShared,
    cell: &NameCell,
    conversation: Uuid,
) -> Result<Option<NewOwner>, NotStarted> {
    let Some(users) = &shared.users else { return Ok(None) };
    let held = users.take(conversation, |aside| tell(shared, aside)).await.map_err(NotStarted::ByHost)?;
    let owner = held.owner();
    cell.holdings().user = Some(held);
    Ok(Some(owner))
}

/// Gives the user back. All processes of the session are gone.
pub(super) async fn release(shared: &FleetShared, cell: &NameCell) {
    let held = cell.holdings().user.take();
    if let (Some(users), Some(held)) = (&shared.users, held)
        && let Some(aside) = users.release(held).await
    {
        tell(shared, aside);
    }
}

fn tell(shared: &FleetShared, aside: SetAside) {
    let SetAside { uid, why } = aside;
    tracing::warn!(uid, why, "a user of the pool is set aside: it is not clean");
    shared.tell(FleetEvent::UserSetAside { uid, why });
}
