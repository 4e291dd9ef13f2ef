//! Commands to a session that another node owns.
//!
//! The command goes through the backend, and its result comes back the same way. A lost hint costs the caller a fifth of a second and
//! the owner one second.

use std::time::Duration;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep, timeout};

use crate::actor::context::{ATTEMPTS, FleetShared};
use crate::backend::Requests;
use crate::error::{BackendError, BackendErrorKind, FleetError};
use crate::id::{CommandId, Name, NodeId, PromptId, Term};
use crate::record::{CommandKind, CommandRecord, CommandResult, CommandState, NameRecord, NameState};
use crate::request::{Change, CommandPut, PutCommand};

/// The time in which the owner has to take a command, and in which the backend has to say who the owner is.
const TAKEN: Duration = Duration::from_secs(10);
/// The longest wait for the result of an interrupt that the owner has taken.
const RESULT: Duration = Duration::from_secs(30);
/// The pause between two looks at the command, and between two looks at its owner.
const LOOK: Duration = Duration::from_millis(200);
const LOOK_AT_OWNER: Duration = Duration::from_secs(1);
/// The pause before a session is looked at again whose owner has changed.
const AGAIN: Duration = Duration::from_millis(50);

/// The thing that the owner is to do.
#[derive(Clone, Copy, Debug)]
pub(super) enum WantedCommand {
    /// Interrupt the turn of this prompt, or the turn that runs.
    Interrupt(Option<PromptId>),
    Passivate,
    MakeWay,
}

/// The end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Commanded {
    /// The owner has done it.
    Done,
    /// There was nothing to do: no such turn runs, or the session is asleep.
    Nothing,
    /// This node owns the session since the command was given.
    Here(Option<PromptId>),
}

/// Gives a command to the node that owns the session, if another one does, and waits for its result.
///
/// # Errors
/// [`FleetError::OwnerSilent`] if the owner does not take the command in time, [`FleetError::OwnerFailed`] if it cannot do it,
/// [`FleetError::OutcomeUnknown`] if it is lost meanwhile; [`FleetError::State`] if too many commands wait; [`FleetError::Backend`].
pub(super) async fn command(
    shared: &FleetShared,
    name: &Name,
    mut wanted: WantedCommand,
) -> Result<Commanded, FleetError> {
    if shared.backend.is_exclusive() {
        return Ok(Commanded::Nothing);
    }
    let start = Instant::now();
    // The owner to which the command was given last. It has not taken the command.
    let mut silent = None;
    loop {
        let Some((record, node)) = owner(shared, name).await? else {
            return Ok(Commanded::Nothing);
        };
        let kind = match &mut wanted {
            WantedCommand::Passivate => CommandKind::Passivate,
            WantedCommand::MakeWay => CommandKind::MakeWay,
            // The first look decides which turn is meant, so that no later one is hit.
            WantedCommand::Interrupt(prompt) => match record.running {
                Some(running) if *prompt.get_or_insert(running) == running => {
                    CommandKind::Interrupt { prompt: running }
                }
                _ => return Ok(Commanded::Nothing),
            },
        };
        if node == shared.node {
            let prompt = if let WantedCommand::Interrupt(prompt) = wanted { prompt } else { None };
            // The first time the actor here has just said that there is nothing to do.
            return Ok(if silent.is_some() { Commanded::Here(prompt) } else { Commanded::Nothing });
        }
        let left = TAKEN.saturating_sub(start.elapsed());
        if let Some(node) = silent.filter(|_| left.is_zero()) {
            return Err(FleetError::OwnerSilent { node });
        }
        if let Some(end) = give(shared, &record, node, kind, left).await? {
            return Ok(end);
        }
        silent = Some(node);
        sleep(AGAIN).await;
    }
}

/// Has the owner end the session at once, for a quarantine or a deletion, which then comes before the next activation. Returns when
/// the caller may try again.
///
/// # Errors
/// [`FleetError::Elsewhere`] if nodes claimed the session anew after each of `ATTEMPTS` commands; those of [`command`].
pub(super) async fn make_way_at(
    shared: &FleetShared,
    name: &Name,
    owner: NodeId,
    asked: &mut u32,
) -> Result<(), FleetError> {
    if owner != shared.node {
        if *asked == ATTEMPTS {
            return Err(FleetError::Elsewhere { node: owner });
        }
        *asked += 1;
        if command(shared, name, WantedCommand::MakeWay).await? == Commanded::Done {
            return Ok(());
        }
    }
    sleep(AGAIN).await;
    Ok(())
}

/// The living node that owns a session, with the session's record.
async fn owner(shared: &FleetShared, name: &Name) -> Result<Option<(NameRecord, NodeId)>, FleetError> {
    let look = async {
        let Some(record) = shared.ask(|backend| backend.name_record(name.clone())).await? else {
            return Ok(None);
        };
        let NameState::Owned { node, .. } = record.state else { return Ok(None) };
        let lives = node == shared.node || shared.owner_elsewhere(&record.state).await?.is_some();
        Ok(lives.then_some((record, node)))
    };
    timeout(TAKEN, look).await.unwrap_or_else(|_| Err(late()))
}

