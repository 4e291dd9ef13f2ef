//! One in-process MCP server: its MCP session, its state, its calls in flight.
//!
//! ```text
//!   Making the state ──made──► Serving ──panics over intensity──► ended (the supervisor restarts it)
//!        │   calls wait           │
//!        └── failed, too late ────┴── stopped: handlers get their grace time
//! ```
//!
//! Handlers and the factory of the state run as tasks, never in here. Restart policy: transient, with the limits
//! of `Restarts::server`. A server that ends answers for its calls, naming the reason; those that come while it is
//! away wait in the router.
//!
//! What the server offers is in its registry, which outlives this actor. Whoever changes it wakes the actor, which takes
//! the change over and tells the CLI: so the CLI is never told before its next call would see the change.
//!
//! - here: the actor, from its start to its end
//! - [`calls`]: calls and other requests, from their arrival to their answer
//! - [`index`]: calls by their JSON-RPC id
//! - [`peer`]: how the server and its handlers speak to the CLI

mod calls;
mod index;
mod peer;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::index::RpcIndex;
use self::peer::{CallPeer, LanePeer, Link, OwnLink};
use super::actor_message;
use super::lane::Lane;
use super::message::{Internal, SessionMessage};
use super::owed::Answer;
use super::reader::Place;
use super::restart::RestartWindow;
use super::router::millis;
use super::shared::Shared;
use super::work::{JobId, Task, Work};
use crate::report::{CallSnapshot, ServerSnapshot, ServerStatus};
use crate::tool::context::{Call, Named};
use crate::tool::def::AnyState;
use crate::tool::dispatch::{Run, Service, Step};
use crate::tool::instance::{BlockingLane, Instance};
use crate::tool::server::ServerSpec;
use crate::wire::head::Head;
use crate::wire::rpc::{CallParams, Rpc, RpcError};

/// What a tool server understands.
pub(crate) enum ServerMessage {
    /// Messages of the CLI, in order.
    Asked {
        batch: Batch,
        /// Given back when they are taken.
        place: Place,
    },
    /// The state was made.
    StateMade(Result<Vec<AnyState>, String>),
    /// Another CLI is ready.
    Opened(Lane),
    /// What the server offers has changed. At most one of these waits.
    Changed,
    /// A handler's task has ended as it should not.
    Finished(Finish),
    /// So many handlers have ended that it is time to sweep.
    Sweep,
    /// A limit may have passed.
    Tick,
    /// Call no more than what is asked, then end.
    Stop,
    Snapshot(oneshot::Sender<ServerSnapshot>),
    #[cfg(feature = "testkit")]
    Panic,
}

actor_message!(ServerMessage);

/// What the CLI asks of a tool server.
pub(crate) enum Incoming {
    /// Plainly a call of a tool, with its arguments. Its head says the rest.
    Call(Option<Box<RawValue>>),
    /// Any message.
    Rpc(Rpc),
}

impl Incoming {
    /// The message, for a server that has to see it whole.
    fn into_rpc(self, head: &Head) -> Rpc {
        let arguments = match self {
            Incoming::Rpc(rpc) => return rpc,
            Incoming::Call(arguments) => arguments,
        };
        let raw = |text: Option<&str>| text.and_then(|text| serde_json::from_str::<Value>(text).ok());
        let mut meta = Map::new();
        meta.extend(head.tool_use_id().map(|id| ("claudecode/toolUseId".to_owned(), json!(id))));
        meta.extend(raw(head.progress_token()).map(|token| ("progressToken".to_owned(), token)));
        let params = json!({ "name": head.tool(), "arguments": arguments, "_meta": meta });
        Rpc::Request {
            id: head.raw_rpc_id().unwrap_or(RawValue::NULL).to_owned(),
            method: "tools/call".to_owned(),
            params: to_raw_value(&params).ok(),
        }
    }
}

/// Some messages of the CLI, in order: most often one.
pub(crate) enum Batch {
    One(Answer, Incoming),
    Many(Vec<(Answer, Incoming)>),
}

