//! The end of an activation: gives back what a name holds.

use crate::actor::cell::NameCell;
use crate::actor::context::FleetShared;
use crate::actor::retry::{NotDone, repeat_owned};
use crate::backend::Requests;
use crate::event::FleetEvent;
use crate::request::{ActivationFailed, Ownership};

/// Gives back what a name holds, but its slot: ends the session, then releases the name. `fenced`: nothing is written.
pub(crate) async fn give_back(shared: &FleetShared, cell: &NameCell, fenced: bool) {
    end_session(cell).await;
    let lost = match cell.losses() {
        Some(losses) => losses.before_kill().await,
        None => None,
    };
    let Some(owner) = cell.holdings().owner.clone() else { return };
    if fenced || cell.fenced().is_cancelled() {
        cell.disown();
        let tenant = cell.holdings().tenant.clone();
        shared.tell(FleetEvent::Fenced { name: owner.name, tenant, term: owner.term });
        return;
    }
    let given_back = match lost {
        Some(why) => quarantine(shared, owner, why).await,
        None => repeat_owned(shared, || shared.backend.release(owner.clone())).await.map(drop),
    };
    // Not before: the keeper releases a name that nobody holds, and a quarantine would find no owner then.
    cell.disown();
    if let Err(not_done) = given_back {
        // Somebody else owns the name, or the keeper releases it when the backend answers again.
        tracing::warn!(?not_done, "a name could not be released");
    }
}

/// Gives a name back whose transcript has a gap: no owner goes on with it before a person has looked.
async fn quarantine(shared: &FleetShared, owner: Ownership, why: String) -> Result<(), NotDone> {
    let request = ActivationFailed { owner, why, period: shared.limits.failure_period, intensity: 1 };
    repeat_owned(shared, || shared.backend.activation_failed(request.clone())).await.map(drop)
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
