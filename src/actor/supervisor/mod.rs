//! The supervisor of a session starts, restarts and stops the other actors. It does no work itself, so it cannot fail
//! at work.
//!
//! ```text
//!                     ready              the CLI died
//!   Starting ───────────────► Ready ───────────────────► Recovering ──┐
//!      │                        ▲            ready           │        │ too many restarts
//!      │ first CLI did          └────────────────────────────┘        │
//!      │ not start                                                    ▼
//!      └──────────────────────────────────────────────────────► Stopping(failed)
//!   stop ──► Stopping: Drain ─► Cli ─► Store ─► Handlers ─► Router ─► Conversation ─► Gone
//! ```
//!
//! | child | when the child ends by itself |
//! |---|---|
//! | conversation | the session fails |
//! | router, callbacks | restarted (`Restarts::control`), then the session fails |
//! | tool server | restarted (`Restarts::server`), then given up: a significant server fails the session, any other is tried again each `Restarts::server_retry`. A server whose state cannot be made is treated alike |
//! | port | the next incarnation starts (`Restarts::cli`), then the session fails |
//!
//! Each step of stopping has a limit; when it passes, the actors that are left are killed. A supervisor that is killed
//! takes its children with it, and the port takes the CLI's process group.
//!
//! - here: the state, and what each message leads to
//! - [`children`]: start children, notice their ends
//! - [`port_end`]: what follows the end of a CLI
//! - [`servers`]: start and restart tool servers
//! - [`changing`]: add and remove MCP servers
//! - [`stopping`]: stop step by step; [`killing`]: stop at once
//! - [`snapshot`]: report the state of the tree

pub(crate) mod changing;
mod child;
mod children;
pub(crate) mod claims;
#[cfg(feature = "testkit")]
pub(crate) mod fault;
pub(crate) mod killing;
mod port_end;
mod servers;
mod snapshot;
mod stopping;

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};
use tokio::sync::oneshot;
use tokio_util::sync::DropGuard;

use super::base::reply::respond;
use super::base::restart_window::RestartWindow;
use super::base::task::Task;
use super::context::Shared;
use super::conversation::{Conversation, ConversationArguments};
use super::incarnation::initialize::Channels;
use super::messages::callbacks::CallbacksMessage;
use super::messages::conversation::ConversationMessage;
use super::messages::port::PortMessage;
use super::messages::router::RouterMessage;
use super::messages::session::{Internal, SessionMessage};
use super::resume::ResumeHome;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lock;
use crate::options::Restart;
use crate::report::ExitCause;
use changing::{Changing, Leaving};
use child::{ChildActor, ChildEnd};
use port_end::ResumeStep;
use servers::ServerChild;
use stopping::StopStep;

pub(crate) struct SessionSupervisor;

pub(crate) struct SupervisorState {
    /// Releases the claim on the conversation, however the session ended. Declared first: the claim is free when
    /// `_gone` tells the end.
    _claimed: ReleaseClaim,
    /// Cancels `Shared::gone`, however the session ended.
    _gone: DropGuard,
    shared: Arc<Shared>,
    myself: ActorRef<SessionMessage>,
    stage: SessionStage,
    conversation: ChildActor<ConversationMessage>,
    router: ChildActor<RouterMessage>,
    callbacks: ChildActor<CallbacksMessage>,
    port: ChildActor<PortMessage>,
    servers: Vec<ServerChild>,
    /// Removed servers whose actors have not ended yet.
    leaving: Vec<Leaving>,
    /// The change of the servers in progress.
    changing: Option<Changing>,
    /// Number of server changes so far; numbers the next one.
    changes: u64,
    random: Rng,
    windows: Windows,
    /// Backoff timers of the router, the callbacks and the port.
    timers: Vec<Task>,
    /// The worker that gives the session's store what the CLI writes.
    mirror: Option<Task>,
    home: HomeState,
    /// Tasks that do something for a caller.
    errands: Vec<Task>,
    /// The epoch of the newest incarnation; 0 before the first.
    epoch: u64,
    /// The channels of the next incarnation.
    channels: Channels,
    /// The conversation that the next incarnation opens.
    resume: ResumeStep,
    /// The first refusal to open the conversation since an incarnation was ready.
    refused: Option<ExitCause>,
    /// Whether the start is over: the CLI was ready once, and every significant server has had its state.
    started: bool,
    await_start: Vec<oneshot::Sender<Result<()>>>,
    await_stop: Vec<RpcReplyPort<Result<()>>>,
}

