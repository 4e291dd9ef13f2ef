//! Start tool servers, and restart the servers that end or have no state.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fastrand::Rng;
use ractor::ActorRef;
use tokio::time::Instant;

use super::changing::{Changing, Leaving};
use super::child::{ChildActor, ChildEnd};
use super::{Handled, SessionStage, SupervisorState, later};
use crate::actor::base::reply::telling;
use crate::actor::base::restart_window::{RestartWindow, Verdict};
use crate::actor::base::task::Task;
use crate::actor::context::Shared;
use crate::actor::mcp_server::{McpServer, ServerArguments};
use crate::actor::messages::children::ServerMessage;
use crate::actor::messages::session::Internal;
use crate::actor::servers::roster::InsideServer;
use crate::error::{Error, ErrorKind};
use crate::report::{Event, ServerSnapshot, ServerStatus};

/// A tool server of the session.
pub(super) struct ServerChild {
    pub(super) inside: Arc<InsideServer>,
    pub(super) actor: ChildActor<ServerMessage>,
    window: RestartWindow,
    status: ServerStatus,
    /// The cause of the last failure.
    cause: Option<String>,
    /// Whether the server ever had its state.
    pub(super) served: bool,
    /// Failures in a row before the server had its state. A server that never gets its state is given up, however
    /// slowly it fails.
    starts_without_state: u32,
    /// The backoff timer.
    timer: Option<Task>,
}

impl ServerChild {
    fn new(shared: &Shared, inside: Arc<InsideServer>, random: &mut Rng) -> Self {
        let options = shared.options();
        Self {
            inside,
            actor: ChildActor::down(),
            window: RestartWindow::new(options.restarts.server.clone(), random.fork()),
            status: ServerStatus::Restarting,
            cause: None,
            served: false,
            starts_without_state: 0,
            timer: None,
        }
    }

    fn given_up(&self) -> bool {
        matches!(self.status, ServerStatus::Failed(_))
    }

    /// The snapshot of a server whose actor does not answer.
    pub(super) fn absent(&self) -> ServerSnapshot {
        ServerSnapshot {
            name: self.inside.spec.name.clone(),
            status: match &self.status {
                ServerStatus::Up => ServerStatus::Restarting,
                status => status.clone(),
            },
            generation: self.inside.generations.load(Ordering::Acquire),
            calls: Vec::new(),
            blocking: self.inside.blocking.running(),
            abandoned: self.inside.blocking.abandoned(),
            mcp_sessions: 0,
        }
    }
}

/// The tool servers of the session.
pub(super) struct Servers {
    pub(super) children: Vec<ServerChild>,
    /// Removed servers whose actors have not ended yet.
    pub(super) leaving: Vec<Leaving>,
    /// The change in progress.
    pub(super) changing: Option<Changing>,
    /// Number of changes so far; numbers the next one.
    pub(super) changes: u64,
    random: Rng,
}

impl Servers {
    pub(super) fn new(shared: &Shared, random: Rng) -> Self {
        let mut servers =
            Self { children: Vec::new(), leaving: Vec::new(), changing: None, changes: 0, random };
        for server in shared.roster().inside() {
            servers.add(shared, server);
        }
        servers
    }

    /// Adds a server that is not started yet. Returns its index.
    pub(super) fn add(&mut self, shared: &Shared, server: &Arc<InsideServer>) -> usize {
        self.children.push(ServerChild::new(shared, server.clone(), &mut self.random));
        self.children.len() - 1
    }

    /// The actors that run, without those of removed servers.
    pub(super) fn actors(&self) -> impl Iterator<Item = &ActorRef<ServerMessage>> {
        self.children.iter().filter_map(|server| server.actor.actor())
    }

    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.children.iter().position(|server| server.inside.spec.name == name)
    }

    /// The server in this generation; `None` if its actor has ended or its state was replaced since.
    fn in_generation(&self, name: &str, generation: u32) -> Option<usize> {
        self.find(name).filter(|index| {
            let server = &self.children[*index];
            server.actor.is_up() && server.inside.generations.load(Ordering::Acquire) == generation
        })
    }
}

