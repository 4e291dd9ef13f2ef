//! Add and remove MCP servers while a session runs.
//!
//! ```text
//!             not ready, a clash of names: an error
//!   change ──┬──────────────────────────────────────────────────────────────► done
//!            │  new children serve, their queues are open                      ▲
//!            ▼                                                                  │
//!         Asking ── the CLI took it ──► removed servers leave ────┐             │
//!            │                                                    ├── Leaving ──┘
//!            └── refused, no answer,  ► new servers leave ────────┘   told to stop: their calls in flight are answered,
//!                the CLI ended          (the CLI is told to           handlers get their grace time, then the actors
//!                                       forget them, if it lives)     are killed
//! ```
//!
//! Changes are made one at a time: the caller holds `Shared::changing`, and the guard travels with the change until the
//! change is done. So the supervisor needs no queue of changes. A change whose caller stops waiting goes on.
//!
//! The CLI's answer counts only while its incarnation lives. When the incarnation ends first, the change is undone, and
//! the next CLI is told the servers as they were before: no incarnation begins with a set that is not settled.

use std::sync::Arc;

use ractor::{ActorId, ActorRef};
use tokio::sync::{OwnedMutexGuard, oneshot};
use tokio::time::Instant;

use super::{Handled, SessionStage, SupervisorState};
use crate::actor::base::deadlines::after;
use crate::actor::base::reply::respond;
use crate::actor::base::task::Task;
use crate::actor::context::Shared;
use crate::actor::messages::children::ServerMessage;
use crate::actor::messages::session::{ChangeOutcome, ChangeRequest, Internal};
use crate::actor::router;
use crate::actor::router::client::ask_through;
use crate::actor::servers::roster::{ChangePlan, Roster};
use crate::error::{Error, ErrorKind, Result};
use crate::report::McpSetServersResult;

/// A change in progress.
pub(super) struct Changing {
    number: u64,
    step: ChangeStep,
    /// The servers to go back to.
    before: Arc<Roster>,
    plan: Arc<ChangePlan>,
    reply: oneshot::Sender<Result<McpSetServersResult>>,
    _turn: OwnedMutexGuard<()>,
}

enum ChangeStep {
    /// The CLI was asked and has not answered.
    Asking(#[allow(dead_code, reason = "dropped with the change, which ends the task")] Task),
    /// The change is settled with this result; servers that go are not gone yet.
    Leaving(Result<McpSetServersResult>),
}

/// A removed server whose actor has not ended yet.
pub(super) struct Leaving {
    pub(super) actor: ActorRef<ServerMessage>,
    name: String,
    _limit: Task,
}

impl Changing {
    /// Whether this answer settles the change. An answer that was in the mailbox when the CLI ended does not: the
    /// change is undone already.
    fn awaits(&self, outcome: &ChangeOutcome) -> bool {
        self.number == outcome.number && matches!(self.step, ChangeStep::Asking(_))
    }
}

impl SupervisorState {
    pub(super) async fn change(&mut self, request: ChangeRequest) -> Handled {
        let ChangeRequest { change, reply, turn } = request;
        let before = self.shared.roster();
        let plan = match &self.stage {
            SessionStage::Ready => before.plan(&change, self.shared.options()),
            SessionStage::Stopping { .. } => Err(self.shared.ending.error()),
            SessionStage::Starting | SessionStage::Recovering => {
                Err(Error::new(ErrorKind::NotReady, "the session has no CLI to talk to at this moment"))
            }
        };
        let plan = match plan {
            Ok(plan) => Arc::new(plan),
            Err(error) => {
                respond(reply, Err(error));
                return Ok(());
            }
        };
        // The new servers serve before the CLI hears of them: it may call them at once.
        self.shared.roster.set(plan.meanwhile.clone());
        let new = plan.start.iter().filter_map(|spec| plan.meanwhile.server(&spec.name));
        for server in new {
            let index = self.servers.add(&self.shared, server);
            self.start_server(index).await?;
        }
        self.servers.changes += 1;
        let number = self.servers.changes;
        let (shared, epoch) = (self.shared.clone(), self.cli.epoch());
        let (planned, back) = (plan.clone(), before.clone());
        let asking = Task::spawn(async move {
            let outcome = tell(&shared, epoch, &planned, &back).await;
            shared.tell(Internal::Changed(ChangeOutcome { number, outcome }));
        });
        let step = ChangeStep::Asking(asking);
        self.servers.changing = Some(Changing { number, step, before, plan, reply, _turn: turn });
        Ok(())
    }

    /// The CLI has answered.
    pub(super) fn changed(&mut self, outcome: ChangeOutcome) {
        if self.servers.changing.as_ref().is_some_and(|changing| changing.awaits(&outcome)) {
            self.settle_change(outcome.outcome);
        }
    }

    /// The CLI has ended: undoes a change that it has not answered.
    pub(super) fn change_ends_with_cli(&mut self) {
        if matches!(&self.servers.changing, Some(Changing { step: ChangeStep::Asking(_), .. })) {
            let text = "the CLI ended before it had taken the change of its MCP servers; nothing has changed";
            let error = Error::new(ErrorKind::CliExited, text);
            self.settle_change(Err(if self.stopping() { self.shared.ending.error() } else { error }));
        }
    }

