//! The supervisor of a session: what restarts, how often, in which order things start and stop. It does no work
//! itself, so that it cannot fail at it.
//!
//! ```text
//!                     ready              the CLI died
//!   Starting ───────────────► Ready ───────────────────► Recovering ──┐
//!      │                        ▲            ready           │        │ over intensity
//!      │ first CLI did          └────────────────────────────┘        │
//!      │ not start                                                    ▼
//!      └──────────────────────────────────────────────────────► Stopping(failed)
//!   stop ──► Stopping: Drain ─► Cli ─► Handlers ─► Router ─► Conversation ─► gone
//! ```
//!
//! | child | when it ends unasked |
//! |---|---|
//! | conversation | the session fails |
//! | router, callbacks | restarted (`Restarts::control`), then the session fails |
//! | tool server | restarted (`Restarts::server`), then given up; if it is significant, the session fails |
//! | port | the next incarnation (`Restarts::cli`), then the session fails |
//!
//! Each step of stopping has a limit, after which what is left of it is killed. A supervisor that is killed takes
//! its children with it, and the port takes the process group.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use futures_util::future::join_all;
use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::DropGuard;

use super::callbacks::{Callbacks, CallbacksMessage};
use super::conversation::{Conversation, ConversationArguments, ConversationMessage};
use super::initialize;
use super::lane::Lane;
use super::mcp_server::{McpServer, ServerArguments, ServerMessage};
use super::message::{Internal, SessionMessage};
use super::port::{CliPort, PortArguments, PortEnd, PortMessage};
use super::restart::{RestartWindow, Verdict};
use super::router::{self, ControlRouter, Route, RouterArguments, RouterMessage, millis};
use super::shared::Shared;
use super::work::Task;
use crate::error::{Error, ErrorKind, Result};
use crate::options::McpRegistration;
use crate::report::{Event, ExitCause, Phase, ServerSnapshot, ServerStatus, Snapshot};
use crate::tool::instance::BlockingLane;
use crate::tool::server::ServerSpec;

pub(crate) struct SessionSupervisor;

pub(crate) struct SupervisorState {
    /// Tells everyone who waits for this session that it is no more, however it ended.
    _gone: DropGuard,
    shared: Arc<Shared>,
    myself: ActorRef<SessionMessage>,
    phase: State,
    conversation: Option<ActorRef<ConversationMessage>>,
    router: Option<ActorRef<RouterMessage>>,
    callbacks: Option<ActorRef<CallbacksMessage>>,
    servers: Vec<Server>,
    port: Option<ActorRef<PortMessage>>,
    windows: Windows,
    /// The waits before restarts.
    timers: Vec<Task>,
    /// Work that is done for a caller.
    errands: Vec<Task>,
    epoch: u64,
    route: initialize::Route,
    lane: Option<Lane>,
    ids: Arc<AtomicU64>,
    ever_ready: bool,
    await_start: Vec<oneshot::Sender<Result<()>>>,
    await_stop: Vec<StopReply>,
}

type StopReply = Box<dyn FnOnce(Result<()>) + Send + Sync>;

struct Windows {
    port: RestartWindow,
    router: RestartWindow,
    callbacks: RestartWindow,
}

struct Server {
    spec: Arc<ServerSpec>,
    actor: Option<ActorRef<ServerMessage>>,
    generation: u32,
    window: RestartWindow,
    status: ServerStatus,
    /// Handlers that were left behind outlive the actor, so this does too.
    blocking: Arc<BlockingLane>,
    /// Why it is being restarted.
    cause: String,
}

/// What the session is doing.
#[derive(Debug)]
enum State {
    Starting,
    Ready,
    Recovering,
    Stopping { step: Step, number: u32, failed: Option<Error>, limit: Option<Task> },
}

/// The steps of stopping, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Drain,
    Cli,
    Handlers,
    Router,
    Conversation,
    Gone,
}

