//! How MCP servers come and go while a session runs.
//!
//! ```text
//!             not ready, a clash of names: an error
//!   change ──┬──────────────────────────────────────────────────────────────► done
//!            │  new children serve, their gates are open                        ▲
//!            ▼                                                                  │
//!         Asking ── the CLI took it ──► what was removed leaves ──┐             │
//!            │                                                    ├── Leaving ──┘
//!            └── refused, no answer,  ► what was new leaves ──────┘   told to stop: what it owes is answered,
//!                the CLI ended          (the CLI is told to           handlers get their grace time, then it
//!                                       forget it, if it lives)       is killed
//! ```
//!
//! One change at a time: whoever asks holds the session's turn to change, which travels with the change and comes back
//! when it is done. So none waits in here. A change that was begun goes on when nobody waits for it any more.
//!
//! The CLI's answer counts only while its incarnation lives: when that one ends first, the change is undone, and the
//! next one is told of the servers as they were. So no incarnation begins with a set that is not settled.

use std::sync::Arc;

use ractor::{ActorId, ActorRef};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::sync::{OwnedMutexGuard, oneshot};
use tokio::time::Instant;

use super::{Handled, Server, State, SupervisorState};
use crate::actor::mcp_server::ServerMessage;
use crate::actor::message::{Internal, SessionMessage};
use crate::actor::restart::RestartWindow;
use crate::actor::roster::{Change, Plan, Roster};
use crate::actor::router::{self, RouterMessage};
use crate::actor::shared::Shared;
use crate::actor::work::{Task, after};
use crate::error::{Error, ErrorKind, Result};
use crate::report::{McpSetServersResult, ServerStatus};
use crate::tool::instance::{BlockingLane, drop_elsewhere};
use crate::tool::server::ServerSpec;

/// What is asked of the supervisor.
pub(crate) struct ChangeRequest {
    pub(crate) change: Change,
    pub(crate) reply: Reply,
    /// No other change begins while this one is held.
    pub(crate) turn: OwnedMutexGuard<()>,
}

type Reply = oneshot::Sender<Result<McpSetServersResult>>;

/// A change on its way.
pub(super) struct Changing {
    number: u64,
    step: Step,
    before: Arc<Roster>,
    plan: Arc<Plan>,
    reply: Reply,
    _turn: OwnedMutexGuard<()>,
}

enum Step {
    Asking(#[allow(dead_code, reason = "it is held, and ends with the change")] Task),
    Leaving(Result<McpSetServersResult>),
}

/// A server on its way out.
pub(super) struct Leaving {
    pub(super) actor: ActorRef<ServerMessage>,
    name: String,
    _limit: Task,
}

/// What the CLI made of a change.
pub(crate) struct Told {
    number: u64,
    /// With the new ones that it could not take.
    outcome: Result<(McpSetServersResult, Vec<String>)>,
}

impl Changing {
    /// Whether this settles it. What was on its way when the CLI ended does not: the change is undone already.
    fn awaits(&self, told: &Told) -> bool {
        self.number == told.number && matches!(self.step, Step::Asking(_))
    }
}

impl SupervisorState {
    pub(super) async fn change(&mut self, request: ChangeRequest) -> Handled {
        let ChangeRequest { change, reply, turn } = request;
        let before = self.shared.roster();
        let plan = match &self.phase {
            State::Ready => before.plan(&change, self.shared.options()),
            State::Stopping { .. } => Err(self.shared.gone()),
            State::Starting | State::Recovering => {
                Err(Error::new(ErrorKind::NotReady, "the session has no CLI to talk to at this moment"))
            }
        };
        let plan = match plan {
            Ok(plan) => Arc::new(plan),
            Err(error) => {
                drop_elsewhere(change);
                // Whoever asked may have stopped waiting; here and below.
                reply.send(Err(error)).ok();
                return Ok(());
            }
        };
        // They serve before the CLI hears of them, for it may ask them at once.
        self.shared.roster.send_replace(plan.meanwhile.clone());
        for spec in &plan.start {
            let random = SmallRng::from_rng(&mut self.random);
            let window = RestartWindow::new(self.shared.options().restarts.server.clone(), random);
            let places = self.shared.options().limits.blocking_calls;
            self.servers.push(Server::new(spec.clone(), window, BlockingLane::new(places)));
            self.start_server(self.servers.len() - 1).await?;
        }
        self.changes += 1;
        let number = self.changes;
        let (shared, myself) = (self.shared.clone(), self.myself.clone());
        let (planned, back) = (plan.clone(), before.clone());
        let asking = Task::spawn(async move {
            let outcome = tell(&shared, &planned, &back).await;
            let told = Internal::Changed(Told { number, outcome });
            // A supervisor that has ended has no servers.
            myself.cast(SessionMessage::Internal(told)).ok();
        });
        let step = Step::Asking(asking);
        self.changing = Some(Changing { number, step, before, plan, reply, _turn: turn });
        Ok(())
    }