    fn settle_change(&mut self, outcome: Result<(McpSetServersResult, Vec<String>)>) {
        let Some(Changing { number, before, plan, reply, _turn, .. }) = self.servers.changing.take() else {
            return;
        };
        let (roster, gone, outcome) = match outcome {
            Ok((result, failed)) if failed.is_empty() => (plan.target.clone(), plan.stop.clone(), Ok(result)),
            Ok((result, failed)) => {
                let roster = Arc::new(plan.target.without(&failed));
                (roster, [plan.stop.clone(), failed].concat(), Ok(result))
            }
            Err(error) => {
                let new = plan.start.iter().map(|spec| spec.name.clone()).collect();
                (before.clone(), new, Err(error))
            }
        };
        self.shared.roster.set(roster);
        // A session that stops ends its servers in a later step.
        if !self.stopping() {
            gone.into_iter().for_each(|name| self.leave(name));
        }
        self.servers.changing =
            Some(Changing { number, step: ChangeStep::Leaving(outcome), before, plan, reply, _turn });
        self.check_leaving();
    }

    /// Removes a server: closes its queue, and tells its actor to stop.
    fn leave(&mut self, name: String) {
        let Some(index) = self.servers.find(&name) else { return };
        let server = self.servers.children.remove(index);
        server.inside.queue.close();
        let Some(actor) = server.actor.actor().cloned() else { return };
        // The end of an actor that has just ended is still to come.
        actor.cast(ServerMessage::Stop).ok();
        let timeouts = &self.shared.options().timeouts;
        let deadline = after(Instant::now(), timeouts.cancel_grace + timeouts.child_stop);
        let (cell, span, server) = (actor.get_cell(), self.shared.span.clone(), name.clone());
        let limit = Task::spawn(async move {
            tokio::time::sleep_until(deadline).await;
            tracing::warn!(parent: &span, server, "a removed MCP server took too long to stop; it is killed");
            cell.kill();
        });
        self.servers.leaving.push(Leaving { actor, name, _limit: limit });
    }

    /// Notes the end of a removed server; false if the actor is not one.
    pub(super) fn has_left(&mut self, id: ActorId) -> bool {
        let Some(index) = self.servers.leaving.iter().position(|leaving| leaving.actor.get_id() == id) else {
            return false;
        };
        let left = self.servers.leaving.remove(index);
        tracing::debug!(parent: &self.shared.span, server = left.name, "an MCP server has left");
        self.check_leaving();
        true
    }

    /// Answers the caller once all removed servers are gone.
    fn check_leaving(&mut self) {
        let done = |changing: &mut Changing| matches!(changing.step, ChangeStep::Leaving(_));
        if self.servers.leaving.is_empty()
            && let Some(Changing { step: ChangeStep::Leaving(outcome), reply, _turn, .. }) =
                self.servers.changing.take_if(done)
        {
            // Before the reply: its receiver may ask for the next change at once.
            drop(_turn);
            respond(reply, outcome);
        }
    }
}

/// Tells the CLI its servers. New servers that the change needs and that the CLI could not take are removed from the
/// CLI again; their names are returned.
async fn tell(
    shared: &Shared,
    epoch: u64,
    plan: &ChangePlan,
    before: &Roster,
) -> Result<(McpSetServersResult, Vec<String>)> {
    let limit = shared.options().timeouts.control_request;
    let asked = router::ask(shared, plan.target.request(), limit).await;
    let mut result = match asked.and_then(|answer| McpSetServersResult::parse(&answer)) {
        Ok(result) => result,
        Err(error) => {
            // A refusal changes nothing. Without an answer the CLI may have taken the change, or may still take it.
            if error.kind() != ErrorKind::Refused {
                restore(shared, epoch, before).await;
            }
            return Err(error);
        }
    };
    let failed: Vec<_> =
        plan.needed.iter().filter(|name| result.errors.contains_key(*name)).cloned().collect();
    if failed.is_empty() {
        return Ok((result, failed));
    }
    restore(shared, epoch, &plan.target.without(&failed)).await;
    let reason = result.reasons().find(|(name, _)| failed.contains(*name));
    if let (true, [_], Some((name, reason))) = (plan.alone, &*failed, reason) {
        let text = format!("the CLI could not connect to the MCP server '{name}': {reason}");
        return Err(Error::new(ErrorKind::Refused, text));
    }
    result.added.retain(|name| !failed.contains(name));
    Ok((result, failed))
}

/// Sets the CLI's servers back to `roster`.
async fn restore(shared: &Shared, epoch: u64, roster: &Roster) {
    let deadline = after(Instant::now(), shared.options().timeouts.control_request);
    if let Err(error) = ask_through(shared, epoch, roster.request(), deadline).await {
        tracing::warn!(parent: &shared.span, %error, "the CLI's MCP servers could not be set back");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::actor::servers::roster::ServerChange;

    #[tokio::test]
    async fn a_change_is_settled_once() {
        let options = Options::default();
        let before = Arc::new(Roster::new(Vec::new(), &options));
        let nothing = ServerChange::Replace { additions: Vec::new(), kept: Vec::new() };
        let plan = Arc::new(before.plan(&nothing, &options).unwrap());
        let turn = Arc::new(tokio::sync::Mutex::new(())).lock_owned().await;
        let step = ChangeStep::Asking(Task::spawn(async {}));
        let reply = oneshot::channel().0;
        let mut changing = Changing { number: 2, step, before, plan, reply, _turn: turn };
        let told = |number| ChangeOutcome { number, outcome: Err(Error::new(ErrorKind::Timeout, "")) };
        assert!(changing.awaits(&told(2)) && !changing.awaits(&told(1)));
        changing.step = ChangeStep::Leaving(Err(Error::new(ErrorKind::CliExited, "")));
        assert!(!changing.awaits(&told(2)), "the change was undone when the CLI ended");
    }
}
