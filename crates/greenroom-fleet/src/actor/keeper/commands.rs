//! Commands of other nodes to sessions that this node owns.
//!
//! ```text
//!  listed ── take_command ──► taken ── a message to the name's actor ──► its answer ── finish_command ──► the caller reads the result
//!              └── another owner, the deadline ──► withdrawn
//! ```
//!
//! A command is taken before its message is sent, so no other owner carries it out again. If this node is lost in between, nobody
//! carries it out, and the caller learns that its outcome is not known.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::SendToName;
use super::duty::{LOOK, NextMoment, SECOND, locked};
use crate::actor::context::FleetShared;
use crate::actor::name::NameMessage;
use crate::actor::retry::repeat;
use crate::backend::Requests;
use crate::id::{AttemptId, CommandId};
use crate::record::{CommandKind, CommandRecord, CommandResult};
use crate::request::{Owned, Ownership, PutCommand, TakeCommand};

/// The time for which a session stays asleep after it has made way: the caller quarantines or deletes the name meanwhile.
const MADE_WAY: Duration = Duration::from_secs(2);
/// Characters of an error that are kept for the caller.
const WHY: usize = 1000;

/// The commands of a keeper.
#[derive(Default)]
pub(super) struct Commands {
    /// A hint has come since the last look.
    hinted: AtomicBool,
    /// Commands that are on their way: the backend may still list them.
    under_way: Arc<Mutex<HashSet<CommandId>>>,
}

impl Commands {
    pub(super) fn hint(&self) {
        self.hinted.store(true, Ordering::Release);
    }

    /// Begins to carry out the commands that wait for this node.
    pub(super) async fn carry_out(&self, shared: &Arc<FleetShared>, send: &SendToName) -> NextMoment {
        let next = Instant::now() + if shared.has_peers() { SECOND } else { LOOK };
        // Other nodes give commands to owners only.
        let may_wait = shared.has_peers() && shared.owns_some();
        if shared.backend.is_exclusive() || !(self.hinted.swap(false, Ordering::AcqRel) || may_wait) {
            return Ok(next);
        }
        let waiting = shared.backend.commands(shared.node, PutCommand::NODE).await;
        for command in waiting.inspect_err(|_| self.hint())? {
            if locked(&self.under_way).insert(command.id) {
                let (fleet, send) = (shared.clone(), send.clone());
                let place = CommandUnderWay { of: self.under_way.clone(), command: command.id };
                shared.tasks.spawn(async move {
                    carry_out(&fleet, &send, command).await;
                    drop(place);
                });
            }
        }
        Ok(next)
    }
}

/// The place of a command among those that are under way.
struct CommandUnderWay {
    of: Arc<Mutex<HashSet<CommandId>>>,
    command: CommandId,
}

impl Drop for CommandUnderWay {
    fn drop(&mut self) {
        locked(&self.of).remove(&self.command);
    }
}

/// Takes a command, carries it out, and writes its result.
async fn carry_out(shared: &FleetShared, send: &SendToName, command: CommandRecord) {
    let (id, attempt) = (command.id, AttemptId::new());
    let owner = Ownership { name: command.name.clone(), node: command.node, term: command.term };
    let take = TakeCommand { command: id, owner, attempt };
    match repeat(shared, || shared.backend.take_command(take.clone())).await {
        Ok(Owned::Done(true)) => {}
        Ok(Owned::Done(false) | Owned::Fenced) => {
            // Nobody takes the command any more, so the caller need not wait for its deadline.
            if let Err(error) = repeat(shared, || shared.backend.withdraw_command(id)).await {
                tracing::debug!(command = %id, %error, "a command could not be withdrawn; its caller does so");
            }
            return;
        }
        Err(error) => {
            tracing::debug!(command = %id, %error, "a command could not be taken");
            return;
        }
    }
    if !shared.holds_lease() {
        // The session is being killed, and its turn ends with its owner.
        return;
    }
    let (result, guard) = result_of(send, command).await;
    if let Err(error) = repeat(shared, || shared.backend.finish_command(id, attempt, result.clone())).await {
        tracing::warn!(command = %id, %error, "the result of a command could not be kept; its caller does not learn it");
    }
    if guard.is_some() {
        tokio::time::sleep(MADE_WAY).await;
    }
}

/// Has the name's actor do it. The session is not activated while the guard is kept.
async fn result_of(
    send: &SendToName,
    command: CommandRecord,
) -> (CommandResult, Option<oneshot::Sender<()>>) {
    let nothing_or = |done: bool| if done { CommandResult::Done } else { CommandResult::Nothing };
    match command.kind {
        CommandKind::Interrupt { prompt } => {
            let (done, answer) = oneshot::channel();
            send(command.name, NameMessage::Interrupt { prompt: Some(prompt), done });
            let result = match answer.await {
                Ok(Ok(interrupted)) => nothing_or(interrupted),
                Ok(Err(error)) => {
                    CommandResult::Failed { why: error.to_string().chars().take(WHY).collect() }
                }
                // The name is passive, or its actor has ended before it read the message.
                Err(_) => CommandResult::Nothing,
            };
            (result, None)
        }
        CommandKind::Passivate => {
            let (done, answer) = oneshot::channel();
            send(command.name, NameMessage::Passivate(done));
            (nothing_or(answer.await.unwrap_or(false)), None)
        }
        CommandKind::MakeWay => {
            let (done, answer) = oneshot::channel();
            let (guard, hold) = oneshot::channel();
            send(command.name, NameMessage::MakeWay { hold, done });
            (nothing_or(answer.await.unwrap_or(false)), Some(guard))
        }
    }
}
