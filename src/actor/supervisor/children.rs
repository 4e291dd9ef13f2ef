//! How children start, and what follows when one ends.

use std::collections::HashMap;
use std::sync::Arc;

use ractor::{ActorCell, ActorId, ActorRef};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{End, Handled, Server, State, SupervisorState};
use crate::actor::callbacks::Callbacks;
use crate::actor::conversation::ConversationMessage;
use crate::actor::lane::Lane;
use crate::actor::ledger::Ledger;
use crate::actor::mcp_server::{McpServer, ServerArguments, ServerMessage};
use crate::actor::message::Internal;
use crate::actor::port::{CliPort, PortArguments, PortEnd};
use crate::actor::restart::Verdict;
use crate::actor::router::{ControlRouter, Known, RouterArguments, RouterMessage};
use crate::actor::routes::{Route, RouterLink};
use crate::actor::shared::Shared;
use crate::error::{Error, ErrorKind};
use crate::options::ResumeLadder;
use crate::report::{Event, ExitCause, ServerStatus};
use crate::transport::{Resume, Way};

impl SupervisorState {
    pub(super) async fn start_callbacks(&mut self) -> Handled {
        self.callbacks = Some(self.spawn(Callbacks, self.shared.clone()).await?);
        Ok(())
    }

    pub(super) async fn start_router(&mut self) -> Handled {
        let Some(callbacks) = self.callbacks.clone() else {
            self.router_waits = true;
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
            lane: self.lane.clone(),
            servers,
            callbacks,
            ended_epoch: if self.port.is_some() { self.epoch.saturating_sub(1) } else { self.epoch },
            ledger: ledger.clone(),
            routes,
        };
        let router = self.spawn(ControlRouter, arguments).await?;
        self.shared.router.send_replace(Some(RouterLink {
            actor: router.clone(),
            ledger,
            routes: published,
        }));
        self.router = Some(router);
        if std::mem::take(&mut self.port_waits) { self.start_port().await } else { Ok(()) }
    }

    pub(super) async fn start_server(&mut self, index: usize) -> Handled {
        let server = &self.servers[index];
        let generation = server.generation + 1;
        let arguments = ServerArguments {
            shared: self.shared.clone(),
            spec: server.spec.clone(),
            blocking: server.blocking.clone(),
            lane: self.lane.clone().filter(|_| matches!(self.phase, State::Ready)),
            session: self.myself.clone(),
            generation,
        };
        let actor = self.spawn(McpServer, arguments).await?;
        let server = &mut self.servers[index];
        server.generation = generation;
        server.actor = Some(actor.clone());
        server.status = ServerStatus::Up;
        let route = server.route(actor, &self.shared);
        self.tell_router(RouterMessage::ServerUp(route));
        Ok(())
    }

    pub(super) async fn restart_server(&mut self, index: usize) -> Handled {
        if self.servers[index].actor.is_some()
            || !matches!(self.servers[index].status, ServerStatus::Restarting)
        {
            return Ok(());
        }
        self.start_server(index).await?;
        self.shared.counting.server_restarts.one();
        let server = &mut self.servers[index];
        self.shared.emit(Event::ServerRestarted {
            server: server.spec.name.clone(),
            cause: std::mem::take(&mut server.cause),
            generation: server.generation,
        });
        Ok(())
    }

    pub(super) async fn start_port(&mut self) -> Handled {
        let (Some(router), Some(conversation)) = (self.router.clone(), self.conversation.clone()) else {
            // Without a conversation the session fails; a router comes back.
            self.port_waits = true;
            return Ok(());
        };
        self.epoch += 1;
        let arguments = PortArguments {
            shared: self.shared.clone(),
            session: self.myself.clone(),
            router,
            conversation,
            epoch: self.epoch,
            resume: self.resume(),
            ways: self.ways,
        };
        self.port = Some(self.spawn(CliPort, arguments).await?);
        Ok(())
    }

    /// Which conversation the next incarnation opens.
    fn resume(&self) -> Resume {
        let captured = self.shared.vitals.borrow().session_id.clone();
        match (captured, self.ladder) {
            (Some(id), ResumeLadder::SameId) if self.anew => Resume::Anew(id),
            (Some(id), ResumeLadder::SameId) => Resume::Same(id),
            (Some(id), ResumeLadder::Fork) => Resume::Fork(id),
            (Some(_), ResumeLadder::Fresh) => Resume::Fresh,
            // Nothing was said yet in the conversation that the options name.
            (None, _) => Resume::AsOptions,
        }
    }

