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
//!   stop ──► Stopping: Drain ─► Cli ─► Store ─► Handlers ─► Router ─► Conversation ─► gone
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
//!
//! - here: the state, and what each message leads to
//! - [`children`]: how children start, and what follows when one ends
//! - [`changing`]: how MCP servers come and go
//! - [`stopping`]: how a session stops
//! - [`report`]: what is told of the tree

pub(crate) mod changing;
mod children;
mod report;
mod stopping;

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::sync::oneshot;
use tokio_util::sync::DropGuard;

use super::callbacks::CallbacksMessage;
use super::conversation::{Conversation, ConversationArguments, ConversationMessage};
use super::initialize::Ways;
use super::interrupt::interrupt;
use super::lane::Lane;
use super::mcp_server::ServerMessage;
use super::message::{Internal, SessionMessage};
use super::port::PortMessage;
use super::restart::RestartWindow;
use super::resume::ResumeHome;
use super::router::RouterMessage;
use super::shared::Shared;
use super::work::Task;
use crate::error::{Error, ErrorKind, Result};
use crate::options::ResumeLadder;
use crate::report::ServerStatus;
use crate::tool::instance::BlockingLane;
use crate::tool::server::ServerSpec;
use changing::{Changing, Leaving};
use stopping::Step;

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
    /// Those that were removed and are not gone yet.
    leaving: Vec<Leaving>,
    /// The change of the servers that is on its way.
    changing: Option<Changing>,
    /// How many there were.
    changes: u64,
    random: SmallRng,
    port: Option<ActorRef<PortMessage>>,
    windows: Windows,
    /// The waits before restarts.
    timers: Vec<Task>,
    /// Gives the session's store what the CLI writes.
    mirror: Option<Task>,
    /// The configuration of a session that came from the store.
    home: Option<ResumeHome>,
    /// Whether it is being removed.
    ending_home: bool,
    /// Work that is done for a caller.
    errands: Vec<Task>,
    epoch: u64,
    ways: Ways,
    lane: Option<Lane>,
    ever_ready: bool,
    /// Whether the next incarnation begins the captured conversation anew.
    anew: bool,
    /// How far down the ladder the next resumption is.
    ladder: ResumeLadder,
    /// The router is to be started as soon as there are callbacks for it.
    router_waits: bool,
    /// The CLI is to be started as soon as there is a router for it.
    port_waits: bool,
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
    /// How often in a row it has ended before it had its state. One that never gets it is given up, however slowly it
    /// fails.
    barren: u32,
    /// The wait before its restart.
    timer: Option<Task>,
}