impl Batch {
    /// One more, of so many in all.
    pub(crate) fn push(self, answer: Answer, incoming: Incoming, of: usize) -> Self {
        match self {
            Batch::One(first, asked) => {
                let mut batch = Vec::with_capacity(of);
                batch.extend([(first, asked), (answer, incoming)]);
                Batch::Many(batch)
            }
            Batch::Many(mut batch) => {
                batch.push((answer, incoming));
                Batch::Many(batch)
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Batch::One(..) => 1,
            Batch::Many(batch) => batch.len(),
        }
    }
}

impl IntoIterator for Batch {
    type Item = (Answer, Incoming);
    type IntoIter =
        std::iter::Chain<std::option::IntoIter<(Answer, Incoming)>, std::vec::IntoIter<(Answer, Incoming)>>;

    fn into_iter(self) -> Self::IntoIter {
        let (one, many) = match self {
            Batch::One(answer, incoming) => (Some((answer, incoming)), Vec::new()),
            Batch::Many(batch) => (None, batch),
        };
        one.into_iter().chain(many)
    }
}

/// How a handler's task ended, for the books.
#[derive(Debug)]
pub(crate) enum Finish {
    Panicked(JobId, String),
    Aborted(JobId),
}

pub(crate) struct McpServer;

pub(crate) struct ServerArguments {
    pub(crate) shared: Arc<Shared>,
    pub(crate) spec: Arc<ServerSpec>,
    pub(crate) blocking: Arc<BlockingLane>,
    /// The CLI of the moment, if it is ready.
    pub(crate) lane: Option<Lane>,
    pub(crate) session: ActorRef<SessionMessage>,
    pub(crate) generation: u32,
}

pub(crate) struct ServerState {
    shared: Arc<Shared>,
    myself: ActorRef<ServerMessage>,
    supervisor: ActorRef<SessionMessage>,
    spec: Arc<ServerSpec>,
    blocking: Arc<BlockingLane>,
    generation: u32,
    link: OwnLink,
    lane: Option<Lane>,
    session: Box<dyn Service>,
    by_rpc_id: RpcIndex,
    serving: Serving,
    work: Work<CallJob>,
    panics: RestartWindow,
}

/// What needs a handler.
enum Asked {
    /// A tool; what is not in the head of the request, if it is not there, and the arguments.
    Call(Option<Named>, Option<Box<RawValue>>),
    Run(Run),
}

/// What there is to know of a handler while it works.
struct CallJob {
    call: Arc<Call<CallPeer>>,
    /// Whether it is a tool, whose failures are results.
    is_tool: bool,
    /// Whether it blocks a thread, which nobody can take away.
    blocks: bool,
    /// For people, where it is not what the call is about.
    label: Option<String>,
}

impl CallJob {
    fn label(&self) -> &str {
        self.label.as_deref().unwrap_or_else(|| self.call.subject())
    }
}

enum Serving {
    /// The task that makes the state, and the calls that wait for it.
    Making {
        _task: Task,
        waiting: VecDeque<(Answer, Asked)>,
    },
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
        let ServerArguments { shared, spec, blocking, lane, session: supervisor, generation } = arguments;
        let waker = myself.clone();
        spec.registry.wake_with(move || {
            // One that has ended is followed by one that looks for itself.
            waker.cast(ServerMessage::Changed).ok();
        });
        let limit = shared.options().timeouts.server_restart;
        let task = Task::spawn(make_state(spec.clone(), myself.clone(), limit));
        let ending = format!("MCP server '{}' has ended", spec.name);
        let link = Arc::new(Link { shared: shared.clone(), spec: spec.clone(), generation });
        let mut state = ServerState {
            work: Work::new(shared.options().timeouts.cancel_grace, ending),
            panics: RestartWindow::new(shared.options().restarts.panics.clone(), SmallRng::seed_from_u64(0)),
            session: spec.service(&shared.options().limits),
            link: OwnLink(link),
            lane: None,
            shared,
            myself,
            supervisor,
            spec,
            blocking,
            generation,
            by_rpc_id: RpcIndex::default(),
            serving: Serving::Making { _task: task, waiting: VecDeque::new() },
        };
        if let Some(lane) = lane {
            state.opened(lane);
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
            ServerMessage::Asked { batch, place } => {
                drop(place);
                for (answer, incoming) in batch {
                    state.asked(answer, incoming);
                }
                state.sweep();
                state.arm();
            }
            ServerMessage::Opened(lane) => state.opened(lane),
            ServerMessage::Changed => state.changed(),
            ServerMessage::Finished(ending) => return state.finished(ending),
            ServerMessage::Sweep => state.sweep(),
            ServerMessage::StateMade(made) => return state.state_made(made),
            ServerMessage::Tick => state.tick(),
            ServerMessage::Stop => {
                Box::pin(state.stop()).await;
                myself.stop(None);
            }
            ServerMessage::Snapshot(reply) => {
                // Whoever asked may have stopped waiting.
                reply.send(state.snapshot()).ok();
            }
            #[cfg(feature = "testkit")]
            ServerMessage::Panic => panic!("a fault was injected into MCP server '{}'", state.spec.name),
        }
        Ok(())
    }
}

