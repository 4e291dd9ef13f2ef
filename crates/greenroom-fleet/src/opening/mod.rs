//! The opening of a fleet: ends what an earlier process has left, and joins.
//!
//! ```text
//!  0 profiles     each is tried with a made-up name, and none of its sessions is started
//!  1 folders      the root is created, and tried
//!  2 processes    CLIs of an earlier process on this host: awaited, killed after `left_processes`, awaited again
//!                 with a pool of users of the system: those that such a process held are cleaned, and whatever they run is killed
//!  3 names        those of dead nodes are recovered: running turns go on with their continuation, or end
//!                 a name whose process cannot be ended is quarantined
//!                 where other nodes use the backend, too: one batch; the keepers go on with the rest
//!  4 deletions    those that were not finished
//!  5 the node     joins: from now on it can claim names
//! ```
//!
//! A service that was killed leaves CLIs for some time: their guardian ends them, and the system may be slow. The file of a
//! `LocalBackend` can be opened at once, so nothing but this wait keeps a second CLI from the conversation of the first one.
//! `process.rs` tells how they are found.
//!
//! On a backend with several nodes, only processes are looked at whose owner is lost: its node has left, was declared dead, or
//! another node has claimed the name. An earlier process of this host that was killed a moment ago still counts as alive. The
//! opening does not wait for the end of its lease: the keeper declares it dead, and an activation ends the old CLI of its
//! name (`actor/name/steps/left.rs`). Processes of other hosts are left to the fleets there.
//!
//! Each step can be repeated: a process that is killed while it opens leaves the rest to the next opening.

mod fit;
#[cfg(test)]
mod tests;

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::time::Instant;

use crate::actor::context::{FleetShared, shown};
use crate::actor::deletion::Stuck;
use crate::actor::keeper::RECOVER;
use crate::actor::name::steps::left;
use crate::actor::supervisor::leave;
use crate::backend::Requests;
use crate::error::FleetError;
use crate::id::Name;
use crate::record::{Quarantine, QuarantineKind};
use crate::request::Join;

/// Processes that are ended at the same time.
const AT_ONCE: usize = 16;

/// Opens a fleet.
///
/// # Errors
/// [`FleetError::Files`] if the root folder cannot be used, [`FleetError::Invalid`] if a profile does not fit the fleet or a user of the
/// pool cannot reach the folder, [`FleetError::Backend`] if the backend fails.
pub(crate) async fn open(shared: &FleetShared) -> Result<(), FleetError> {
    fit::check_profiles(shared)?;
    shared.folders.open().await?;
    let stuck = end_left_processes(shared).await?;
    if let Some(users) = &shared.users {
        users.open().await?;
    }
    recover(shared).await?;
    for (name, why) in stuck {
        // Another node may own the session, and a name that is being deleted stays so.
        let quarantine = Quarantine { kind: QuarantineKind::Process, why };
        let marked = shared.ask(|backend| backend.quarantine(name.clone(), quarantine.clone())).await?;
        let (name, why) = (shown(&name), quarantine.why);
        tracing::error!(name, why, ?marked, "an earlier process of a session may still run");
    }
    // A name whose files cannot be removed, or are in use, stays marked: the keeper goes on with it.
    Stuck::default().resume_marked(shared, usize::MAX).await?;
    let sent = shared.fence.now();
    let capacity = u32::try_from(shared.limits.live).unwrap_or(u32::MAX);
    let join = Join { node: shared.node, host: shared.host.clone(), lease: shared.limits.lease, capacity };
    shared.ask(|backend| backend.join(join.clone())).await?;
    if let Err(error) = shared.fence.hold(sent).await {
        // The node would count as up for a whole lease, and others would leave prompts to it.
        leave(shared).await;
        return Err(FleetError::Session(error));
    }
    Ok(())
}

/// Waits until the processes have ended that lost owners have left on this host, and kills those that do not end in time. Returns the names
/// of those that could not be ended, with the reasons.
async fn end_left_processes(shared: &FleetShared) -> Result<Vec<(Name, String)>, FleetError> {
    let left = shared.ask(|backend| backend.left_processes(usize::MAX)).await?;
    let killed_at = Instant::now() + shared.limits.left_processes;
    let given_up_at = killed_at + shared.limits.left_processes;
    let ending = left.into_iter().filter(|record| shared.runs_here(record)).map(|record| async move {
        match left::end(shared, &record, killed_at, given_up_at).await {
            Some(why) => Ok(Some((record.name, format!("{why}; then call `unquarantine`")))),
            None => {
                shared.ask(|backend| backend.process_ended(record.name.clone(), record.term)).await?;
                Ok(None)
            }
        }
    });
    let ended = stream::iter(ending).buffer_unordered(AT_ONCE);
    ended.try_filter_map(|stuck| std::future::ready(Ok(stuck))).try_collect().await
}

async fn recover(shared: &FleetShared) -> Result<(), FleetError> {
    loop {
        let recovered = shared.ask(|backend| backend.recover(RECOVER, shared.limits.losses)).await?;
        shared.tell_transitions();
        // The keepers of a shared backend recover the rest at their rate.
        if recovered.len() < RECOVER || !shared.backend.is_exclusive() {
            return Ok(());
        }
    }
}
