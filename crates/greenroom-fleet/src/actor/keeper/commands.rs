//! Commands of other nodes to sessions that this node owns.
//!
//! ```text
//!  listed ── take_command ──► taken ── a message to the name's actor ──► its answer ── finish_command ──► the caller reads the result
//!              └── another owner, the deadline ──► withdrawn
//! ```
//!
//! A command is taken before its message is sent, so no other owner carries it out again. If this node is lost in between, nobody
//! carries it out, and the caller learns that its outcome is not known.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::steps::KeeperContext;
use super::{LOOK, NextMoment, SECOND, SendToName, locked};
use crate::actor::context::FleetShared;
use crate::actor::name::NameMessage;
use crate::actor::retry::repeat;
use crate::backend::Requests;
use crate::id::AttemptId;
use crate::record::{CommandKind, CommandRecord, CommandResult};
use crate::request::Owned;

/// The time for which a session stays asleep after it has made way: the caller quarantines or deletes the name meanwhile.
const MADE_WAY: Duration = Duration::from_secs(2);
/// Characters of an error that are kept for the caller.
const WHY: usize = 1000;

impl KeeperContext {
    /// Begins to carry out the commands that wait for this node.
    pub(super) async fn carry_out_commands(&self, is_hinted: bool) -> NextMoment {
        let shared = &self.shared;
        let next = Instant::now() + if shared.has_peers() { SECOND } else { LOOK };
        // Other nodes give commands to owners only.
        let may_wait = shared.has_peers() && !shared.awake().is_empty();
        if shared.backend.is_exclusive() || !(is_hinted || may_wait) {
            return Ok(next);
        }
        for command in shared.backend.commands(shared.node, CommandRecord::NODE).await? {
            let id = command.id;
            if locked(&self.commands).insert(id) {
                let (fleet, send, under_way) = (shared.clone(), self.send.clone(), self.commands.clone());
                shared.tasks.spawn(async move {
                    let carried_out =
                        AssertUnwindSafe(carry_out(&fleet, &send, command)).catch_unwind().await;
                    locked(&under_way).remove(&id);
                    if let Err(panic) = carried_out {
                        std::panic::resume_unwind(panic);
                    }
                });
            }
        }
        Ok(next)
    }
}

/// Takes a command, carries it out, and writes its result.
async fn carry_out(shared: &FleetShared, send: &SendToName, command: CommandRecord) {
    let (id, attempt) = (command.id, AttemptId::new());
    match repeat(shared, || shared.backend.take_command(id, command.owner.clone(), attempt)).await {
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
    let is_to_make_way = command.kind == CommandKind::MakeWay;
    // The session is not activated while the guard is kept.
    let (_guard, hold) = oneshot::channel();
    let result = result_of(send, command, hold).await;
    if let Err(error) = repeat(shared, || shared.backend.finish_command(id, attempt, result.clone())).await {
        tracing::warn!(command = %id, %error, "the result of a command could not be kept; its caller does not learn it");
    }
    if is_to_make_way {
        tokio::time::sleep(MADE_WAY).await;
    }
}

/// Has the name's actor do it.
async fn result_of(send: &SendToName, command: CommandRecord, hold: oneshot::Receiver<()>) -> CommandResult {
    if let CommandKind::Interrupt { prompt } = command.kind {
        let (done, answer) = oneshot::channel();
        send(command.owner.name, NameMessage::Interrupt { prompt: Some(prompt), done });
        return match answer.await {
            Ok(Ok(true)) => CommandResult::Done,
            Ok(Err(error)) => CommandResult::Failed { why: error.to_string().chars().take(WHY).collect() },
            // An error: the name is passive, or its actor has ended before it read the message.
            Ok(Ok(false)) | Err(_) => CommandResult::Nothing,
        };
    }
    let (done, answer) = oneshot::channel();
    send(
        command.owner.name,
        match command.kind {
            CommandKind::MakeWay => NameMessage::MakeWay { hold, done },
            _ => NameMessage::Passivate(done),
        },
    );
    if answer.await.unwrap_or(false) { CommandResult::Done } else { CommandResult::Nothing }
}