async fn make_state(spec: Arc<ServerSpec>, myself: ActorRef<ServerMessage>, limit: Duration) {
    let made = tokio::time::timeout(limit, spec.make_states())
        .await
        .unwrap_or_else(|_| Err(format!("its state was not made within {limit:?}")));
    // A server that has ended wants no state.
    myself.cast(ServerMessage::StateMade(made)).ok();
}

impl ServerState {
    fn asked(&mut self, answer: Answer, incoming: Incoming) {
        match incoming {
            Incoming::Call(arguments) if !self.spec.is_mounted() => {
                self.call_when_ready(answer, None, arguments)
            }
            incoming => {
                let rpc = incoming.into_rpc(answer.owed().head());
                self.rpc(answer, rpc);
            }
        }
    }

    fn call_when_ready(&mut self, answer: Answer, named: Option<Named>, arguments: Option<Box<RawValue>>) {
        match &self.serving {
            Serving::Ready(_) => self.call(answer, named, arguments),
            _ => self.not_ready(answer, Asked::Call(named, arguments)),
        }
    }

    fn rpc(&mut self, answer: Answer, rpc: Rpc) {
        let sessions = self.session.sessions();
        let step = self.session.step(rpc);
        if self.session.sessions() != sessions {
            // Calls of the session before go on; their ids mean nothing in this one.
            self.by_rpc_id.begin(self.work.next_id());
        }
        match step {
            Step::Reply { outcome: Ok(result), .. } => answer.owed().mcp_value(result),
            Step::Reply { outcome: Err(error), .. } => self.refuse(&answer, &error),
            Step::Ack => answer.owed().mcp_ack(),
            Step::Cancelled(params) => {
                self.cancelled(params.request_id.get(), params.reason);
                answer.owed().mcp_ack();
            }
            Step::Call { params: CallParams { name, arguments, meta }, .. } => {
                let named = Named::new(name, meta.unwrap_or_default());
                self.call_when_ready(answer, Some(named), arguments);
            }
            Step::Run { run, .. } => match &self.serving {
                Serving::Ready(_) => self.run(answer, run),
                _ => self.not_ready(answer, Asked::Run(run)),
            },
            Step::Answered { id, outcome } => {
                if !self.shared.outgoing.answered(&self.spec.name, &id, outcome) {
                    self.shared.counting.unmatched_responses.one();
                }
                answer.owed().mcp_ack();
            }
        }
    }

    fn not_ready(&mut self, answer: Answer, asked: Asked) {
        // In a server that has ended the answer is given by its drop.
        if let Serving::Making { waiting, .. } = &mut self.serving {
            waiting.push_back((answer, asked));
        }
    }

