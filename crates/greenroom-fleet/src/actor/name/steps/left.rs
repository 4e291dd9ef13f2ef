//! Processes that lost owners of a name have left on this host.
//!
//! Two CLIs must never act on one conversation. So whoever starts a CLI, or removes its files, first ends what an earlier
//! owner has left:
//!
//! | the earlier owner's node | who ends its processes |
//! |---|---|
//! | of this host, ended before this fleet opened | the opening, see `opening` |
//! | of this host, lost while this fleet runs | the activation that has claimed the name, before it starts its CLI |
//! | of another host | greenroom's guardian there, when its service ends; this node neither sees nor awaits them |
//!
//! The last row is an assumption: a service that is killed on another host has its CLIs ended by its guardian
//! before its lease is over. A record of another host stays until a fleet opens there again.
//!
//! A record that cannot be read may be of a process that runs. No CLI of its name starts until an operator has removed it.

use std::time::Duration;

use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use crate::actor::context::{FleetShared, shown};
use crate::actor::retry::{NotDone, repeat};
use crate::backend::Requests;
use crate::event::FleetEvent;
use crate::id::Name;
use crate::process::LeftProcess;
use crate::record::ProcessRecord;
use crate::registry::unreadable;

/// The time in which a process that was killed ends.
const KILLED: Duration = Duration::from_secs(2);

/// Kills the processes that lost owners of a name have left on this host, and waits for their ends. Returns the reason why
/// one goes on, or may go on, if one does.
pub(crate) async fn end_processes(shared: &FleetShared, name: &Name) -> Result<Option<String>, NotDone> {
    let left = repeat(shared, || shared.backend.left_processes_of(name.clone())).await?;
    let now = Instant::now();
    for record in left.into_iter().filter(|left| shared.runs_here(left)) {
        if let Some(why) = end(shared, &record, now, now).await {
            return Ok(Some(why));
        }
        repeat(shared, || shared.backend.process_ended(name.clone(), record.term)).await?;
    }
    Ok(None)
}

/// Waits until `killed_at` for the ends of the processes of a record, kills those that run then, and waits until `given_up_at`, but for two
/// seconds at least. Returns the reason why one goes on, or may go on, if one does.
pub(crate) async fn end(
    shared: &FleetShared,
    record: &ProcessRecord,
    killed_at: Instant,
    given_up_at: Instant,
) -> Option<String> {
    let name = &record.name;
    let process = match LeftProcess::deserialize(&record.process) {
        Ok(process) => process,
        // Its process may run.
        Err(error) => return Some(unreadable(name, record.term, error).to_string()),
    };
    if !process.is_alive().await {
        return None;
    }
    tracing::warn!(name = shown(name), %process, "a CLI of an earlier owner still runs");
    shared.tell(FleetEvent::ProcessLeft { name: name.clone() });
    // Looked at once more: another process may have used up the time.
    if timeout_at(killed_at, process.gone()).await.is_ok() || !process.is_alive().await {
        return None;
    }
    tracing::warn!(name = shown(name), %process, "a CLI of an earlier owner is killed");
    let killed = process.clone();
    // A panic: the wait tells what still runs.
    tokio::task::spawn_blocking(move || killed.kill()).await.ok();
    shared.tell(FleetEvent::ProcessKilled { name: name.clone() });
    let ended = timeout_at(given_up_at.max(Instant::now() + KILLED), process.gone()).await;
    ended.err().map(|_| format!("{process} of the session still runs and could not be killed: end it"))
}
