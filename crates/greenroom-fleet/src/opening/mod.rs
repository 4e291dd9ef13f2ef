//! The opening of a fleet: ends what an earlier process has left, and joins.
//!
//! ```text
//!  1 folders      the root is created, and tried
//!  2 processes    CLIs of an earlier process on this host: awaited, killed after `left_processes`, awaited again
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
//! name (`actor/name/left.rs`). Processes of other hosts are left to the fleets there.
//!
//! Each step can be repeated: a process that is killed while it opens leaves the rest to the next opening.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::actor::context::{FleetShared, shown};
use crate::actor::deletion;
use crate::actor::keeper::RECOVER;
use crate::actor::supervisor::leave;
use crate::backend::Requests;
use crate::error::FleetError;
use crate::event::FleetEvent;
use crate::id::{Name, Term};
use crate::process::LeftProcess;
use crate::record::ProcessRecord;
use crate::request::{Join, Marked};

/// Records in one request.
const BATCH: usize = 1000;

/// Processes that could not be ended, and the reasons.
type StuckProcesses = BTreeMap<(Name, Term), String>;

/// Opens a fleet.
///
/// # Errors
/// [`FleetError::Files`] if the root folder cannot be used, [`FleetError::Backend`] if the backend fails.
pub(crate) async fn open(shared: &FleetShared) -> Result<(), FleetError> {
    shared.folders.open().await?;
    let stuck = end_left_processes(shared).await?;
    recover(shared).await?;
    for ((name, _), why) in stuck {
        match shared.ask(|backend| backend.quarantine(name.clone(), why.clone())).await? {
            Marked::Done => tracing::error!(name = shown(&name), why, "a session is quarantined"),
            Marked::Owned(node) => tracing::error!(
                name = shown(&name),
                why,
                %node,
                "an earlier process of a session may still run while another node owns the session"
            ),
            // A name that is being deleted stays so.
            Marked::Gone => {
                tracing::error!(
                    name = shown(&name),
                    why,
                    "an earlier process of a deleted session may still run"
                );
            }
        }
    }
    finish_deletions(shared).await?;
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

/// Waits until the processes have ended that lost owners have left on this host, and kills those that do not end in time.
async fn end_left_processes(shared: &FleetShared) -> Result<StuckProcesses, FleetError> {
    let (mut stuck, mut limit) = (StuckProcesses::new(), BATCH);
    loop {
        let mut left = shared.ask(|backend| backend.left_processes(limit)).await?;
        let all = left.len() < limit;
        left.retain(|record| {
            shared.runs_here(record) && !stuck.contains_key(&(record.name.clone(), record.term))
        });
        if left.is_empty() {
            if all {
                return Ok(stuck);
            }
            // Records of other hosts and of stuck processes stay in the list.
            limit += BATCH;
            continue;
        }
        let waiting = split(shared, left, &mut stuck).await?;
        let waiting = wait(shared, waiting).await?;
        for (record, process) in &waiting {
            tracing::warn!(
                name = shown(&record.name),
                %process,
                "a CLI of an earlier process is killed"
            );
            let process = process.clone();
            // A panic: what still runs is told below.
            tokio::task::spawn_blocking(move || process.kill()).await.ok();
            shared.tell(FleetEvent::ProcessKilled { name: record.name.clone() });
        }
        for (record, process) in wait(shared, waiting).await? {
            let why = format!(
                "{process} of an earlier start of the service still runs, and could not be killed: end it, then call \
                 `unquarantine`"
            );
            stuck.insert((record.name, record.term), why);
        }
    }
}

/// The records whose processes run. The others are removed, or stuck if they cannot be read.
async fn split(
    shared: &FleetShared,
    left: Vec<ProcessRecord>,
    stuck: &mut StuckProcesses,
) -> Result<Vec<(ProcessRecord, LeftProcess)>, FleetError> {
    let mut running = Vec::new();
    for record in left {
        match LeftProcess::of(&record.process) {
            Ok(process) if process.is_alive().await => {
                tracing::warn!(
                    name = shown(&record.name),
                    %process,
                    "a CLI of an earlier process still runs"
                );
                shared.tell(FleetEvent::ProcessLeft { name: record.name.clone() });
                running.push((record, process));
            }
            Ok(_) => ended(shared, &record).await?,
            Err(error) => {
                let why = format!(
                    "the record of an earlier process cannot be read ({error}): end that CLI if it runs, remove the record \
                     with `Admin::remove_process`, then call `unquarantine`"
                );
                stuck.insert((record.name, record.term), why);
            }
        }
    }
    Ok(running)
}

/// Waits until the processes have ended, all within one limit. Returns those that have not.
async fn wait(
    shared: &FleetShared,
    processes: Vec<(ProcessRecord, LeftProcess)>,
) -> Result<Vec<(ProcessRecord, LeftProcess)>, FleetError> {
    let deadline = Instant::now() + shared.limits.left_processes;
    let mut running = Vec::new();
    for (record, process) in processes {
        match tokio::time::timeout_at(deadline, process.gone()).await {
            // Looked at once more: an earlier one in the list may have used up the time.
            Err(_) if process.is_alive().await => running.push((record, process)),
            _ => ended(shared, &record).await?,
        }
    }
    Ok(running)
}

async fn ended(shared: &FleetShared, record: &ProcessRecord) -> Result<(), FleetError> {
    shared.ask(|backend| backend.process_ended(record.name.clone(), record.term)).await?;
    Ok(())
}

async fn recover(shared: &FleetShared) -> Result<(), FleetError> {
    let losses = shared.limits.losses;
    // The keepers of a shared backend recover the rest at their rate.
    let (batch, all) = if shared.backend.is_exclusive() { (BATCH, true) } else { (RECOVER, false) };
    loop {
        let recovered = shared.ask(|backend| backend.recover(batch, losses)).await?;
        shared.tell_transitions();
        if recovered.len() < batch || !all {
            return Ok(());
        }
    }
}

/// Finishes deletions. A name whose files cannot be removed, or are in use, stays marked: the keeper goes on with it.
async fn finish_deletions(shared: &FleetShared) -> Result<(), FleetError> {
    let mut failed = 0;
    loop {
        let limit = failed + BATCH;
        let marked = shared.ask(|backend| backend.deleting(limit)).await?;
        let more = marked.len() == limit;
        failed = 0;
        for name in marked {
            match deletion::resume(shared, &name).await {
                Err(FleetError::Files(_) | FleetError::State(_)) => failed += 1,
                finished => finished?,
            }
        }
        if !more {
            return Ok(());
        }
    }
}