/// Releases the claim on the session's conversation when dropped.
struct ReleaseClaim(Arc<Shared>);

impl Drop for ReleaseClaim {
    fn drop(&mut self) {
        self.0.claims.release();
    }
}

struct Windows {
    port: RestartWindow,
    router: RestartWindow,
    callbacks: RestartWindow,
}

/// The configuration folder of a session that was loaded from a store.
enum HomeState {
    /// There is none, or it is removed.
    None,
    InUse(ResumeHome),
    /// An errand is removing it.
    Removing,
}

/// The stage of the session.
#[derive(Debug)]
enum SessionStage {
    /// No incarnation has been ready yet.
    Starting,
    Ready,
    /// The CLI died; the next incarnation has not been ready yet.
    Recovering,
    Stopping {
        step: StopStep,
        /// Number of steps so far; tells the limit of this step from those of earlier ones.
        number: u32,
        failed: Option<Error>,
        limit: Option<Task>,
        /// Whether the limits of the steps are those of a kill.
        killed: bool,
    },
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
        let mut random = Rng::new();
        let restarts = &shared.options().restarts;
        let mut window = |limits: &Restart| RestartWindow::new(limits.clone(), random.fork());
        let windows = Windows {
            port: window(&restarts.cli),
            router: window(&restarts.control),
            callbacks: window(&restarts.control),
        };
        let roster = shared.roster();
        let servers = roster.inside().iter();
        let servers = servers.map(|spec| ServerChild::new(&shared, spec.clone(), &mut random)).collect();
        let home = lock(&shared.home).take();
        let resume = ResumeStep::first(&shared);
        Ok(SupervisorState {
            _claimed: ReleaseClaim(shared.clone()),
            _gone: shared.gone.clone().drop_guard(),
            channels: Channels::first(shared.options()),
            shared,
            myself,
            stage: SessionStage::Starting,
            conversation: ChildActor::Down,
            router: ChildActor::Down,
            callbacks: ChildActor::Down,
            port: ChildActor::Down,
            servers,
            leaving: Vec::new(),
            changing: None,
            changes: 0,
            random,
            windows,
            timers: Vec::new(),
            mirror: None,
            home: home.map_or(HomeState::None, HomeState::InUse),
            errands: Vec::new(),
            epoch: 0,
            resume,
            refused: None,
            started: false,
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
        let conversation = state.spawn(Conversation, arguments).await?;
        // Set once: the conversation never restarts.
        state.shared.conversation.set(conversation.clone()).ok();
        if let Some(mirror) = state.shared.mirror() {
            let run = mirror.clone().run(state.shared.clone(), conversation.clone());
            state.mirror = Some(Task::spawn(run));
        }
        state.conversation = ChildActor::Up(conversation);
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
            // For programs that hold the session's actor alone: a `Session` tells the conversation itself.
            SessionMessage::Prompt(prompt, reply) => {
                state.conversation.tell(ConversationMessage::Prompt { prompt, cancel_on_drop: false, reply });
            }
            SessionMessage::Steer(prompt, reply) => {
                state.conversation.tell(ConversationMessage::Steer { prompt, reply });
            }
            SessionMessage::Interrupt(reply) => {
                let limit = state.shared.options().timeouts.control_request;
                let (answer, receipt) = oneshot::channel();
                let message = ConversationMessage::Interrupt { cancel_queued: false, limit, reply: answer };
                state.conversation.tell(message);
                state.errand(async move {
                    if let Ok(receipt) = receipt.await {
                        respond(reply, receipt.map(drop));
                    }
                });
            }
            SessionMessage::Snapshot(reply) => state.snapshot(reply),
            SessionMessage::Events(reply) => respond(reply, state.shared.subscribe()),
            SessionMessage::Stop(reply) => return Box::pin(state.stop(reply)).await,
            SessionMessage::Kill(reply) => {
                state.await_stop.push(reply);
                return Box::pin(state.kill()).await;
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
        // Not left to the drop of the state: the state travels to the parent, which may keep it.
        state.shared.claims.release();
        state.shared.gone.cancel();
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<SessionMessage>,
        event: SupervisionEvent,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        let (cell, end) = match event {
            SupervisionEvent::ActorTerminated(cell, last_state, reason) => {
                // Runs no code of the application: the definition of a server lives longer in this actor, and an
                // instance is dropped elsewhere.
                drop(last_state);
                (cell, ChildEnd::Stopped(reason))
            }
            SupervisionEvent::ActorFailed(cell, error) => (cell, ChildEnd::Failed(error)),
            _ => return Ok(()),
        };
        Box::pin(state.child_ended(cell.get_id(), end)).await
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

    /// Does something for a caller on a task of its own, so that the supervisor goes on.
    fn errand(&mut self, errand: impl Future<Output = ()> + Send + 'static) {
        self.errands.retain(|errand| !errand.is_finished());
        self.errands.push(Task::spawn(errand));
    }

    /// Sends the supervisor a message after `delay`, unless the task is dropped before.
    fn later(&self, delay: Duration, message: Internal) -> Task {
        let myself = self.myself.clone();
        Task::spawn(async move {
            tokio::time::sleep(delay).await;
            message.tell(&myself);
        })
    }

    fn after(&mut self, delay: Duration, message: Internal) {
        self.timers.retain(|timer| !timer.is_finished());
        let timer = self.later(delay, message);
        self.timers.push(timer);
    }

    async fn internal(&mut self, message: Internal) -> Handled {
        match message {
            Internal::CliReady { epoch } => self.cli_ready(epoch),
            Internal::AwaitStart(reply) => self.await_start(reply),
            Internal::RestartCli => {
                if matches!(self.stage, SessionStage::Recovering) && !self.port.is_up() {
                    return self.start_port().await;
                }
            }
            Internal::RestartServer(name) => return self.restart_named(&name).await,
            Internal::RestartRouter => return self.restart_router().await,
            Internal::RestartCallbacks => return self.restart_callbacks().await,
            Internal::Change(request) => return self.change(*request).await,
            Internal::Changed(outcome) => self.changed(outcome),
            Internal::ServerServes { server, generation } => self.server_serves(&server, generation),
            Internal::StateFailed { server, generation, cause } => {
                return self.state_failed(&server, generation, cause).await;
            }
            Internal::Captured => self.claim(),
            Internal::MirrorEnded => return self.mirror_ended().await,
            Internal::Drained => {
                if self.stops_at(StopStep::Drain) {
                    return self.next_step().await;
                }
            }
            Internal::Idle => {
                if !self.stopping() {
                    return self.begin_stop(StopStep::Drain, None).await;
                }
            }
            Internal::GiveUpCli { epoch, reason } => {
                if epoch == self.epoch {
                    self.port.tell(PortMessage::GiveUp(reason));
                }
            }
            Internal::StopLimit(number) => return self.step_limit(number).await,
            Internal::Abandoned => {
                if !self.stopping() {
                    return self.begin_stop(StopStep::Cli, None).await;
                }
            }
            #[cfg(feature = "testkit")]
            Internal::Inject(fault) => self.inject(fault),
            Internal::Fatal(error) => return self.fail(error).await,
        }
        Ok(())
    }

    fn await_start(&mut self, reply: oneshot::Sender<Result<()>>) {
        if matches!(self.stage, SessionStage::Stopping { failed: None, .. }) {
            return respond(reply, Err(Error::new(ErrorKind::Stopped, "the session was stopped")));
        }
        // A failing session answers with its error when nothing of it is left.
        self.await_start.push(reply);
        if !self.stopping() {
            self.check_start();
        }
    }
}
