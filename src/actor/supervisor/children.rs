//! Start the supervisor's children and notice their ends.

use std::collections::HashMap;
use std::sync::Arc;

use ractor::ActorId;
use tokio::sync::watch;
use tokio::time::Instant;

use super::child::{ChildActor, ChildEnd};
use super::port_end::ResumeStep;
use super::servers::ServerChild;
use super::{Handled, SessionStage, SupervisorState};
use crate::actor::base::reply::respond;
use crate::actor::base::restart_window::Verdict;
use crate::actor::callbacks::Callbacks;
use crate::actor::incarnation::port::{CliPort, PortArguments};
use crate::actor::messages::conversation::ConversationMessage;
use crate::actor::messages::mcp_server::ServerMessage;
use crate::actor::messages::router::{RouterLink, RouterMessage};
use crate::actor::messages::session::Internal;
use crate::actor::request::ledger::Ledger;
use crate::actor::router::{ControlRouter, RouterArguments};
use crate::error::{Error, ErrorKind};
use crate::report::Event;

/// A child under `Restarts::control`.
#[derive(Clone, Copy)]
enum ControlChild {
    Router,
    Callbacks,
}

impl SupervisorState {
    pub(super) async fn start_callbacks(&mut self) -> Handled {
        self.callbacks = ChildActor::Up(self.spawn(Callbacks, self.shared.clone()).await?);
        Ok(())
    }

    /// Starts the router, or leaves it waiting for the callbacks.
    pub(super) async fn start_router(&mut self) -> Handled {
        let Some(callbacks) = self.callbacks.actor().cloned() else {
            self.router = ChildActor::Waiting;
            return Ok(());
        };
        let servers = self
            .servers
            .iter()
            .map(|server| (server.spec.name.clone(), server.known(&self.shared)))
            .collect::<HashMap<_, _>>();
        let ledger = Arc::new(Ledger::default());
        let (routes, published) = watch::channel(Arc::default());
        let arguments = RouterArguments {
            shared: self.shared.clone(),
            servers,
            callbacks,
            ended_epoch: if self.port.is_up() { self.epoch.saturating_sub(1) } else { self.epoch },
            ledger: ledger.clone(),
            routes,
        };
        let router = self.spawn(ControlRouter, arguments).await?;
        let link = RouterLink { actor: router.clone(), ledger, routes: published };
        self.shared.router.send_replace(Some(link));
        self.router = ChildActor::Up(router);
        if self.port.is_waiting() { self.start_port().await } else { Ok(()) }
    }

    /// Starts the next incarnation, or leaves it waiting for the router.
    pub(super) async fn start_port(&mut self) -> Handled {
        if !self.router.is_up() || !self.conversation.is_up() {
            // A router comes back. Without a conversation the session fails.
            self.port = ChildActor::Waiting;
            return Ok(());
        }
        self.epoch += 1;
        let arguments = PortArguments {
            shared: self.shared.clone(),
            session: self.myself.clone(),
            epoch: self.epoch,
            resume: self.next_resume(),
            channels: self.channels,
        };
        self.port = ChildActor::Up(self.spawn(CliPort, arguments).await?);
        Ok(())
    }

    pub(super) async fn restart_router(&mut self) -> Handled {
        if self.stopping() {
            return Ok(());
        }
        self.start_router().await?;
        if self.router.is_up() {
            self.shared.counting.control_restarts.one();
        }
        Ok(())
    }

    pub(super) async fn restart_callbacks(&mut self) -> Handled {
        if self.stopping() {
            return Ok(());
        }
        self.start_callbacks().await?;
        self.shared.counting.control_restarts.one();
        if let Some(callbacks) = self.callbacks.actor() {
            self.router.tell(RouterMessage::CallbacksUp(callbacks.clone()));
        }
        if self.router.is_waiting() { self.restart_router().await } else { Ok(()) }
    }

    /// Claims the conversation that the CLI has named. The session fails if another session holds the claim.
    pub(super) fn claim(&mut self) {
        let (shared, myself) = (self.shared.clone(), self.myself.clone());
        self.errand(async move {
            // Read when it is this errand's turn: the newest name counts, in whatever order the errands run.
            let newest = || shared.facts.borrow().session_id.clone();
            if let Err(error) = shared.claims.follow(newest).await {
                Internal::Fatal(error).tell(&myself);
            }
        });
    }

    /// An incarnation has answered `initialize`. Ignored if it has ended since.
    pub(super) fn cli_ready(&mut self, epoch: u64) {
        if self.stopping() || epoch != self.epoch || !self.port.is_up() {
            return;
        }
        let is_first = matches!(self.stage, SessionStage::Starting);
        if is_first {
            self.opened();
        }
        self.stage = SessionStage::Ready;
        for server in self.servers.iter().filter_map(|server| server.actor.as_ref()) {
            // The successor of a server that has just ended is started with the epoch.
            server.cast(ServerMessage::CliReady { epoch }).ok();
        }
        self.conversation.tell(ConversationMessage::CliReady { epoch });
        if !is_first {
            let session_id = self.shared.facts.borrow().session_id.clone();
            self.shared.emit(Event::CliRestarted { epoch, session_id });
        }
        (self.resume, self.refused) = (ResumeStep::SameId, None);
        self.check_start();
    }

    /// Answers the callers that wait for the start, if the start is over.
    pub(super) fn check_start(&mut self) {
        let serves = |server: &ServerChild| server.served || !server.spec.significant;
        self.started |= matches!(self.stage, SessionStage::Ready) && self.servers.iter().all(serves);
        if self.started {
            self.await_start.drain(..).for_each(|waiter| respond(waiter, Ok(())));
        }
    }

    pub(super) async fn child_ended(&mut self, id: ActorId, end: ChildEnd) -> Handled {
        if self.port.ended(id) {
            return self.port_ended(end).await;
        }
        if self.router.ended(id) {
            return self.control_ended(ControlChild::Router, &end).await;
        }
        if self.callbacks.ended(id) {
            return self.control_ended(ControlChild::Callbacks, &end).await;
        }
        if self.conversation.ended(id) {
            if self.stopping() {
                return self.check_step().await;
            }
            let text = format!("the conversation's actor ended: {end}");
            return self.fail(Error::new(ErrorKind::SessionFailed, text)).await;
        }
        if self.has_left(id) {
            return self.check_step().await;
        }
        let actor = |server: &ServerChild| server.actor.as_ref().map(|actor| actor.get_id());
        match self.servers.iter().position(|server| actor(server) == Some(id)) {
            Some(index) => self.server_ended(index, &end).await,
            None => Ok(()),
        }
    }

    /// Restarts the router or the callbacks, or fails the session if the child ended too often.
    async fn control_ended(&mut self, child: ControlChild, end: &ChildEnd) -> Handled {
        if self.stopping() {
            return self.check_step().await;
        }
        let (window, name, restart) = match child {
            ControlChild::Router => (&mut self.windows.router, "router", Internal::RestartRouter),
            ControlChild::Callbacks => (&mut self.windows.callbacks, "callbacks", Internal::RestartCallbacks),
        };
        match window.record(Instant::now()) {
            Verdict::After { delay, .. } => {
                self.shared.emit(Event::ControlRestarted { child: name, cause: end.to_string() });
                if delay.is_zero() {
                    return Box::pin(self.internal(restart)).await;
                }
                self.after(delay, restart);
                Ok(())
            }
            Verdict::GiveUp => {
                let text = format!("the session's {name} ended too often, the last time because: {end}");
                self.fail(Error::new(ErrorKind::SessionFailed, text)).await
            }
        }
    }
}