impl Step {
    fn next(self) -> Self {
        match self {
            Step::Drain => Step::Cli,
            Step::Cli => Step::Handlers,
            Step::Handlers => Step::Router,
            Step::Router => Step::Conversation,
            Step::Conversation | Step::Gone => Step::Gone,
        }
    }
}

/// How a child ended.
enum End {
    Stopped(Option<String>),
    Failed(ActorProcessingErr),
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::Stopped(Some(reason)) => f.write_str(reason),
            End::Stopped(None) => f.write_str("it stopped"),
            End::Failed(error) => error.fmt(f),
        }
    }
}

#[cfg_attr(feature = "async-trait", ractor::async_trait)]
impl Actor for SessionSupervisor {
    type Msg = SessionMessage;
    type State = SupervisorState;
    type Arguments = Arc<Shared>;

    async fn pre_start(
        &self,
        myself: ActorRef<SessionMessage>,
        shared: Arc<Shared>,
    ) -> Result<SupervisorState, ActorProcessingErr> {
        let mut random = SmallRng::from_os_rng();
        let restarts = &shared.options().restarts;
        let mut window = |limits: &crate::options::Restart| {
            RestartWindow::new(limits.clone(), SmallRng::from_rng(&mut random))
        };
        let servers = shared
            .spec
            .servers
            .iter()
            .map(|spec| Server {
                spec: spec.clone(),
                actor: None,
                generation: 0,
                window: window(&restarts.server),
                status: ServerStatus::Restarting,
                blocking: BlockingLane::new(shared.options().limits.blocking_calls),
                cause: String::new(),
            })
            .collect();
        let windows = Windows {
            port: window(&restarts.cli),
            router: window(&restarts.control),
            callbacks: window(&restarts.control),
        };
        let route = match shared.options().mcp_registration {
            McpRegistration::McpConfig => initialize::Route::McpConfig,
            _ => initialize::Route::Initialize,
        };
        Ok(SupervisorState {
            _gone: shared.gone.clone().drop_guard(),
            shared,
            myself,
            phase: State::Starting,
            conversation: None,
            router: None,
            callbacks: None,
            servers,
            port: None,
            windows,
            timers: Vec::new(),
            errands: Vec::new(),
            epoch: 0,
            route,
            lane: None,
            ids: Arc::default(),
            ever_ready: false,
            await_start: Vec::new(),
            await_stop: Vec::new(),
        })
    }

    async fn post_start(
        &self,
        _: ActorRef<SessionMessage>,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        let arguments = ConversationArguments { shared: state.shared.clone(), session: state.myself.clone() };
        state.conversation = Some(state.spawn(Conversation, arguments).await?);
        state.start_callbacks().await?;
        state.start_router().await?;
        for index in 0..state.servers.len() {
            state.start_server(index).await?;
        }
        state.start_port().await
    }

    async fn handle(
        &self,
        _: ActorRef<SessionMessage>,
        message: SessionMessage,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SessionMessage::Prompt(prompt, reply) => {
                if let Some(conversation) = &state.conversation {
                    // A conversation that has just ended drops the reply, which the caller notices.
                    conversation.cast(ConversationMessage::Prompt { prompt, reply }).ok();
                }
            }
            SessionMessage::Interrupt(reply) => {
                let (shared, conversation) = (state.shared.clone(), state.conversation.clone());
                state.errand(async move {
                    // Whoever asked may have stopped waiting.
                    reply.send(interrupt(&shared, conversation.as_ref()).await).ok();
                });
            }
            SessionMessage::Snapshot(reply) => state.snapshot(move |snapshot| drop(reply.send(Ok(snapshot)))),
            SessionMessage::Events(reply) => {
                reply.send(state.shared.subscribe()).ok();
            }
            // Whoever asked may have stopped waiting.
            SessionMessage::Stop(reply) => {
                return state.stop(Box::new(move |outcome| drop(reply.send(outcome)))).await;
            }
            SessionMessage::Internal(internal) => return state.internal(internal).await,
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<SessionMessage>,
        event: SupervisionEvent,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorTerminated(cell, last_state, reason) => {
                drop(last_state);
                state.child_ended(cell.get_id(), End::Stopped(reason)).await
            }
            SupervisionEvent::ActorFailed(cell, error) => {
                state.child_ended(cell.get_id(), End::Failed(error)).await
            }
            _ => Ok(()),
        }
    }
}

