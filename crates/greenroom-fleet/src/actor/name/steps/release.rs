//! The end of an activation: gives back what a name holds.

use crate::actor::cell::NameCell;
use crate::actor::context::FleetShared;
use crate::actor::retry::{NotDone, repeat_owned};
use crate::backend::Requests;
use crate::event::FleetEvent;
use crate::request::{ActivationFailed, Ownership};

/// Gives back what a name holds, but its slot: ends the session, then releases the name, or writes nothing if the name is fenced.
pub(crate) async fn give_back(shared: &FleetShared, cell: &NameCell) {
    end_session(cell).await;
    let lost = match cell.losses() {
        Some(losses) => losses.before_kill().await,
        None => None,
    };
    let Some(owner) = cell.holdings().owner.clone() else { return };
    if shared.is_fenced(cell) {
        cell.disown();
        return shared.tell_of(cell, |name, tenant| FleetEvent::Fenced { name, tenant, term: owner.term });
    }
    let given_back = match lost {
        // The transcript has a gap: no owner goes on with it before a person has looked.
        Some(why) => give_back_failed(shared, owner, why, 1).await.map(drop),
        None => repeat_owned(shared, || shared.backend.release(owner.clone())).await.map(drop),
    };
    // Not before: the keeper releases a name that nobody holds, and a quarantine would find no owner then.
    cell.disown();
    if let Err(not_done) = given_back {
        // Somebody else owns the name, or the keeper releases it when the backend answers again.
        tracing::warn!(?not_done, "a name could not be released");
    }
}

/// Gives a name back with a failure, of which `intensity` in a period quarantine it.
pub(super) async fn give_back_failed(
    shared: &FleetShared,
    owner: Ownership,
    why: String,
    intensity: u32,
) -> Result<Option<u32>, NotDone> {
    let failed = ActivationFailed { owner, why, period: shared.limits.failure_period, intensity };
    repeat_owned(shared, || shared.backend.activation_failed(failed.clone())).await
}

/// Ends the session, and returns when its process group is gone.
pub(super) async fn end_session(cell: &NameCell) {
    let Some(session) = cell.holdings().session.clone() else { return };
    let kill = cell.kill();
    tokio::select! {
        biased;
        () = kill.cancelled() => session.kill().await,
        stopped = session.stop() => {
            if let Err(error) = stopped {
                tracing::debug!(%error, "the session ended with an error");
            }
        }
    }
    // Also after a stop that the kill has cut short.
    session.wait().await;
    cell.holdings().session = None;
}
