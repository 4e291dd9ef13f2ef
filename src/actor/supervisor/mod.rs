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
//! - [`incarnations`]: start CLIs one after another; what follows the end of one
//! - [`servers`]: start and restart tool servers
//! - [`changing`]: add and remove MCP servers
//! - [`stopping`]: stop step by step; [`killing`]: stop at once
//! - [`snapshot`]: report the state of the tree

pub(crate) mod changing;
mod child;
mod children;
pub(crate) mod claims;
#[cfg(feature = "testing")]
pub(crate) mod fault;
mod incarnations;
pub(crate) mod killing;
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
use super::conversation::Conversation;
use super::incarnation::run::ExitSignal;
use super::messages::children::CallbacksMessage;
use super::messages::conversation::ConversationMessage;
use super::messages::router::RouterMessage;
use super::messages::session::{ControlName, Internal, SessionMessage};
use super::resume::ResumeHome;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lock;
use crate::options::Restart;
use child::{ChildActor, ChildEnd, ControlChild};
use incarnations::Incarnations;
use servers::Servers;
use stopping::StopStep;

pub(crate) struct SessionSupervisor;

pub(crate) struct SupervisorState {
    /// Releases the claim on the conversation, however the session ended. Declared first: the claim is free when
    /// `_gone` tells the end.
    _claimed: ReleaseClaim,
    /// Cancels `Ending::gone`, however the session ended.
    _gone: DropGuard,
    shared: Arc<Shared>,
    myself: ActorRef<SessionMessage>,
    stage: SessionStage,
    conversation: ChildActor<ConversationMessage>,
    router: ControlChild<RouterMessage>,
    callbacks: ControlChild<CallbacksMessage>,
    cli: Incarnations,
    servers: Servers,
    /// Mirrors what the CLI writes to the session's store.
    mirror: Option<Task>,
    /// The configuration folder of a session that was loaded from a store.
    home: Option<ResumeHome>,
    /// An errand ends the mirror and removes the session's folder.
    mirror_ending: bool,
    callers: Callers,
    /// Tasks that do something for a caller.
    errands: Vec<Task>,
}

/// The callers that wait for the start or the end of the session.
#[derive(Default)]
struct Callers {
    /// Whether the start is over: the CLI was ready once, and every significant server has had its state.
    has_started: bool,
    start: Vec<oneshot::Sender<Result<()>>>,
    stop: Vec<RpcReplyPort<Result<()>>>,
}

impl Callers {
    /// The start is over.
    fn started(&mut self) {
        self.has_started = true;
        self.start.drain(..).for_each(|caller| respond(caller, Ok(())));
    }

    /// Nothing of the session is left. `failed`: it has failed with this error.
    fn ended(&mut self, failed: Option<&Error>) {
        for caller in self.start.drain(..) {
            let stopped = || Error::new(ErrorKind::Stopped, "the session was stopped while it started");
            respond(caller, Err(failed.cloned().unwrap_or_else(stopped)));
        }
        let outcome = failed.map_or(Ok(()), |error| Err(error.clone()));
        self.stop.drain(..).for_each(|caller| respond(caller, outcome.clone()));
    }
}

/// Releases the claim on the session's conversation when dropped.
struct ReleaseClaim(Arc<Shared>);

impl Drop for ReleaseClaim {
    fn drop(&mut self) {
        self.0.claims.release();
    }
}

/// The stage of the session.
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
        // Set once: the supervisor never restarts.
        shared.supervisor.set(myself.clone()).ok();
        let restarts = &shared.options().restarts;
        let mut window = |limits: &Restart| RestartWindow::new(limits.clone(), random.fork());
        let cli = Incarnations::new(&shared, window(&restarts.cli));
        let router = ControlChild::new(window(&restarts.control));
        let callbacks = ControlChild::new(window(&restarts.control));
        let home = lock(&shared.home).take();
        Ok(SupervisorState {
            _claimed: ReleaseClaim(shared.clone()),
            _gone: shared.ending.gone.clone().drop_guard(),
            servers: Servers::new(&shared, random),
            shared,
            myself,
            stage: SessionStage::Starting,
            conversation: ChildActor::down(),
            router,
            callbacks,
            cli,
            mirror: None,
            home,
            mirror_ending: false,
            callers: Callers::default(),
            errands: Vec::new(),
        })
    }

    async fn post_start(
        &self,
        _: ActorRef<SessionMessage>,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        let conversation = state.spawn(Conversation, state.shared.clone()).await?;
        // Set once: the conversation never restarts.
        state.shared.conversation.set(conversation.clone()).ok();
        if let Some(mirror) = state.shared.mirror() {
            let run = mirror.clone().run(state.shared.clone());
            state.mirror = Some(Task::spawn(run));
        }
        state.conversation = ChildActor::up(conversation);
        state.start_control(ControlName::Callbacks).await?;
        state.start_control(ControlName::Router).await?;
        for index in 0..state.servers.children.len() {
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
                state.callers.stop.push(reply);
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
        state.shared.ending.gone.cancel();
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

/// Sends the supervisor a message after `delay`, unless the task is dropped before.
fn later(shared: &Arc<Shared>, delay: Duration, message: Internal) -> Task {
    let shared = shared.clone();
    Task::spawn(async move {
        tokio::time::sleep(delay).await;
        shared.tell(message);
    })
}

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

    async fn internal(&mut self, message: Internal) -> Handled {
        match message {
            Internal::CliReady { epoch } => self.cli_ready(epoch),
            Internal::AwaitStart(reply) => self.await_start(reply),
            Internal::RestartCli => {
                if matches!(self.stage, SessionStage::Recovering) && !self.cli.port.is_up() {
                    return self.start_port().await;
                }
            }
            Internal::RestartServer(name) => return self.restart_named(&name).await,
            Internal::RestartControl(child) => return self.restart_control(child).await,
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
                if self.cli.runs(epoch) {
                    self.cli.command(ExitSignal::GivenUp(reason));
                }
            }
            Internal::Deferred { epoch } => {
                if self.cli.runs(epoch) {
                    // Not in order: at the end of its input the CLI would note that nobody has decided.
                    self.cli.command(ExitSignal::GivenUp("a question was deferred".into()));
                }
                if !self.stopping() {
                    return self.begin_stop(StopStep::Cli, None).await;
                }
            }
            Internal::StopLimit(number) => return self.step_limit(number).await,
            Internal::Abandoned => {
                if !self.stopping() {
                    return self.begin_stop(StopStep::Cli, None).await;
                }
            }
            #[cfg(feature = "testing")]
            Internal::Inject(fault) => self.inject(fault),
            Internal::Fatal(error) => return self.fail(error).await,
        }
        Ok(())
    }

    fn await_start(&mut self, reply: oneshot::Sender<Result<()>>) {
        if self.stopping() && self.shared.ending.failed().is_none() {
            return respond(reply, Err(Error::new(ErrorKind::Stopped, "the session was stopped")));
        }
        // A failing session answers with its error when nothing of it is left.
        self.callers.start.push(reply);
        if !self.stopping() {
            self.check_start();
        }
    }
}