    /// The next step after a refusal to resume, if the policy allows one.
    fn next_step_of_ladder(&mut self, refused: &ExitCause) -> bool {
        let nothing_written = matches!(refused, ExitCause::ResumeRefused { transcript_missing: true, .. });
        if nothing_written && self.ladder == ResumeLadder::SameId && !self.shared.vitals.borrow().recorded {
            // The CLI died before it wrote down the beginning of the first turn, which was told as cut off.
            self.anew = true;
            self.step_told(ResumeLadder::SameId, refused);
            return true;
        }
        let next = match self.ladder {
            ResumeLadder::SameId => ResumeLadder::Fork,
            ResumeLadder::Fork | ResumeLadder::Fresh => ResumeLadder::Fresh,
        };
        let allowed = next > self.ladder && next <= self.shared.options().resume_ladder;
        if allowed {
            self.ladder = next;
            self.step_told(next, refused);
        }
        allowed
    }

    fn step_told(&self, step: ResumeLadder, refused: &ExitCause) {
        self.shared.emit(Event::ResumeStep { epoch: self.epoch + 1, step, refused: refused.to_string() });
    }

    pub(super) fn cli_ready(&mut self, lane: Lane) {
        if self.stopping() {
            return;
        }
        self.phase = State::Ready;
        for server in self.servers.iter().filter_map(|server| server.actor.as_ref()) {
            // One that has just ended is given the lane when it starts again.
            server.cast(ServerMessage::Opened(lane.clone())).ok();
        }
        self.tell_conversation(ConversationMessage::CliReady(lane));
        if self.ever_ready {
            let session_id = self.shared.vitals.borrow().session_id.clone();
            self.shared.emit(Event::CliRestarted { epoch: self.epoch, session_id });
        }
        self.ever_ready = true;
        self.ladder = ResumeLadder::SameId;
        for waiter in self.await_start.drain(..) {
            // Whoever asked may have stopped waiting.
            waiter.send(Ok(())).ok();
        }
    }

    pub(super) async fn child_ended(&mut self, id: ActorId, end: End) -> Handled {
        let is = |cell: Option<ActorCell>| cell.is_some_and(|cell| cell.get_id() == id);
        if is(self.port.as_ref().map(ActorRef::get_cell)) {
            self.port = None;
            return self.port_ended(end).await;
        }
        if is(self.router.as_ref().map(ActorRef::get_cell)) {
            self.router = None;
            return self.control_ended("router", &end).await;
        }
        if is(self.callbacks.as_ref().map(ActorRef::get_cell)) {
            self.callbacks = None;
            return self.control_ended("callbacks", &end).await;
        }
        if is(self.conversation.as_ref().map(ActorRef::get_cell)) {
            self.conversation = None;
            if self.stopping() {
                return self.check_step().await;
            }
            return self
                .fail(Error::new(ErrorKind::SessionFailed, format!("the conversation's actor ended: {end}")))
                .await;
        }
        if self.has_left(id) {
            return if self.stopping() { self.check_step().await } else { Ok(()) };
        }
        let server = self.servers.iter().position(|server| is(server.actor.as_ref().map(ActorRef::get_cell)));
        match server {
            Some(index) => self.server_ended(index, &end).await,
            None => Ok(()),
        }
    }

    pub(super) async fn control_ended(&mut self, child: &'static str, end: &End) -> Handled {
        if self.stopping() {
            return self.check_step().await;
        }
        let (window, message) = match child {
            "router" => (&mut self.windows.router, Internal::RestartRouter),
            _ => (&mut self.windows.callbacks, Internal::RestartCallbacks),
        };
        match window.record(Instant::now()) {
            Verdict::After { delay, .. } => {
                self.shared.emit(Event::ControlRestarted { child, cause: end.to_string() });
                if delay.is_zero() {
                    return Box::pin(self.internal(message)).await;
                }
                self.after(delay, message);
                Ok(())
            }
            Verdict::GiveUp => {
                let text = format!("the session's {child} ended too often, the last time because: {end}");
                self.fail(Error::new(ErrorKind::SessionFailed, text)).await
            }
        }
    }

