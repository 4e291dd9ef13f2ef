//! Commands to a session that another node owns.
//!
//! The command goes through the backend, and its result comes back the same way. A lost hint costs the caller a fifth of a second and
//! the owner one second.

use std::time::Duration;

use tokio::sync::broadcast;
use tokio::time::{Instant, sleep};

use crate::actor::context::{FleetShared, hint, within};
use crate::backend::Requests;
use crate::error::FleetError;
use crate::id::{Name, Ownership, PromptId};
use crate::record::{CommandKind, CommandRecord, CommandResult, CommandState, NameState};
use crate::request::{Change, CommandPut};

/// The time in which the owner has to take a command, and in which the backend has to say who the owner is.
const TAKEN: Duration = Duration::from_secs(10);
/// The longest wait for what the owner does in a turn, once it has taken the command.
const RESULT: Duration = Duration::from_secs(30);
/// The pause between two looks at the command, and between two looks at its owner.
const LOOK: Duration = Duration::from_millis(200);
const LOOK_AT_OWNER: Duration = Duration::from_secs(1);

/// The pause before a session is looked at again that is being ended, or whose owner has changed.
pub(super) const AGAIN: Duration = Duration::from_millis(50);

/// The end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Commanded {
    /// The owner has done it.
    Done,
    /// There was nothing to do: no such turn runs, or the session is asleep.
    Nothing,
    /// This node owns the session since the command was given.
    Here,
}

/// Gives a command to the node that owns the session, if another one does, and waits for its result.
///
/// # Errors
/// [`FleetError::OwnerSilent`] if the owner does not take the command in time, [`FleetError::OwnerFailed`] if it cannot do it,
/// [`FleetError::OutcomeUnknown`] if it is lost meanwhile; [`FleetError::OwnerBusy`] if too many commands wait; [`FleetError::Backend`].
pub(super) async fn command(
    shared: &FleetShared,
    name: &Name,
    kind: CommandKind,
) -> Result<Commanded, FleetError> {
    if shared.backend.is_exclusive() {
        return Ok(Commanded::Nothing);
    }
    let start = Instant::now();
    // The owner to which the command was given last. It has not taken the command.
    let mut silent = None;
    loop {
        let Some((owner, running)) = owner(shared, name).await? else {
            return Ok(Commanded::Nothing);
        };
        if kind.turn().is_some_and(|prompt| running != Some(prompt)) {
            return Ok(Commanded::Nothing);
        }
        if owner.node == shared.node {
            // Otherwise the actor here has just said that there is nothing to do. A command for a turn is for the one that another owner ran then.
            let may_act = silent.is_some() || kind.turn().is_some();
            return Ok(if may_act { Commanded::Here } else { Commanded::Nothing });
        }
        let left = TAKEN.saturating_sub(start.elapsed());
        if let Some(node) = silent.filter(|_| left.is_zero()) {
            return Err(FleetError::OwnerSilent { node });
        }
        let node = owner.node;
        silent = Some(node);
        match give(shared, owner, kind.clone(), left).await? {
            CommandResult::Done => return Ok(Commanded::Done),
            CommandResult::Nothing => return Ok(Commanded::Nothing),
            CommandResult::Failed { why } => return Err(FleetError::OwnerFailed { node, why }),
            CommandResult::Withdrawn => sleep(AGAIN).await,
        }
    }
}

/// The living owner of a session, and the turn that it runs. `None` on a backend that only this process can use.
pub(super) async fn owner(
    shared: &FleetShared,
    name: &Name,
) -> Result<Option<(Ownership, Option<PromptId>)>, FleetError> {
    // The actor here has said already that nothing runs.
    if shared.backend.is_exclusive() {
        return Ok(None);
    }
    let look = async {
        let Some(record) = shared.ask(|backend| backend.name_record(name.clone())).await? else {
            return Ok(None);
        };
        let NameState::Owned { node, .. } = record.state else { return Ok(None) };
        let lives = node == shared.node || shared.owner_elsewhere(&record.state).await?.is_some();
        let running = record.turns().next();
        let owner = Ownership { name: record.name, node, term: record.term };
        Ok(lives.then_some((owner, running)))
    };
    Ok(within(TAKEN, look).await?)
}

/// Gives a command to an owner, and waits for its result.
async fn give(
    shared: &FleetShared,
    owner: Ownership,
    kind: CommandKind,
    left: Duration,
) -> Result<CommandResult, FleetError> {
    let mut changes = shared.backend.changes();
    let until = Instant::now() + left;
    let command = CommandRecord::new(owner, kind, shared.backend.now().after(left));
    match within(TAKEN, shared.ask(|backend| backend.put_command(command.clone()))).await {
        Ok(CommandPut::Put(_)) => {}
        Ok(CommandPut::Gone) => return Ok(CommandResult::Withdrawn),
        Ok(CommandPut::Full) => return Err(FleetError::OwnerBusy { node: command.owner.node }),
        // The backend may have kept the command: it is looked for like any other.
        Err(error) if error.is_unavailable() => {}
        Err(error) => return Err(error.into()),
    }
    end(shared, &command, &mut changes, until).await
}

/// Waits for the result of a command.
async fn end(
    shared: &FleetShared,
    given: &CommandRecord,
    changes: &mut broadcast::Receiver<Change>,
    deadline: Instant,
) -> Result<CommandResult, FleetError> {
    let node = given.owner.node;
    let (mut looked, mut is_gone) = (Instant::now(), false);
    let mut taken = None;
    loop {
        hint(changes, Change::CommandEnded(given.id), LOOK).await;
        let now = Instant::now();
        let waits_no_more = is_gone || now >= deadline;
        let found = if waits_no_more && taken.is_none() {
            shared.ask(|backend| backend.withdraw_command(given.id)).await?
        } else {
            shared.ask(|backend| backend.command(given.id)).await?
        };
        match found.map(|command| command.state) {
            Some(CommandState::Ended { result, .. }) => return Ok(result),
            Some(CommandState::Waiting) => {}
            Some(CommandState::Taken { .. }) => drop(taken.get_or_insert(now)),
            // The command was never kept.
            None if taken.is_none() && waits_no_more => return Ok(CommandResult::Withdrawn),
            // The command is not kept yet, or it takes for so long that it was forgotten.
            None => {}
        }
        if let Some(since) = taken {
            match &given.kind {
                // The session is not awake there any more.
                CommandKind::Passivate | CommandKind::MakeWay if is_gone => {
                    return Ok(CommandResult::Done);
                }
                CommandKind::Warm if is_gone => return Ok(CommandResult::Nothing),
                kind if kind.turn().is_some() && (is_gone || now >= since + RESULT) => {
                    return Err(FleetError::OutcomeUnknown { node });
                }
                _ => {}
            }
        }
        if !is_gone && now >= looked + LOOK_AT_OWNER {
            looked = now;
            let owns = owner(shared, &given.owner.name).await?.is_some_and(|(owner, _)| owner == given.owner);
            // True if the owner cannot take the command any more, or, if it has taken the command, cannot say what has become of it.
            is_gone = match taken {
                // The owner may have given the name back, and still write the result of what it has done in the turn.
                Some(_) if given.kind.turn().is_some() && !owns => !shared.is_alive(node).await?,
                _ => !owns,
            };
        }
    }
}