    /// The CLI has said what it makes of the change.
    pub(super) fn changed(&mut self, told: Told) {
        if self.changing.as_ref().is_some_and(|changing| changing.awaits(&told)) {
            self.settle_change(told.outcome);
        }
    }

    /// The CLI has ended; one that was asked says nothing any more.
    pub(super) fn change_ends_with_cli(&mut self) {
        if matches!(&self.changing, Some(Changing { step: Step::Asking(_), .. })) {
            let text = "the CLI ended before it had taken the change of its MCP servers; nothing has changed";
            let error = Error::new(ErrorKind::CliExited, text);
            self.settle_change(Err(if self.stopping() { self.shared.gone() } else { error }));
        }
    }

    fn settle_change(&mut self, outcome: Result<(McpSetServersResult, Vec<String>)>) {
        let Some(Changing { number, before, plan, reply, _turn, .. }) = self.changing.take() else { return };
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
        self.shared.roster.send_replace(roster);
        // A session that stops tells its servers so itself.
        if !self.stopping() {
            gone.into_iter().for_each(|name| self.leave(name));
        }
        self.changing = Some(Changing { number, step: Step::Leaving(outcome), before, plan, reply, _turn });
        self.check_leaving();
    }

    /// Takes a server out: the router knows it no more, and its actor comes to its end.
    fn leave(&mut self, name: String) {
        self.tell_router(RouterMessage::ServerRemoved { server: name.clone() });
        let Some(index) = self.servers.iter().position(|server| server.spec.name == name) else { return };
        let Some(actor) = self.servers.remove(index).actor else { return };
        // One that has just ended is noticed like the others.
        actor.cast(ServerMessage::Stop).ok();
        let timeouts = &self.shared.options().timeouts;
        let deadline = after(Instant::now(), timeouts.cancel_grace + timeouts.child_stop);
        let (cell, span, server) = (actor.get_cell(), self.shared.span.clone(), name.clone());
        let limit = Task::spawn(async move {
            tokio::time::sleep_until(deadline).await;
            tracing::warn!(parent: &span, server, "a removed MCP server took too long to stop; it is killed");
            cell.kill();
        });
        self.leaving.push(Leaving { actor, name, _limit: limit });
    }

    /// Whether this was a server on its way out; it is gone then.
    pub(super) fn has_left(&mut self, id: ActorId) -> bool {
        let Some(index) = self.leaving.iter().position(|leaving| leaving.actor.get_id() == id) else {
            return false;
        };
        let left = self.leaving.remove(index);
        tracing::debug!(parent: &self.shared.span, server = left.name, "an MCP server has left");
        self.check_leaving();
        true
    }