    pub(super) async fn server_ended(&mut self, index: usize, end: &End) -> Handled {
        self.servers[index].actor = None;
        if self.stopping() {
            return self.check_step().await;
        }
        let cause = end.to_string();
        let server = &mut self.servers[index];
        let name = server.spec.name.clone();
        server.barren += 1;
        let barren = server.barren > self.shared.options().restarts.server.intensity;
        match server.window.record(Instant::now()) {
            Verdict::After { delay, .. } if !barren => {
                server.status = ServerStatus::Restarting;
                server.cause = cause;
                if delay.is_zero() {
                    return self.restart_server(index).await;
                }
                self.tell_router(RouterMessage::ServerDown { server: name.clone() });
                self.servers[index].timer = Some(self.later(delay, Internal::RestartServer(name)));
                Ok(())
            }
            Verdict::After { .. } | Verdict::GiveUp => {
                server.status = ServerStatus::Failed(cause.clone());
                let significant = server.spec.significant;
                self.tell_router(RouterMessage::ServerFailed { server: name.clone(), cause: cause.clone() });
                self.shared.emit(Event::ServerFailed { server: name.clone(), cause: cause.clone() });
                if significant {
                    let text = format!("the significant MCP server '{name}' was given up: {cause}");
                    return self.fail(Error::new(ErrorKind::SessionFailed, text)).await;
                }
                Ok(())
            }
        }
    }

    pub(super) async fn port_ended(&mut self, end: End) -> Handled {
        self.lane = None;
        // What was begun anew is resumed from now on, if it can be.
        self.anew = false;
        let end = match end {
            End::Stopped(None) => PortEnd::Asked,
            End::Stopped(Some(reason)) => PortEnd::Died(ExitCause::Port { reason }),
            End::Failed(error) => match error.downcast::<PortEnd>() {
                Ok(end) => *end,
                Err(error) => PortEnd::Died(ExitCause::Port { reason: error.to_string() }),
            },
        };
        let cause = match &end {
            PortEnd::Died(cause) | PortEnd::AfterErrorResult(cause) => Some(cause.clone()),
            PortEnd::Asked | PortEnd::Reregister(_) => None,
        };
        let epoch = self.epoch;
        self.tell_router(RouterMessage::Ended { epoch });
        if let Some(mirror) = self.shared.mirror() {
            // Whatever became of the CLI, what it has told is kept, and what it had no time to tell. Before the end is told,
            // so that an outcome waits for it.
            match &cause {
                Some(_) => mirror.catch_up(self.shared.vitals.borrow().session_id.clone()),
                None => mirror.flush(|| {}),
            }
        }
        self.tell_conversation(ConversationMessage::CliEnded { epoch, cause: cause.clone() });
        self.change_ends_with_cli();
        if self.stopping() {
            return self.check_step().await;
        }
        let Some(cause) = cause else {
            if let PortEnd::Reregister(ways) = end {
                self.ways = ways;
                let servers = ways.servers == Way::Arguments;
                let private = ways.private == Way::Arguments;
                self.shared.emit(Event::CliReregistered { epoch, servers, private });
            }
            return self.start_port().await;
        };
        self.shared.emit(Event::CliExited { epoch, cause: cause.clone() });
        if !self.ever_ready {
            return self.fail(cause.to_error()).await;
        }
        // A refusal does not go away by itself: down the ladder, or the end.
        let refused = matches!(cause, ExitCause::ResumeRefused { .. });
        if refused && !self.next_step_of_ladder(&cause) {
            return self.fail(cause.to_error()).await;
        }
        // Neither is a crash. The ladder has an end, and what ends after an error result needs a prompt for it.
        let (delay, attempt) = if refused || matches!(end, PortEnd::AfterErrorResult(_)) {
            (self.windows.port.delay(1), 0)
        } else {
            match self.windows.port.record(Instant::now()) {
                Verdict::After { delay, attempt } => (delay, attempt),
                Verdict::GiveUp => {
                    let limits = &self.shared.options().restarts.cli;
                    let error = cause.to_error();
                    let text = format!(
                        "the CLI died more than {} times within {:?}, the last time because: {cause}",
                        limits.intensity, limits.period
                    );
                    let failed = Error::new(ErrorKind::SessionFailed, text)
                        .with_stderr(error.stderr().unwrap_or_default());
                    return self.fail(failed.with_source(error)).await;
                }
            }
        };
        self.phase = State::Recovering;
        self.shared.counting.cli_restarts.one();
        self.shared.emit(Event::CliRestarting { epoch: epoch + 1, attempt, delay });
        self.after(delay, Internal::RestartCli);
        Ok(())
    }
}

impl Server {
    fn route(&self, actor: ActorRef<ServerMessage>, shared: &Shared) -> Arc<Route> {
        Arc::new(Route {
            server: self.spec.name.as_str().into(),
            actor,
            gate: shared.roster.borrow().gate(&self.spec.name).cloned(),
            own_tools: !self.spec.is_mounted(),
        })
    }

    pub(super) fn known(&self, shared: &Shared) -> Known {
        match (&self.actor, &self.status) {
            (_, ServerStatus::Failed(cause)) => Known::Failed(cause.clone()),
            (Some(actor), _) => Known::Up(self.route(actor.clone(), shared)),
            (None, _) => Known::Down,
        }
    }
}
