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

use crate::actor::context::{FleetShared, shown};
use crate::actor::retry::{NotDone, repeat};
use crate::backend::Requests;
use crate::event::FleetEvent;
use crate::id::Name;
use crate::process::LeftProcess;
use crate::registry::unreadable;

/// The time in which a process that was killed ends.
const KILLED: Duration = Duration::from_secs(2);

/// Kills the processes that lost owners of a name have left on this host, and waits for their ends. Returns the reason why
/// one goes on, or may go on, if one does.
pub(crate) async fn end_processes(shared: &FleetShared, name: &Name) -> Result<Option<String>, NotDone> {
    let left = repeat(shared, || shared.backend.left_processes_of(name.clone())).await?;
    for record in left.into_iter().filter(|left| shared.runs_here(left)) {
        match LeftProcess::of(&record.process) {
            Ok(process) if !ended(shared, name, &process).await => {
                return Ok(Some(format!(
                    "{process} of the session still runs and could not be killed: end it"
                )));
            }
            Ok(_) => {}
            // Its process may run.
            Err(error) => return Ok(Some(unreadable(name, record.term, error).to_string())),
        }
        repeat(shared, || shared.backend.process_ended(name.clone(), record.term)).await?;
    }
    Ok(None)
}

/// Kills a process if it runs. `false`: it runs still.
async fn ended(shared: &FleetShared, name: &Name, process: &LeftProcess) -> bool {
    if !process.is_alive().await {
        return true;
    }
    tracing::warn!(name = shown(name), %process, "a CLI of a lost owner is killed");
    shared.tell(FleetEvent::ProcessLeft { name: name.clone() });
    let killed = process.clone();
    // A panic: the wait tells what still runs.
    tokio::task::spawn_blocking(move || killed.kill()).await.ok();
    shared.tell(FleetEvent::ProcessKilled { name: name.clone() });
    tokio::time::timeout(KILLED, process.gone()).await.is_ok()
}
