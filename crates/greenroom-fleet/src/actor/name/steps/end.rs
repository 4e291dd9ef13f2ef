//! The end of a session, whose user of the system is free then.

use greenroom::Session;

use super::{cli_turn, user};
use crate::actor::cell::NameCell;
use crate::actor::context::FleetShared;

/// Ends the session, and returns when its process group is gone and its user of the system is clean.
pub(super) async fn end_session(shared: &FleetShared, cell: &NameCell) {
    let session = cell.holdings().session.clone();
    if let Some(session) = session {
        end(cell, &session).await;
        cli_turn::left(shared, cell).await;
        cell.holdings().session = None;
    }
    user::release(shared, cell).await;
}

async fn end(cell: &NameCell, session: &Session) {
    let kill = cell.kill();
    // A CLI that is told to stop denies the call that it asks about, and no other one could go on with it.
    let resumes = cell.holdings().resumes.is_some();
    tokio::select! {
        biased;
        () = async { if !resumes { kill.cancelled().await } } => session.kill().await,
        stopped = session.stop() => {
            if let Err(error) = stopped {
                tracing::debug!(%error, "the session ended with an error");
            }
        }
    }
    // Also after a stop that the kill has cut short.
    session.wait().await;
}