/// Gives a command to an owner. `None`: the owner has not taken it, and never will.
async fn give(
    shared: &FleetShared,
    record: &NameRecord,
    node: NodeId,
    kind: CommandKind,
    left: Duration,
) -> Result<Option<Commanded>, FleetError> {
    let mut changes = shared.backend.changes();
    let (command, deadline) = (CommandId::new(), shared.backend.now().after(left));
    let (name, term, until) = (record.name.clone(), record.term, Instant::now() + left);
    let put = PutCommand { command, name, node, term, kind, deadline };
    match timeout(TAKEN, shared.ask(|backend| backend.put_command(put.clone()))).await {
        Ok(Ok(CommandPut::Put(_))) => {}
        Ok(Ok(CommandPut::Gone)) => return Ok(None),
        Ok(Ok(CommandPut::Full)) => return Err(full(node)),
        Ok(Err(error)) if error.kind() != BackendErrorKind::Unavailable => return Err(error.into()),
        // The backend may have kept the command: it is looked for like any other.
        Ok(Err(_)) | Err(_) => {}
    }
    let given = Given { shared, command, name: &record.name, node, term, kind };
    given.end(&mut changes, until).await
}

/// A command that was given.
struct Given<'a> {
    shared: &'a FleetShared,
    command: CommandId,
    name: &'a Name,
    node: NodeId,
    term: Term,
    kind: CommandKind,
}

impl Given<'_> {
    /// Waits for the end of the command. `None`: nobody has taken it, and nobody will.
    async fn end(
        &self,
        changes: &mut broadcast::Receiver<Change>,
        deadline: Instant,
    ) -> Result<Option<Commanded>, FleetError> {
        let shared = self.shared;
        let (mut looked, mut is_gone) = (Instant::now(), false);
        let mut taken = None;
        loop {
            // An error: the hint was lost, or there is nothing to hear of yet.
            timeout(LOOK, ended(changes, self.command)).await.ok();
            let now = Instant::now();
            let waits_no_more = is_gone || now >= deadline;
            let found = if waits_no_more && taken.is_none() {
                shared.ask(|backend| backend.withdraw_command(self.command)).await?
            } else {
                shared.ask(|backend| backend.command(self.command)).await?
            };
            match found.map(|command: CommandRecord| command.state) {
                Some(CommandState::Ended { result, .. }) => return self.result(result),
                Some(CommandState::Waiting) => {}
                Some(CommandState::Taken { .. }) => drop(taken.get_or_insert(now)),
                // The command was never kept.
                None if taken.is_none() && waits_no_more => return Ok(None),
                // The command is not kept yet, or it takes for so long that it was forgotten.
                None => {}
            }
            if let Some(since) = taken {
                match self.kind {
                    // The session is not awake there any more.
                    CommandKind::Passivate | CommandKind::MakeWay if is_gone => {
                        return Ok(Some(Commanded::Done));
                    }
                    CommandKind::Interrupt { .. } if is_gone || now >= since + RESULT => {
                        return Err(FleetError::OutcomeUnknown { node: self.node });
                    }
                    _ => {}
                }
            }
            if !is_gone && now >= looked + LOOK_AT_OWNER {
                looked = now;
                is_gone = self.is_gone(taken.is_some()).await?;
            }
        }
    }

    /// True if the owner cannot take the command any more, or, if it has taken the command, cannot say what has become of it.
    async fn is_gone(&self, taken: bool) -> Result<bool, FleetError> {
        let owner = owner(self.shared, self.name).await?;
        let owns = owner.is_some_and(|(record, node)| node == self.node && record.term == self.term);
        match self.kind {
            // The owner may have given the name back, and still write the result of the interrupt.
            CommandKind::Interrupt { .. } if taken && !owns => Ok(!self.shared.is_alive(self.node).await?),
            _ => Ok(!owns),
        }
    }

    fn result(&self, result: CommandResult) -> Result<Option<Commanded>, FleetError> {
        match result {
            CommandResult::Done => Ok(Some(Commanded::Done)),
            CommandResult::Nothing => Ok(Some(Commanded::Nothing)),
            CommandResult::Failed { why } => Err(FleetError::OwnerFailed { node: self.node, why }),
            CommandResult::Withdrawn => Ok(None),
        }
    }
}

/// Waits for a hint that a command has its result.
async fn ended(changes: &mut broadcast::Receiver<Change>, command: CommandId) {
    loop {
        match changes.recv().await {
            Ok(Change::CommandEnded(id)) if id == command => return,
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => return,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

fn full(node: NodeId) -> FleetError {
    FleetError::State(format!(
        "the session or its node {node} has too many commands that have not ended: try again when some have"
    ))
}

fn late() -> FleetError {
    let text = format!("the backend has not said within {TAKEN:?} who owns the session");
    FleetError::Backend(BackendError::new(BackendErrorKind::Unavailable, text))
}