/// What the session is doing.
#[derive(Debug)]
enum State {
    Starting,
    Ready,
    Recovering,
    Stopping { step: Step, number: u32, failed: Option<Error>, limit: Option<Task> },
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
        let places = shared.options().limits.blocking_calls;
        let servers = shared
            .roster()
            .inside()
            .iter()
            .map(|spec| Server::new(spec.clone(), window(&restarts.server), BlockingLane::new(places)))
            .collect();
        let windows = Windows {
            port: window(&restarts.cli),
            router: window(&restarts.control),
            callbacks: window(&restarts.control),
        };
        let ways = Ways::first(shared.options());
        let home = shared.home.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(SupervisorState {
            _gone: shared.gone.clone().drop_guard(),
            shared,
            myself,
            phase: State::Starting,
            conversation: None,
            router: None,
            callbacks: None,
            servers,
            leaving: Vec::new(),
            changing: None,
            changes: 0,
            random,
            port: None,
            windows,
            timers: Vec::new(),
            mirror: None,
            home,
            ending_home: false,
            errands: Vec::new(),
            epoch: 0,
            ways,
            lane: None,
            ever_ready: false,
            anew: false,
            ladder: ResumeLadder::SameId,
            router_waits: false,
            port_waits: false,
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
        if let (Some(mirror), Some(conversation)) = (state.shared.mirror(), &state.conversation) {
            let run = mirror.clone().run(state.shared.clone(), conversation.clone());
            state.mirror = Some(Task::spawn(run));
        }
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
                    let limit = shared.options().timeouts.control_request;
                    let interrupted = interrupt(&shared, conversation.as_ref(), false, limit).await;
                    reply.send(interrupted.map(drop)).ok();
                });
            }
            SessionMessage::Snapshot(reply) => state.snapshot(move |snapshot| drop(reply.send(Ok(snapshot)))),
            SessionMessage::Events(reply) => {
                reply.send(state.shared.subscribe()).ok();
            }
            // Whoever asked may have stopped waiting.
            SessionMessage::Stop(reply) => {
                let told: StopReply = Box::new(move |outcome| drop(reply.send(outcome)));
                return Box::pin(state.stop(told)).await;
            }
            SessionMessage::Internal(internal) => return Box::pin(state.internal(internal)).await,
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        _: ActorRef<SessionMessage>,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        // The state itself travels to the parent and may be kept there.
        state.shared.gone.cancel();
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
                // Nothing of the application: the supervisor has the server's definition for longer, and what else there
                // is of it goes elsewhere.
                drop(last_state);
                Box::pin(state.child_ended(cell.get_id(), End::Stopped(reason))).await
            }
            SupervisionEvent::ActorFailed(cell, error) => {
                Box::pin(state.child_ended(cell.get_id(), End::Failed(error))).await
            }
            _ => Ok(()),
        }
    }
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
        // Boxed, so that one that is done holds little until the next one comes.
        self.errands.push(Task::spawn(Box::pin(errand)));
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
                self.lane = Some(lane.clone());
                // A router that was started between the opening and this news was not told by the port.
                self.tell_router(RouterMessage::Opened(lane));
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
                if !self.router_waits {
                    self.shared.counting.control_restarts.one();
                }
            }
            Internal::RestartCallbacks if !self.stopping() => {
                self.start_callbacks().await?;
                self.shared.counting.control_restarts.one();
                if let Some(callbacks) = self.callbacks.clone() {
                    self.tell_router(RouterMessage::CallbacksUp(callbacks));
                }
                if std::mem::take(&mut self.router_waits) {
                    self.start_router().await?;
                    self.shared.counting.control_restarts.one();
                }
            }
            Internal::RestartCli
            | Internal::RestartServer(_)
            | Internal::RestartRouter
            | Internal::RestartCallbacks => {}
            Internal::Change(request) => return self.change(*request).await,
            Internal::Changed(told) => self.changed(told),
            Internal::ServerServes(name) => {
                for server in self.servers.iter_mut().filter(|server| server.spec.name == name) {
                    server.barren = 0;
                }
            }
            Internal::MirrorEnded => {
                if matches!(self.phase, State::Stopping { step: Step::Store, .. }) {
                    self.give_up_mirror();
                    return self.next_step().await;
                }
            }
            Internal::Drained => {
                if matches!(self.phase, State::Stopping { step: Step::Drain, .. }) {
                    return self.next_step().await;
                }
            }
            Internal::GiveUpCli { epoch, reason } => {
                if let Some(port) = self.port.as_ref().filter(|_| epoch == self.epoch) {
                    // One that has just ended is what was wanted.
                    port.cast(PortMessage::GiveUp(reason)).ok();
                }
            }
            Internal::StopLimit(number) => return self.step_limit(number).await,
            Internal::Abandoned if !self.stopping() => return self.begin_stop(Step::Cli, None).await,
            Internal::Abandoned => {}
            Internal::Stop(reply) => {
                return self.stop(Box::new(move |outcome| drop(reply.send(outcome)))).await;
            }
            Internal::Interrupt { cancel_queued, limit, reply } => {
                let (shared, conversation) = (self.shared.clone(), self.conversation.clone());
                self.errand(async move {
                    // Whoever asked may have stopped waiting.
                    reply.send(interrupt(&shared, conversation.as_ref(), cancel_queued, limit).await).ok();
                });
            }
            Internal::TakeBack { uuid, reply } => {
                if let Some(conversation) = &self.conversation {
                    // A conversation that has just ended drops the reply, which the caller notices.
                    conversation.cast(ConversationMessage::TakeBack { uuid, reply }).ok();
                }
            }
            Internal::Snapshot(reply) => self.snapshot(move |snapshot| drop(reply.send(Ok(snapshot)))),
            #[cfg(feature = "testkit")]
            Internal::Inject(fault) => self.inject(fault),
            Internal::Emit(event) => self.shared.emit(event),
            Internal::Fatal(error) => return self.fail(error).await,
        }
        Ok(())
    }
}
