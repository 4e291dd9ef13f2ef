//! Start the supervisor's children and notice their ends.

use ractor::ActorId;
use tokio::time::Instant;

use super::child::{ChildActor, ChildEnd};
use super::servers::ServerChild;
use super::{Handled, SessionStage, SupervisorState, later};
use crate::actor::base::restart_window::Verdict;
use crate::actor::callbacks::Callbacks;
use crate::actor::messages::children::ServerMessage;
use crate::actor::messages::conversation::{CliEvent, ConversationMessage};
use crate::actor::messages::session::{ControlName, Internal};
use crate::actor::router::ControlRouter;
use crate::error::{Error, ErrorKind};
use crate::report::Event;

impl SupervisorState {
    pub(super) async fn start_control(&mut self, child: ControlName) -> Handled {
        match child {
            ControlName::Router => {
                let router = self.spawn(ControlRouter, self.shared.clone()).await?;
                self.shared.router.send_replace(Some(router.clone()));
                self.router.actor = ChildActor::up(router);
            }
            ControlName::Callbacks => {
                let callbacks = self.spawn(Callbacks, self.shared.clone()).await?;
                self.shared.callbacks.set(Some(callbacks.clone()));
                self.callbacks.actor = ChildActor::up(callbacks);
            }
        }
        Ok(())
    }

    pub(super) async fn restart_control(&mut self, child: ControlName) -> Handled {
        if self.stopping() {
            return Ok(());
        }
        self.shared.counting.control_restarts.one();
        self.start_control(child).await
    }

    /// Claims the conversation that the CLI has named. The session fails if another session holds the claim.
    pub(super) fn claim(&mut self) {
        let shared = self.shared.clone();
        self.errand(async move {
            // Read when it is this errand's turn: the newest name counts, in whatever order the errands run.
            let newest = || shared.facts.borrow().session_id.clone();
            if let Err(error) = shared.claims.follow(newest).await {
                shared.tell(Internal::Fatal(error));
            }
        });
    }

    /// An incarnation has answered `initialize`. Ignored if it has ended since.
    pub(super) fn cli_ready(&mut self, epoch: u64) {
        if self.stopping() || !self.cli.runs(epoch) {
            return;
        }
        let is_first = matches!(self.stage, SessionStage::Starting);
        if is_first {
            self.opened();
        }
        self.stage = SessionStage::Ready;
        for server in self.servers.actors() {
            // The successor of a server that has just ended is started with the epoch.
            server.cast(ServerMessage::CliReady { epoch }).ok();
        }
        self.conversation.tell(ConversationMessage::Cli(CliEvent::Ready { epoch }));
        if !is_first {
            let session_id = self.shared.facts.borrow().session_id.clone();
            self.shared.emit(Event::CliRestarted { epoch, session_id });
        }
        self.cli.ready();
        self.check_start();
    }

    /// Answers the callers that wait for the start, if the start is over.
    pub(super) fn check_start(&mut self) {
        let serves = |server: &ServerChild| server.served || !server.inside.spec.significant;
        let starts = matches!(self.stage, SessionStage::Ready) && self.servers.children.iter().all(serves);
        if starts || self.callers.has_started {
            self.callers.started();
        }
    }

    pub(super) async fn child_ended(&mut self, id: ActorId, end: ChildEnd) -> Handled {
        if self.cli.port.ended(id) {
            return self.port_ended(end).await;
        }
        if self.router.actor.ended(id) {
            return self.control_ended(ControlName::Router, &end).await;
        }
        if self.callbacks.actor.ended(id) {
            return self.control_ended(ControlName::Callbacks, &end).await;
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
        match self.servers.children.iter_mut().position(|server| server.actor.ended(id)) {
            Some(index) => self.server_ended(index, &end).await,
            None => Ok(()),
        }
    }

    /// Restarts the router or the callbacks, or fails the session if the child ended too often.
    async fn control_ended(&mut self, child: ControlName, end: &ChildEnd) -> Handled {
        if self.stopping() {
            return self.check_step().await;
        }
        let (window, timer, name) = match child {
            ControlName::Router => (&mut self.router.window, &mut self.router.timer, "router"),
            ControlName::Callbacks => (&mut self.callbacks.window, &mut self.callbacks.timer, "callbacks"),
        };
        match window.record(Instant::now()) {
            Verdict::After { delay, .. } => {
                self.shared.emit(Event::ControlRestarted { child: name, cause: end.to_string() });
                if delay.is_zero() {
                    return self.restart_control(child).await;
                }
                *timer = Some(later(&self.shared, delay, Internal::RestartControl(child)));
                Ok(())
            }
            Verdict::GiveUp => {
                let text = format!("the session's {name} ended too often, the last time because: {end}");
                self.fail(Error::new(ErrorKind::SessionFailed, text)).await
            }
        }
    }
}
