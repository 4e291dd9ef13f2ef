//! A quarantine from outside: the owner of the session is asked to make way first. Many quarantines are lifted together.

use std::time::Duration;

use tokio::time::Instant;

use crate::actor::context::hint;
use crate::backend::{Backend, Requests};
use crate::error::{BackendError, FleetError};
use crate::id::{Name, NodeId, Ownership};
use crate::query::lists::{NameFilter, NameQuery};
use crate::record::{
    CommandKind, CommandRecord, CommandResult, CommandState, NameRecord, NameState, QuarantineKind,
};
use crate::request::{Change, CommandPut, Marked};

/// Owners that are asked in turn, if the session moves from one to the other meanwhile.
const OWNERS: u32 = 5;
/// The time in which an owner has to take the command.
const TAKEN: Duration = Duration::from_secs(10);
/// The time for the end of the session, once the owner has taken the command.
const ENDED: Duration = Duration::from_secs(60);
/// The pause between two looks at the command.
const LOOK: Duration = Duration::from_millis(200);

pub(super) async fn quarantine(backend: &dyn Backend, name: &Name, why: &str) -> Result<(), FleetError> {
    let mut asked = 0;
    loop {
        let node = match backend.quarantine(name.clone(), why.into()).await? {
            Marked::Done => return Ok(()),
            Marked::Gone => return Err(FleetError::not_found("session", name)),
            Marked::Owned(node) => node,
        };
        if asked == OWNERS {
            return Err(FleetError::Elsewhere { node });
        }
        asked += 1;
        make_way(backend, name, node).await?;
    }
}

/// Has an owner end the session. Returns as soon as another attempt is worth it.
async fn make_way(backend: &dyn Backend, name: &Name, node: NodeId) -> Result<(), FleetError> {
    let Some(record) = backend.name_record(name.clone()).await? else { return Ok(()) };
    if !matches!(record.state, NameState::Owned { node: owner, .. } if owner == node) {
        return Ok(());
    }
    let owner = Ownership { name: name.clone(), node, term: record.term };
    let mut changes = backend.changes();
    let command = CommandRecord::new(owner, CommandKind::MakeWay, backend.now().after(TAKEN));
    match backend.put_command(command.clone()).await? {
        CommandPut::Put(_) => {}
        CommandPut::Gone => return Ok(()),
        CommandPut::Full => return Err(FleetError::OwnerBusy { node }),
    }
    let start = Instant::now();
    loop {
        hint(&mut changes, Change::CommandEnded(command.id), LOOK).await;
        let found = match start.elapsed() < TAKEN {
            true => backend.command(command.id).await?,
            false => backend.withdraw_command(command.id).await?,
        };
        match found.map(|found| found.state) {
            // A quarantine that comes too late for the moment finds the next owner.
            Some(CommandState::Ended { result: CommandResult::Done | CommandResult::Nothing, .. }) => {
                return Ok(());
            }
            Some(CommandState::Ended { result: CommandResult::Failed { why }, .. }) => {
                return Err(FleetError::OwnerFailed { node, why });
            }
            Some(CommandState::Taken { .. }) if start.elapsed() < ENDED => {}
            Some(CommandState::Waiting) => {}
            _ => return Err(FleetError::OwnerSilent { node }),
        }
    }
}

/// Lifts all quarantines that fit.
pub(super) async fn unquarantine_all(
    backend: &dyn Backend,
    fits: impl Fn(&NameRecord, QuarantineKind, &str) -> bool + Send,
) -> Result<usize, BackendError> {
    let (mut lifted, mut query) = (0, NameQuery::new().only(NameFilter::Quarantined).limit(NameQuery::MOST));
    loop {
        let page = backend.names(query.clone()).await?;
        for record in page.names {
            if let NameState::Quarantined { kind, why, .. } = &record.state
                && fits(&record, *kind, why)
            {
                lifted += usize::from(backend.unquarantine(record.name).await?);
            }
        }
        match page.next {
            Some(next) => query = query.after(next),
            None => return Ok(lifted),
        }
    }
}
