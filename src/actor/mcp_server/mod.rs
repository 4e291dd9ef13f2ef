//! The actor of an in-process MCP server.
//!
//! ```text
//!   Making the state ──made──► Serving ──stopped──► handlers get their grace time
//!     │ calls wait ▲              │
//!     │            ├──────────────┘ more panics than `Restarts::panics`; calls in flight go on
//!     └── failed ──┘ when the supervisor says so; calls are refused once it has given the server up
//! ```
//!
//! Handlers and the factory of the state run as tasks, never inside the actor; their panics and errors do not end the
//! actor. Restart policy: transient, with the limits of `Restarts::server`. When the actor ends, its calls get an error
//! answer; calls that it has not taken from its [queue](super::servers::queue) wait there for its restart.
//!
//! The lists that the server offers are in its registry, which outlives the actor. A change of the registry wakes the
//! actor, which takes the new lists before it tells the CLI: the CLI's next call always finds them.
//!
//! - here: the actor, from its start to its end
//! - [`calls`]: calls and other requests, from their arrival to their answer
//! - [`making`]: making and replacing the state, and the calls that wait for it
//! - [`peer`]: notifications to the CLI

mod calls;
mod making;
mod peer;
mod span;

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::value::RawValue;
use tokio::time::Instant;

use self::making::Making;
use super::base::deadlines::millis;
use super::base::reply::{respond, telling};
use super::base::restart_window::RestartWindow;
use super::context::Shared;
use super::request::answer::Answer;
use super::request::handler_table::HandlerId;
use super::request::handlers::HandlerTasks;
use super::servers::queue::McpMessage;
use super::servers::roster::InsideServer;
use crate::actor::messages::children::ServerMessage;
use crate::plain::short;
use crate::report::{CallSnapshot, ServerSnapshot};
use crate::tool::handle::ServerHandle;
use crate::tool::run::context::{CallContext, Link, Named};
use crate::tool::run::dispatch::service;
use crate::tool::run::erased::CallFailure;
use crate::tool::run::instance::Instance;
use crate::tool::run::service::{HandlerRun, Service, ServiceStep};
use crate::wire::rpc::{CallParams, Rpc, RpcError};

pub(crate) struct McpServer;

pub(crate) struct ServerArguments {
    pub(crate) shared: Arc<Shared>,
    pub(crate) inside: Arc<InsideServer>,
    /// The epoch of the current CLI, if it is ready.
    pub(crate) ready_epoch: Option<u64>,
    /// The failure of the actor before; `None` for the first.
    pub(crate) cause: Option<String>,
    /// Whether the server was given up.
    pub(crate) given_up: bool,
}

pub(crate) struct ServerState {
    shared: Arc<Shared>,
    myself: ActorRef<ServerMessage>,
    inside: Arc<InsideServer>,
    generation: u32,
    link: Arc<Link>,
    /// The epoch of the last CLI that was ready.
    ready_epoch: Option<u64>,
    session: Box<dyn Service>,
    /// The first handler of the newest MCP session: JSON-RPC ids of earlier sessions mean nothing in this one.
    first_of_session: HandlerId,
    serving: Serving,
    handlers: HandlerTasks<Arc<CallContext>, CallFailure>,
    /// Panics of calls of this generation.
    panics: RestartWindow,
}

/// A request that needs a handler.
enum HandlerRequest {
    /// A tool call: the fields that are not in the request's ids, and the arguments.
    Call(Option<Named>, Option<Box<RawValue>>),
    Run(HandlerRun),
}

enum Serving {
    Making(Making),
    Ready(Instance),
    Ended,
}

#[cfg_attr(feature = "async-trait", ractor::async_trait)]
impl Actor for McpServer {
    type Msg = ServerMessage;
    type State = ServerState;
    type Arguments = ServerArguments;

    async fn pre_start(
        &self,
        myself: ActorRef<ServerMessage>,
        arguments: ServerArguments,
    ) -> Result<ServerState, ActorProcessingErr> {
        let ServerArguments { shared, inside, ready_epoch, cause, given_up } = arguments;
        let spec = &inside.spec;
        // An actor that has ended misses a change; the next one takes the new lists anyway.
        spec.registry.wake_with(telling(&myself, || ServerMessage::Changed));
        let ending = format!("MCP server '{}' has ended", spec.name);
        let generation = making::next_generation(&inside.generations);
        let handle = ServerHandle::new(spec.clone(), shared.ending.gone.clone());
        let link = Arc::new(Link {
            server: spec.name.clone(),
            log_level: spec.registry.log_level.clone(),
            identity: shared.identity.clone(),
            handle: Some(Box::new(handle)),
        });
        let limit = shared.options().timeouts.server_restart;
        let server = myself.clone();
        // An actor that has ended keeps no list.
        let report = move |end| drop(server.cast(ServerMessage::HandlerEnded(end)));
        let mut state = ServerState {
            handlers: HandlerTasks::new(shared.options().timeouts.cancel_grace, ending, report),
            panics: RestartWindow::new(shared.options().restarts.panics.clone(), fastrand::Rng::with_seed(0)),
            session: service(spec),
            link,
            ready_epoch: None,
            shared,
            myself,
            inside,
            generation,
            first_of_session: 0,
            serving: Serving::Making(Making::new(cause, given_up, limit)),
        };
        state.make();
        if let Some(epoch) = ready_epoch {
            state.cli_ready(epoch);
        }
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<ServerMessage>,
        message: ServerMessage,
        state: &mut ServerState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ServerMessage::RequestsQueued => {
                for (answer, message) in state.inside.queue.take() {
                    state.asked(answer, message);
                }
                state.handlers.flush();
                state.arm();
            }
            ServerMessage::CliReady { epoch } => state.cli_ready(epoch),
            ServerMessage::Changed => state.changed(),
            ServerMessage::HandlerEnded(end) => state.handler_ended(end),
            ServerMessage::StateMade(made) => state.state_made(made),
            ServerMessage::Make => state.make_again(),
            ServerMessage::GiveUp(cause) => state.give_up(cause),
            ServerMessage::Tick => state.tick(),
            ServerMessage::Stop => {
                Box::pin(state.stop()).await;
                myself.stop(None);
            }
            ServerMessage::Snapshot(reply) => respond(reply, state.snapshot()),
            #[cfg(feature = "testing")]
            ServerMessage::Panic => {
                panic!("a fault was injected into MCP server '{}'", state.inside.spec.name)
            }
        }
        Ok(())
    }
}