    /// Another CLI is ready. It knows what it was told in the manifest.
    fn opened(&mut self, lane: Lane) {
        let peer = LanePeer { lane: lane.clone(), link: Arc::downgrade(&self.link.0) };
        self.spec.registry.meet(Arc::new(peer));
        self.lane = Some(lane);
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
        let Some(lane) = &self.lane else { return };
        for method in news {
            match peer::notification(&self.spec.name, method, None) {
                // An incarnation that has ended wants no notifications.
                Ok(json) => drop(lane.send(json)),
                Err(error) => tracing::debug!(%error, "a notification does not serialise"),
            }
        }
    }

    fn refuse(&self, answer: &Answer, error: &RpcError) {
        if error.code == crate::wire::rpc::METHOD_NOT_FOUND {
            self.shared.counting.not_found.one();
        }
        answer.owed().refuse(error);
    }

    /// Ends the handlers, and then the state, whose drop is code of the application.
    async fn stop(&mut self) {
        self.link.end();
        self.work.set_ending(format!("MCP server '{}' was stopped", self.spec.name));
        self.work.stop(self.shared.options().timeouts.child_stop / 2).await;
        if let Serving::Ready(instance) = std::mem::replace(&mut self.serving, Serving::Ended) {
            instance.end().await;
        }
    }

    fn arm(&mut self) {
        let myself = self.myself.clone();
        self.work.arm(move || {
            myself.cast(ServerMessage::Tick).ok();
        });
    }

    fn state_made(&mut self, made: Result<Vec<AnyState>, String>) -> Result<(), ActorProcessingErr> {
        let states = match made {
            Ok(states) => states,
            Err(cause) => return Err(self.end(cause)),
        };
        let serves = Internal::ServerServes(self.spec.name.clone());
        // A supervisor that has ended takes the server with it.
        self.supervisor.cast(SessionMessage::Internal(serves)).ok();
        let instance = Instance::new(self.session.lists(), states, self.blocking.clone());
        if let Serving::Making { waiting, .. } =
            std::mem::replace(&mut self.serving, Serving::Ready(instance))
        {
            for (answer, asked) in waiting {
                match asked {
                    Asked::Call(named, arguments) => self.call(answer, named, arguments),
                    Asked::Run(run) => self.run(answer, run),
                }
            }
            self.arm();
        }
        Ok(())
    }

    /// Answers for everything in flight and gives the reason why the actor ends.
    fn end(&mut self, cause: String) -> ActorProcessingErr {
        let said = format!("MCP server '{}' was restarted: {cause}", self.spec.name);
        if let Serving::Making { waiting, .. } = &mut self.serving {
            for (answer, _) in waiting.drain(..) {
                answer.owed().refuse(&RpcError::internal(format!(
                    "MCP server '{}' did not start: {cause}",
                    self.spec.name
                )));
            }
        }
        self.link.end();
        self.work.set_ending(said);
        self.work.settle_all();
        cause.into()
    }

    fn snapshot(&self) -> ServerSnapshot {
        let now = Instant::now();
        let mut calls: Vec<CallSnapshot> = self
            .work
            .jobs()
            .map(|job| CallSnapshot {
                request_id: job.owed.request_id().to_owned(),
                tool: job.label.label().to_owned(),
                tool_use_id: job.label.call.tool_use_id().filter(|_| job.label.is_tool).map(str::to_owned),
                age_ms: millis(now.duration_since(job.owed.received)),
                cancelled: job.owed.cancel.is_cancelled(),
            })
            .collect();
        calls.sort_by_key(|call| std::cmp::Reverse(call.age_ms));
        ServerSnapshot {
            name: self.spec.name.clone(),
            status: ServerStatus::Up,
            generation: self.generation,
            calls,
            blocking: self.blocking.running(),
            abandoned: self.blocking.abandoned(),
            requests: self.shared.outgoing.of(&self.spec.name),
            mcp_sessions: self.session.sessions(),
        }
    }
}