/// Interrupts the running turn.
pub(crate) async fn interrupt(
    shared: &Shared,
    conversation: Option<&ActorRef<ConversationMessage>>,
) -> Result<()> {
    if let Some(conversation) = conversation {
        conversation.cast(ConversationMessage::Interrupting).map_err(|_| shared.gone())?;
    }
    router::ask(shared, json!({ "subtype": "interrupt" }), shared.options().timeouts.control_request).await?;
    Ok(())
}

type Handled = Result<(), ActorProcessingErr>;

impl SupervisorState {
    async fn spawn<A: Actor>(
        &self,
        actor: A,
        arguments: A::Arguments,
    ) -> Result<ActorRef<A::Msg>, ActorProcessingErr> {
        let (child, _) = Actor::spawn_linked(None, actor, arguments, self.myself.get_cell()).await?;
        Ok(child)
    }

    /// Does something for a caller on a task of its own; the supervisor goes on.
    fn errand(&mut self, errand: impl Future<Output = ()> + Send + 'static) {
        self.errands.retain(|errand| !errand.is_finished());
        self.errands.push(Task::spawn(errand));
    }

    /// Tells the supervisor something after a while.
    fn later(&self, delay: Duration, message: Internal) -> Task {
        let myself = self.myself.clone();
        Task::spawn(async move {
            tokio::time::sleep(delay).await;
            // A supervisor that has ended waits for nothing.
            myself.cast(SessionMessage::Internal(message)).ok();
        })
    }

    fn after(&mut self, delay: Duration, message: Internal) {
        self.timers.retain(|timer| !timer.is_finished());
        let timer = self.later(delay, message);
        self.timers.push(timer);
    }

    fn tell_router(&self, message: RouterMessage) {
        if let Some(router) = &self.router {
            // One that has just ended is told by its arguments when it starts again.
            router.cast(message).ok();
        }
    }

    fn tell_conversation(&self, message: ConversationMessage) {
        if let Some(conversation) = &self.conversation {
            // One that has just ended takes the session with it.
            conversation.cast(message).ok();
        }
    }

    async fn internal(&mut self, message: Internal) -> Handled {
        match message {
            Internal::LaneOpened(lane) if lane.epoch() == self.epoch && self.port.is_some() => {
                self.lane = Some(lane)
            }
            Internal::CliReady { lane } if lane.epoch() == self.epoch && self.port.is_some() => {
                self.cli_ready(lane)
            }
            // Of an incarnation that has ended since.
            Internal::LaneOpened(_) | Internal::CliReady { .. } => {}
            Internal::AwaitStart(reply) => match &self.phase {
                State::Starting => self.await_start.push(reply),
                State::Stopping { failed: Some(_), .. } => self.await_start.push(reply),
                // Whoever asked may have stopped waiting.
                State::Stopping { .. } => {
                    drop(reply.send(Err(Error::new(ErrorKind::Stopped, "the session was stopped"))))
                }
                State::Ready | State::Recovering => drop(reply.send(Ok(()))),
            },
            Internal::RestartCli if matches!(self.phase, State::Recovering) && self.port.is_none() => {
                return self.start_port().await;
            }
            Internal::RestartServer(name) if !self.stopping() => {
                if let Some(index) = self.servers.iter().position(|server| server.spec.name == name) {
                    return self.restart_server(index).await;
                }
            }
            Internal::RestartRouter if !self.stopping() => {
                self.start_router().await?;
                self.shared.counting.control_restarts.one();
            }
            Internal::RestartCallbacks if !self.stopping() => {
                self.start_callbacks().await?;
                self.shared.counting.control_restarts.one();
                if let Some(callbacks) = self.callbacks.clone() {
                    self.tell_router(RouterMessage::CallbacksUp(callbacks));
                }
            }
            Internal::RestartCli
            | Internal::RestartServer(_)
            | Internal::RestartRouter
            | Internal::RestartCallbacks => {}
            Internal::Drained => {
                if matches!(self.phase, State::Stopping { step: Step::Drain, .. }) {
                    return self.next_step().await;
                }
            }
            Internal::StopLimit(number) => return self.step_limit(number).await,
            Internal::Abandoned if !self.stopping() => return self.begin_stop(Step::Cli, None).await,
            Internal::Abandoned => {}
            Internal::Stop(reply) => {
                return self.stop(Box::new(move |outcome| drop(reply.send(outcome)))).await;
            }
            Internal::Snapshot(reply) => self.snapshot(move |snapshot| drop(reply.send(Ok(snapshot)))),
            #[cfg(feature = "testkit")]
            Internal::Inject(fault) => self.inject(fault),
            Internal::Emit(event) => self.shared.emit(event),
            Internal::Fatal(error) => return self.fail(error).await,
        }
        Ok(())
    }