impl ServerState {
    fn asked(&mut self, answer: Answer, message: McpMessage) {
        if !answer.pending().is_open() {
            // Withdrawn, or of an incarnation that has ended.
            return;
        }
        match message {
            McpMessage::Rpc(rpc) => self.rpc(answer, rpc),
            McpMessage::Call(arguments) => self.call_when_ready(answer, None, arguments),
        }
    }

    fn call_when_ready(&mut self, answer: Answer, named: Option<Named>, arguments: Option<Box<RawValue>>) {
        match &self.serving {
            Serving::Ready(_) => self.call(answer, named, arguments),
            _ => self.not_ready(answer, HandlerRequest::Call(named, arguments)),
        }
    }

    fn rpc(&mut self, answer: Answer, rpc: Rpc) {
        let sessions = self.session.sessions();
        let step = self.session.step(rpc);
        if self.session.sessions() != sessions {
            // Calls of the session before go on.
            self.first_of_session = self.handlers.next_id();
        }
        match step {
            ServiceStep::Reply { outcome: Ok(result), .. } => answer.pending().mcp_value(result),
            ServiceStep::Reply { outcome: Err(error), .. } => self.refuse(&answer, &error),
            ServiceStep::Ack => answer.pending().mcp_ack(),
            ServiceStep::Cancelled(params) => {
                self.cancelled(params.request_id.get(), params.reason);
                answer.pending().mcp_ack();
            }
            ServiceStep::Call { params: CallParams { name, arguments, meta }, .. } => {
                let named = Named::new(name, meta.unwrap_or_default());
                self.call_when_ready(answer, Some(named), arguments);
            }
            ServiceStep::Run { run, .. } => match &self.serving {
                Serving::Ready(_) => self.run(answer, run),
                _ => self.not_ready(answer, HandlerRequest::Run(run)),
            },
            ServiceStep::Unasked => {
                self.shared.counting.unmatched_responses.one();
                answer.pending().mcp_ack();
            }
        }
    }

    /// Another CLI is ready. It knows the lists that it was told in the manifest.
    fn cli_ready(&mut self, epoch: u64) {
        let Some(outbound) = self.shared.cli.outbound_of(epoch) else { return };
        self.inside.spec.registry.meet(Some(Arc::new(outbound)));
        self.ready_epoch = Some(epoch);
        self.session.opened();
        self.changed();
    }

    /// Takes over what has changed in the registry, and then tells the CLI.
    fn changed(&mut self) {
        let news = self.session.refresh();
        if let Serving::Ready(instance) = &mut self.serving {
            instance.refresh(self.session.lists());
        }
        // The next CLI knows from its start.
        let outbound = self.ready_epoch.and_then(|epoch| self.shared.cli.outbound_of(epoch));
        let Some(outbound) = outbound else { return };
        for method in news {
            match peer::notification(&self.inside.spec.name, method, None) {
                // An incarnation that has ended wants no notifications.
                Ok(json) => drop(outbound.send(json)),
                Err(error) => tracing::debug!(%error, "a notification does not serialise"),
            }
        }
    }

    fn refuse(&self, answer: &Answer, error: &RpcError) {
        if error.code == crate::wire::rpc::METHOD_NOT_FOUND {
            self.shared.counting.not_found.one();
        }
        answer.pending().refuse(error);
    }

    /// Ends the handlers, and then the state, whose drop is code of the application.
    async fn stop(&mut self) {
        self.inside.spec.registry.meet(None);
        self.handlers.abort_text = format!("MCP server '{}' was stopped", self.inside.spec.name);
        let shared = self.shared.clone();
        self.handlers.stop(shared.options().timeouts.child_stop / 2, &shared.ending.killed).await;
        if let Serving::Ready(instance) = std::mem::replace(&mut self.serving, Serving::Ended) {
            instance.end().await;
        }
    }

    fn arm(&mut self) {
        self.handlers.table().arm(telling(&self.myself, || ServerMessage::Tick));
        if let Serving::Making(making) = &mut self.serving {
            making.arm(telling(&self.myself, || ServerMessage::Tick));
        }
    }

    fn snapshot(&self) -> ServerSnapshot {
        let now = Instant::now();
        let mut calls: Vec<CallSnapshot> = self
            .handlers
            .table()
            .running()
            .iter()
            .map(|handler| CallSnapshot {
                request_id: short(handler.pending.request_id()),
                tool: short(handler.label.label()),
                tool_use_id: handler.label.tool_use_id().filter(|_| handler.label.is_tool).map(short),
                age_ms: millis(now.duration_since(handler.pending.received)),
                cancelled: handler.pending.cancel.is_cancelled(),
            })
            .collect();
        calls.sort_by_key(|call| std::cmp::Reverse(call.age_ms));
        ServerSnapshot {
            name: self.inside.spec.name.clone(),
            status: self.status(),
            generation: self.generation,
            calls,
            blocking: self.inside.blocking.running(),
            abandoned: self.inside.blocking.abandoned(),
            mcp_sessions: self.session.sessions(),
        }
    }
}