    /// Answers whoever asked for the change once nothing of it is left to do.
    fn check_leaving(&mut self) {
        let done = |changing: &mut Changing| matches!(changing.step, Step::Leaving(_));
        if self.leaving.is_empty()
            && let Some(Changing { step: Step::Leaving(outcome), before, plan, reply, _turn, .. }) =
                self.changing.take_if(done)
        {
            // They have kept what has left, whose handlers are the application's, until its actor was gone.
            drop_elsewhere((before, plan));
            // First the turn: whoever hears of the end may ask for the next change.
            drop(_turn);
            reply.send(outcome).ok();
        }
    }
}

impl Server {
    pub(super) fn new(spec: Arc<ServerSpec>, window: RestartWindow, blocking: Arc<BlockingLane>) -> Self {
        Self {
            spec,
            actor: None,
            generation: 0,
            window,
            status: ServerStatus::Restarting,
            blocking,
            cause: String::new(),
            barren: 0,
            timer: None,
        }
    }
}

/// Tells the CLI its servers. What it could not take although the change needs it, it is told to forget.
async fn tell(shared: &Shared, plan: &Plan, before: &Roster) -> Result<(McpSetServersResult, Vec<String>)> {
    let limit = shared.options().timeouts.control_request;
    let asked = router::ask(shared, plan.target.request(), limit).await;
    let mut result = match asked.and_then(|answer| McpSetServersResult::parse(&answer)) {
        Ok(result) => result,
        Err(error) => {
            // A refusal changes nothing. Without an answer it may have taken the change, or may do so yet.
            if error.kind() != ErrorKind::Refused {
                restore(shared, before).await;
            }
            return Err(error);
        }
    };
    let failed: Vec<_> =
        plan.needed.iter().filter(|name| result.errors.contains_key(*name)).cloned().collect();
    if failed.is_empty() {
        return Ok((result, failed));
    }
    restore(shared, &plan.target.without(&failed)).await;
    if let (true, [name]) = (plan.alone, &*failed) {
        let reason = &result.errors[name];
        let text = format!("the CLI could not connect to the MCP server '{name}': {reason}");
        return Err(Error::new(ErrorKind::Refused, text));
    }
    result.added.retain(|name| !failed.contains(name));
    Ok((result, failed))
}

/// Makes the CLI's servers these again. It asks every router that there is until the CLI has answered.
async fn restore(shared: &Shared, roster: &Roster) {
    let limit = shared.options().timeouts.control_request;
    let deadline = after(Instant::now(), limit);
    let mut routers = shared.router.subscribe();
    loop {
        routers.mark_unchanged();
        match router::ask(shared, roster.request(), limit).await {
            Ok(_) => return,
            Err(error) if error.kind() == ErrorKind::NotReady && Instant::now() < deadline => {
                // Without a next router there is nobody to ask, and the limit passes.
                tokio::time::timeout_at(deadline, routers.changed()).await.ok();
            }
            Err(error) => {
                tracing::warn!(parent: &shared.span, %error, "the CLI's MCP servers could not be set back");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    #[tokio::test]
    async fn a_change_is_settled_once() {
        let options = Options::default();
        let before = Arc::new(Roster::new(Vec::new(), &options));
        let nothing = Change::Replace { additions: Vec::new(), kept: Vec::new() };
        let plan = Arc::new(before.plan(&nothing, &options).unwrap());
        let turn = Arc::new(tokio::sync::Mutex::new(())).lock_owned().await;
        let step = Step::Asking(Task::spawn(async {}));
        let reply = oneshot::channel().0;
        let mut changing = Changing { number: 2, step, before, plan, reply, _turn: turn };
        let told = |number| Told { number, outcome: Err(Error::new(ErrorKind::Timeout, "")) };
        assert!(changing.awaits(&told(2)) && !changing.awaits(&told(1)));
        changing.step = Step::Leaving(Err(Error::new(ErrorKind::CliExited, "")));
        assert!(!changing.awaits(&told(2)), "it has ended with the CLI");
    }
}