    // ---- children -------------------------------------------------------------------------------------------

    async fn start_callbacks(&mut self) -> Handled {
        self.callbacks = Some(self.spawn(Callbacks, self.shared.clone()).await?);
        Ok(())
    }

    async fn start_router(&mut self) -> Handled {
        let Some(callbacks) = self.callbacks.clone() else { return Ok(()) };
        let servers = self
            .servers
            .iter()
            .map(|server| (server.spec.name.clone(), server.route()))
            .collect::<HashMap<_, _>>();
        let arguments = RouterArguments {
            shared: self.shared.clone(),
            lane: self.lane.clone(),
            servers,
            callbacks,
            ids: self.ids.clone(),
            ended_epoch: if self.port.is_some() { self.epoch.saturating_sub(1) } else { self.epoch },
        };
        let router = self.spawn(ControlRouter, arguments).await?;
        self.shared.router.send_replace(Some(router.clone()));
        self.router = Some(router);
        Ok(())
    }

    async fn start_server(&mut self, index: usize) -> Handled {
        let server = &self.servers[index];
        let generation = server.generation + 1;
        let arguments = ServerArguments {
            shared: self.shared.clone(),
            spec: server.spec.clone(),
            blocking: server.blocking.clone(),
            generation,
        };
        let actor = self.spawn(McpServer, arguments).await?;
        let server = &mut self.servers[index];
        server.generation = generation;
        server.actor = Some(actor.clone());
        server.status = ServerStatus::Up;
        let name = server.spec.name.clone();
        self.tell_router(RouterMessage::ServerUp { server: name, actor });
        Ok(())
    }