impl SupervisorState {
    pub(super) async fn start_server(&mut self, index: usize) -> Handled {
        let server = &self.servers.children[index];
        let arguments = ServerArguments {
            shared: self.shared.clone(),
            inside: server.inside.clone(),
            ready_epoch: matches!(self.stage, SessionStage::Ready).then(|| self.cli.epoch()),
            cause: server.cause.clone(),
            given_up: server.given_up(),
        };
        let actor = self.spawn(McpServer, arguments).await?;
        let server = &mut self.servers.children[index];
        server.inside.queue.open(telling(&actor, || ServerMessage::RequestsQueued));
        server.actor = ChildActor::up(actor);
        Ok(())
    }

    /// The backoff of a server has passed.
    pub(super) async fn restart_named(&mut self, name: &str) -> Handled {
        match self.servers.find(name) {
            Some(index) if !self.stopping() => self.restart_server(index).await,
            _ => Ok(()),
        }
    }

    /// Starts the server's actor, or has a running actor make the state again.
    async fn restart_server(&mut self, index: usize) -> Handled {
        match self.servers.children[index].actor.actor() {
            None => self.start_server(index).await,
            Some(actor) => {
                // The end of an actor that has just ended is still to come; one that has a state ignores the message.
                actor.cast(ServerMessage::Make).ok();
                Ok(())
            }
        }
    }

    pub(super) fn server_serves(&mut self, name: &str, generation: u32) {
        let Some(index) = self.servers.in_generation(name, generation) else { return };
        let server = &mut self.servers.children[index];
        (server.starts_without_state, server.served, server.status) = (0, true, ServerStatus::Up);
        self.check_start();
    }

    pub(super) async fn state_failed(&mut self, name: &str, generation: u32, cause: String) -> Handled {
        let Some(index) = self.servers.in_generation(name, generation).filter(|_| !self.stopping()) else {
            return Ok(());
        };
        let server = &self.servers.children[index];
        if server.inside.spec.significant && !server.served && !self.callers.has_started {
            let text = format!("the significant MCP server '{name}' did not start: {cause}");
            return self.fail(Error::new(ErrorKind::SessionFailed, text)).await;
        }
        self.server_lost(index, cause).await
    }

    pub(super) async fn server_ended(&mut self, index: usize, end: &ChildEnd) -> Handled {
        if self.stopping() {
            self.servers.children[index].inside.queue.fail(&end.to_string());
            return self.check_step().await;
        }
        self.server_lost(index, end.to_string()).await
    }

    /// A server has no actor, or its actor has no state: restarts the server after its backoff, or gives it up.
    async fn server_lost(&mut self, index: usize, cause: String) -> Handled {
        let restarts = &self.shared.options().restarts;
        let retry = restarts.server_retry;
        let server = &mut self.servers.children[index];
        let name = server.inside.spec.name.clone();
        server.cause = Some(cause.clone());
        let was_given_up = server.given_up();
        if !was_given_up {
            server.starts_without_state += 1;
            let never_serves = server.starts_without_state > restarts.server.intensity;
            if let Verdict::After { delay, .. } = server.window.record(Instant::now())
                && !never_serves
            {
                server.status = ServerStatus::Restarting;
                if delay.is_zero() {
                    return self.restart_server(index).await;
                }
                if !server.actor.is_up() {
                    server.inside.queue.suspend();
                }
                self.servers.children[index].timer =
                    Some(later(&self.shared, delay, Internal::RestartServer(name)));
                return Ok(());
            }
        }
        server.status = ServerStatus::Failed(cause.clone());
        match server.actor.actor() {
            // The end of an actor that has just ended is still to come.
            Some(actor) => drop(actor.cast(ServerMessage::GiveUp(cause.clone()))),
            None => server.inside.queue.fail(&cause),
        }
        if !was_given_up {
            self.shared.emit(Event::ServerFailed { server: name.clone(), cause: cause.clone() });
            if self.servers.children[index].inside.spec.significant {
                let text = format!("the significant MCP server '{name}' was given up: {cause}");
                return self.fail(Error::new(ErrorKind::SessionFailed, text)).await;
            }
        }
        self.servers.children[index].timer =
            retry.map(|retry| later(&self.shared, retry, Internal::RestartServer(name)));
        Ok(())
    }
}