    async fn restart_server(&mut self, index: usize) -> Handled {
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

    async fn start_port(&mut self) -> Handled {
        let (Some(router), Some(conversation)) = (self.router.clone(), self.conversation.clone()) else {
            return Ok(());
        };
        self.epoch += 1;
        let arguments = PortArguments {
            shared: self.shared.clone(),
            session: self.myself.clone(),
            router,
            conversation,
            epoch: self.epoch,
            resume: self.shared.vitals.borrow().session_id.clone(),
            route: self.route,
        };
        self.port = Some(self.spawn(CliPort, arguments).await?);
        Ok(())
    }

    fn cli_ready(&mut self, lane: Lane) {
        if self.stopping() {
            return;
        }
        self.phase = State::Ready;
        self.tell_conversation(ConversationMessage::CliReady(lane));
        if self.ever_ready {
            let session_id = self.shared.vitals.borrow().session_id.clone();
            self.shared.emit(Event::CliRestarted { epoch: self.epoch, session_id });
        }
        self.ever_ready = true;
        for waiter in self.await_start.drain(..) {
            // Whoever asked may have stopped waiting.
            waiter.send(Ok(())).ok();
        }
    }

    async fn child_ended(&mut self, id: ActorId, end: End) -> Handled {
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
        let server = self.servers.iter().position(|server| is(server.actor.as_ref().map(ActorRef::get_cell)));
        match server {
            Some(index) => self.server_ended(index, &end).await,
            None => Ok(()),
        }
    }

    async fn control_ended(&mut self, child: &'static str, end: &End) -> Handled {
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

    async fn server_ended(&mut self, index: usize, end: &End) -> Handled {
        self.servers[index].actor = None;
        if self.stopping() {
            return self.check_step().await;
        }
        let cause = end.to_string();
        let server = &mut self.servers[index];
        let name = server.spec.name.clone();
        match server.window.record(Instant::now()) {
            Verdict::After { delay, .. } => {
                server.status = ServerStatus::Restarting;
                server.cause = cause;
                if delay.is_zero() {
                    return self.restart_server(index).await;
                }
                self.tell_router(RouterMessage::ServerDown { server: name.clone() });
                self.after(delay, Internal::RestartServer(name));
                Ok(())
            }
            Verdict::GiveUp => {
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

    async fn port_ended(&mut self, end: End) -> Handled {
        self.lane = None;
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
            PortEnd::Asked | PortEnd::Reregister => None,
        };
        let epoch = self.epoch;
        self.tell_router(RouterMessage::Ended { epoch });
        self.tell_conversation(ConversationMessage::CliEnded {
            epoch,
            cause: cause.clone().filter(|_| !self.stopping()),
        });
        if self.stopping() {
            return self.check_step().await;
        }
        let Some(cause) = cause else {
            if matches!(end, PortEnd::Reregister) {
                self.route = initialize::Route::McpConfig;
                self.shared.emit(Event::CliReregistered { epoch });
            }
            return self.start_port().await;
        };
        self.shared.emit(Event::CliExited { epoch, cause: cause.clone() });
        if !self.ever_ready {
            return self.fail(cause.to_error()).await;
        }
        let (delay, attempt) = if matches!(end, PortEnd::AfterErrorResult(_)) {
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

    // ---- stopping -------------------------------------------------------------------------------------------

    fn stopping(&self) -> bool {
        matches!(self.phase, State::Stopping { .. })
    }

    async fn stop(&mut self, reply: StopReply) -> Handled {
        self.await_stop.push(reply);
        if self.stopping() { Ok(()) } else { self.begin_stop(Step::Drain, None).await }
    }

    async fn fail(&mut self, error: Error) -> Handled {
        if self.stopping() {
            return Ok(());
        }
        self.begin_stop(Step::Cli, Some(error)).await
    }

    async fn begin_stop(&mut self, first: Step, failed: Option<Error>) -> Handled {
        self.timers.clear();
        if let Some(error) = &failed {
            // The first failure is the reason; there is no second, for none is looked for any more.
            self.shared.failed.set(error.clone()).ok();
        }
        self.shared.emit(Event::Stopping);
        self.phase = State::Stopping { step: first, number: 0, failed, limit: None };
        self.enter_step().await
    }

    async fn next_step(&mut self) -> Handled {
        if let State::Stopping { step, .. } = &mut self.phase {
            *step = step.next();
        }
        self.enter_step().await
    }

    /// Does what belongs to the step, and goes on at once if there is nothing to do.
    async fn enter_step(&mut self) -> Handled {
        let timeouts = self.shared.options().timeouts.clone();
        let State::Stopping { step, number, .. } = &mut self.phase else { return Ok(()) };
        *number += 1;
        let (step, number) = (*step, *number);
        let limit = match step {
            Step::Drain => {
                self.tell_conversation(ConversationMessage::Drain);
                timeouts.drain
            }
            Step::Cli => {
                // The handlers of a turn that was not finished in time hold the CLI up.
                self.tell_router(RouterMessage::CancelAll);
                if let Some(port) = &self.port {
                    // One that has just ended is noticed below.
                    port.cast(PortMessage::Shutdown).ok();
                }
                timeouts.exit_after_eof + timeouts.exit_after_term + timeouts.reap + timeouts.child_stop * 2
            }
            Step::Handlers => {
                for actor in self.servers.iter().filter_map(|server| server.actor.as_ref()) {
                    actor.cast(ServerMessage::Stop).ok();
                }
                if let Some(callbacks) = &self.callbacks {
                    callbacks.cast(CallbacksMessage::Stop).ok();
                }
                timeouts.cancel_grace + timeouts.child_stop
            }
            Step::Router => {
                if let Some(router) = &self.router {
                    router.stop(None);
                }
                timeouts.child_stop
            }
            Step::Conversation => {
                let failed = self.shared.failed.get().cloned();
                self.tell_conversation(ConversationMessage::Stop { failed });
                timeouts.child_stop
            }
            Step::Gone => return self.gone(),
        };
        let timer = self.later(limit, Internal::StopLimit(number));
        if let State::Stopping { limit, .. } = &mut self.phase {
            *limit = Some(timer);
        }
        Box::pin(self.check_step()).await
    }

    /// Goes on to the next step when nothing of this one is left.
    async fn check_step(&mut self) -> Handled {
        let State::Stopping { step, .. } = &self.phase else { return Ok(()) };
        let done = match step {
            // Ends with a message of the conversation, or when there is none to drain.
            Step::Drain => self.conversation.is_none(),
            Step::Cli => self.port.is_none(),
            Step::Handlers => {
                self.callbacks.is_none() && self.servers.iter().all(|server| server.actor.is_none())
            }
            Step::Router => self.router.is_none(),
            Step::Conversation => self.conversation.is_none(),
            Step::Gone => false,
        };
        if done { Box::pin(self.next_step()).await } else { Ok(()) }
    }

    /// A step took too long: what is left of it is killed, and its end is noticed like any other.
    async fn step_limit(&mut self, limit_of: u32) -> Handled {
        let State::Stopping { step, number, .. } = &self.phase else { return Ok(()) };
        if *number != limit_of {
            return Ok(());
        }
        let step = *step;
        if step == Step::Drain {
            return self.next_step().await;
        }
        tracing::warn!(parent: &self.shared.span, ?step, "a step of stopping took too long; what is left is killed");
        let cells: Vec<ActorCell> = match step {
            Step::Cli => self.port.iter().map(ActorRef::get_cell).collect(),
            Step::Handlers => {
                let servers =
                    self.servers.iter().filter_map(|server| server.actor.as_ref()).map(ActorRef::get_cell);
                servers.chain(self.callbacks.iter().map(ActorRef::get_cell)).collect()
            }
            Step::Router => self.router.iter().map(ActorRef::get_cell).collect(),
            Step::Conversation => self.conversation.iter().map(ActorRef::get_cell).collect(),
            Step::Drain | Step::Gone => Vec::new(),
        };
        for cell in cells {
            cell.kill();
        }
        Ok(())
    }

    /// Nothing is left: says so, and ends.
    fn gone(&mut self) -> Handled {
        let State::Stopping { failed, limit, .. } = &mut self.phase else { return Ok(()) };
        let failed = failed.take();
        *limit = None;
        self.shared.router.send_replace(None);
        let (event, outcome) = match &failed {
            Some(error) => (Event::Failed { cause: error.to_string() }, Err(error.clone())),
            None => (Event::Stopped, Ok(())),
        };
        self.shared.emit(event);
        for waiter in self.await_start.drain(..) {
            let stopped = || Error::new(ErrorKind::Stopped, "the session was stopped while it started");
            // Whoever asked may have stopped waiting.
            waiter.send(Err(failed.clone().unwrap_or_else(stopped))).ok();
        }
        for waiter in self.await_stop.drain(..) {
            waiter(outcome.clone());
        }
        self.shared.vitals.send_modify(|vitals| vitals.run_ended = true);
        match failed {
            Some(error) => Err(Box::new(error)),
            None => {
                self.myself.stop(None);
                Ok(())
            }
        }
    }

    // ---- reports --------------------------------------------------------------------------------------------

    fn snapshot(&mut self, answer: impl FnOnce(Snapshot) + Send + 'static) {
        let phase = match &self.phase {
            State::Starting => Phase::Starting,
            State::Ready => Phase::Ready,
            State::Recovering => Phase::Recovering,
            State::Stopping { step: Step::Drain, .. } => Phase::Draining,
            State::Stopping { .. } => Phase::Stopping,
        };
        let shared = self.shared.clone();
        let limit = shared.options().timeouts.child_stop;
        let port = self.port.clone();
        let (conversation, router, callbacks) =
            (self.conversation.clone(), self.router.clone(), self.callbacks.clone());
        let servers: Vec<_> =
            self.servers.iter().map(|server| (server.actor.clone(), server.absent())).collect();
        self.errand(async move {
            let servers = servers.into_iter().map(|(actor, absent)| async move {
                inspect(limit, actor, ServerMessage::Snapshot).await.unwrap_or(absent)
            });
            let (cli, conversation, router, callbacks, servers) = tokio::join!(
                inspect(limit, port, PortMessage::Snapshot),
                inspect(limit, conversation, ConversationMessage::Snapshot),
                inspect(limit, router, RouterMessage::Snapshot),
                inspect(limit, callbacks, CallbacksMessage::Snapshot),
                join_all(servers),
            );
            let session_id = shared.vitals.borrow().session_id.clone();
            answer(Snapshot {
                phase,
                age_ms: millis(shared.started.elapsed()),
                session_id,
                cli,
                conversation,
                router,
                servers,
                callbacks,
                counters: shared.counting.read(),
            });
        });
    }

    #[cfg(feature = "testkit")]
    fn inject(&mut self, fault: crate::testkit::Fault) {
        use crate::testkit::Fault;
        // A child that is not there cannot be broken.
        match fault {
            Fault::PanicRouter => self.tell_router(RouterMessage::Panic),
            Fault::PanicConversation => self.tell_conversation(ConversationMessage::Panic),
            Fault::PanicCallbacks => {
                drop(self.callbacks.as_ref().map(|actor| actor.cast(CallbacksMessage::Panic)))
            }
            Fault::PanicPort => drop(self.port.as_ref().map(|actor| actor.cast(PortMessage::Panic))),
            Fault::KillPort => self.port.iter().for_each(|actor| actor.kill()),
            Fault::PanicServer(name) | Fault::KillServer(name)
                if !self.servers.iter().any(|server| server.spec.name == name) =>
            {
                tracing::warn!(name, "there is no such server to break");
            }
            Fault::PanicServer(name) => {
                for server in self.servers.iter().filter(|server| server.spec.name == name) {
                    drop(server.actor.as_ref().map(|actor| actor.cast(ServerMessage::Panic)));
                }
            }
            Fault::KillServer(name) => {
                for server in self.servers.iter().filter(|server| server.spec.name == name) {
                    server.actor.iter().for_each(|actor| actor.kill());
                }
            }
            Fault::KillSupervisor => self.myself.kill(),
        }
    }
}

impl Server {
    fn route(&self) -> Route {
        match (&self.actor, &self.status) {
            (_, ServerStatus::Failed(cause)) => Route::Failed(cause.clone()),
            (Some(actor), _) => Route::Up(actor.clone()),
            (None, _) => Route::Down,
        }
    }

    /// What is said of it while its actor is not there.
    fn absent(&self) -> ServerSnapshot {
        ServerSnapshot {
            name: self.spec.name.clone(),
            status: match &self.status {
                ServerStatus::Up => ServerStatus::Restarting,
                status => status.clone(),
            },
            generation: self.generation,
            calls: Vec::new(),
            blocking: self.blocking.running(),
            abandoned: self.blocking.abandoned(),
            mcp_sessions: 0,
        }
    }
}

/// Asks a child how it stands; `None` if it is not there or does not say so in time.
async fn inspect<M: ractor::Message, S>(
    limit: Duration,
    actor: Option<ActorRef<M>>,
    message: impl FnOnce(oneshot::Sender<S>) -> M,
) -> Option<S> {
    let (reply, answer) = oneshot::channel();
    actor?.cast(message(reply)).ok()?;
    tokio::time::timeout(limit, answer).await.ok()?.ok()
}
