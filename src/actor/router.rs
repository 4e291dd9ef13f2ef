//! The control router: takes every control frame, knows who owes whom an answer, and sends each request to the
//! actor that serves it. It runs no user code and waits for nothing.
//!
//! A tool server that is restarting has its calls *parked* until it is back, up to `Timeouts::server_restart`.
//!
//! Restart policy: permanent. A router that ends leaves nothing open: what it owed is answered with an error, what
//! it awaited fails, and the next one starts with an empty ledger.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, MessagingErr};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::actor_message;
use super::admission::Gate;
pub(crate) use super::asking::ask;
use super::asking::{Ask, Asking};
use super::callbacks::CallbacksMessage;
use super::deadlines::Deadlines;
use super::lane::Lane;
use super::ledger::{Answer, Closed, Ledger};
use super::mcp_server::ServerMessage;
use super::reader::Place;
use super::shared::Shared;
use super::work::after;
use crate::report::{Event, RequestSnapshot, RouterSnapshot};
use crate::wire::envelope::{Reply, Request};
use crate::wire::rpc::{Rpc, RpcError};

/// What the id of a pushed notification starts with: the CLI's acknowledgement of it means nothing.
pub(crate) const PUSH_PREFIX: &str = "push_";

/// What the router understands.
pub(crate) enum RouterMessage {
    /// An incarnation can be written to.
    Opened(Lane),
    /// An incarnation has ended; nothing of it or before it can be answered any more.
    Ended {
        epoch: u64,
    },
    /// The CLI asks.
    Request {
        answer: Answer,
        body: Request,
        /// What had as many in flight before it as there may be.
        full: Option<Arc<Gate>>,
        /// Whether it is one that the CLI lists as pending, and may be known.
        replayed: bool,
        place: Place,
    },
    /// The CLI answers.
    Reply(Reply, Place),
    /// The CLI withdraws what it asked.
    Withdrawn {
        request_id: String,
        place: Place,
    },
    /// A request was settled.
    Settled(Closed),
    /// The application asks.
    Ask(Ask),
    /// The application does not wait for the answer any more.
    Unwanted {
        request_id: String,
    },
    /// A deadline may have passed.
    Tick,
    /// A tool server can be reached.
    ServerUp {
        server: String,
        actor: ActorRef<ServerMessage>,
    },
    /// A tool server has ended and will be back.
    ServerDown {
        server: String,
    },
    /// A tool server has ended for good.
    ServerFailed {
        server: String,
        cause: String,
    },
    /// A tool server is none of the session's any more.
    ServerRemoved {
        server: String,
    },
    /// The callbacks can be reached.
    CallbacksUp(ActorRef<CallbacksMessage>),
    /// Every handler is to come to an end.
    CancelAll,
    Snapshot(oneshot::Sender<RouterSnapshot>),
    #[cfg(feature = "testkit")]
    Panic,
}

actor_message!(RouterMessage);

pub(crate) struct ControlRouter;

pub(crate) struct RouterArguments {
    pub(crate) shared: Arc<Shared>,
    pub(crate) lane: Option<Lane>,
    pub(crate) servers: HashMap<String, Route>,
    pub(crate) callbacks: ActorRef<CallbacksMessage>,
    /// The newest incarnation that has ended.
    pub(crate) ended_epoch: u64,
}

/// The way to a tool server.
#[derive(Clone)]
pub(crate) enum Route {
    Up(ActorRef<ServerMessage>),
    Down,
    Failed(String),
}

pub(crate) struct RouterState {
    shared: Arc<Shared>,
    myself: ActorRef<RouterMessage>,
    lane: Option<Lane>,
    ended_epoch: u64,
    ledger: Ledger,
    asking: Asking,
    servers: HashMap<String, Route>,
    parked: HashMap<String, VecDeque<Parked>>,
    callbacks: ActorRef<CallbacksMessage>,
    deadlines: Deadlines<String>,
}

struct Parked {
    answer: Answer,
    rpc: Rpc,
    until: Instant,
}

#[cfg_attr(feature = "async-trait", ractor::async_trait)]
impl Actor for ControlRouter {
    type Msg = RouterMessage;
    type State = RouterState;
    type Arguments = RouterArguments;

    async fn pre_start(
        &self,
        myself: ActorRef<RouterMessage>,
        arguments: RouterArguments,
    ) -> Result<RouterState, ActorProcessingErr> {
        let RouterArguments { shared, lane, servers, callbacks, ended_epoch } = arguments;
        Ok(RouterState {
            asking: Asking::new(shared.clone()),
            shared,
            myself,
            lane,
            ended_epoch,
            ledger: Ledger::default(),
            servers,
            parked: HashMap::new(),
            callbacks,
            deadlines: Deadlines::new(),
        })
    }

    async fn handle(
        &self,
        _: ActorRef<RouterMessage>,
        message: RouterMessage,
        state: &mut RouterState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            RouterMessage::Request { answer, body, full, replayed, place: _place } => {
                state.request(answer, body, full, replayed);
            }
            RouterMessage::Settled(closed) => {
                state.ledger.close(&closed, state.shared.options().limits.calls_in_flight);
            }
            RouterMessage::Reply(reply, _place) => state.reply(reply),
            RouterMessage::Withdrawn { request_id, place: _place } => state.withdrawn(&request_id),
            RouterMessage::Ask(ask) => {
                state.asking.ask(ask, state.lane.as_ref(), &mut state.deadlines);
                state.arm();
            }
            RouterMessage::Unwanted { request_id } => {
                state.asking.unwanted(&request_id, &mut state.deadlines);
            }
            RouterMessage::Tick => state.tick(Instant::now()),
            RouterMessage::Opened(lane) => state.lane = Some(lane),
            RouterMessage::Ended { epoch } => state.ended(epoch),
            RouterMessage::ServerUp { server, actor } => state.server_up(server, actor),
            RouterMessage::ServerDown { server } => {
                state.servers.insert(server, Route::Down);
            }
            RouterMessage::ServerFailed { server, cause } => state.server_failed(server, cause),
            RouterMessage::ServerRemoved { server } => state.server_removed(server),
            RouterMessage::CallbacksUp(actor) => state.callbacks = actor,
            RouterMessage::CancelAll => {
                for owed in state.ledger.open() {
                    owed.cancel();
                }
            }
            RouterMessage::Snapshot(reply) => {
                // Whoever asked may have stopped waiting.
                reply.send(state.snapshot()).ok();
            }
            #[cfg(feature = "testkit")]
            RouterMessage::Panic => panic!("a fault was injected into the control router"),
        }
        Ok(())
    }
}

impl RouterState {
    fn request(&mut self, answer: Answer, body: Request, full: Option<Arc<Gate>>, replayed: bool) {
        if answer.owed().epoch() <= self.ended_epoch {
            return answer.without_answer();
        }
        let counting = &self.shared.counting;
        if replayed && self.ledger.knows(&answer.owed().request_id) {
            tracing::debug!(
                request_id = answer.owed().request_id,
                "pending by the CLI's list, and known here"
            );
            return answer.without_answer();
        }
        if self.ledger.register(answer.owed()).is_err() {
            counting.duplicate_requests.one();
            tracing::warn!(
                request_id = answer.owed().request_id,
                "the CLI used a request id again while it was in flight"
            );
            return answer.without_answer();
        }
        let passes = match &body {
            // What ends a call must come through when there are too many, and so must what a call waits for. Neither
            // holds a place for long.
            Request::Mcp { rpc: Rpc::Notification { .. } | Rpc::Response { .. }, .. } => true,
            // What is left without an answer holds none at all.
            Request::Silent { .. } => true,
            Request::Dialog { kind, .. } => !self.shared.spec.handlers.declare(kind.as_deref()),
            _ => false,
        };
        if let Some(gate) = full.filter(|_| !passes) {
            counting.at_capacity.one();
            if gate.is_news() {
                self.shared.emit(Event::AtCapacity { server: gate.server.clone(), limit: gate.limit });
            }
            return answer.owed().refuse(&RpcError::internal(gate.refusal()));
        }
        match body {
            Request::Mcp { server, rpc } => self.mcp(server, answer, rpc),
            Request::CanUseTool(_)
            | Request::Hook { .. }
            | Request::Elicitation(_)
            | Request::Dialog { .. } => {
                // Callbacks that have just ended leave the request to be answered by its drop.
                self.callbacks.cast(CallbacksMessage::Request { answer, body }).ok();
            }
            Request::Silent { subtype } => {
                counting.silent_requests.one();
                tracing::debug!(subtype, "a request that is meant for another machine");
                answer.without_answer();
            }
            Request::Unknown { subtype } => {
                counting.unknown_requests.one();
                answer.owed().refuse_unsupported(&format!("Unsupported control request subtype: {subtype}"));
            }
            Request::Incomplete { subtype, missing } => {
                answer.owed().refuse(&RpcError::internal(format!("a {subtype} request without `{missing}`")));
            }
        }
    }

    fn mcp(&mut self, server: String, answer: Answer, rpc: Rpc) {
        match self.servers.get(&server) {
            Some(Route::Up(actor)) => {
                if let Err(MessagingErr::SendErr(ServerMessage::Rpc { answer, rpc })) =
                    actor.cast(ServerMessage::Rpc { answer, rpc })
                {
                    // It has ended, and the supervisor will soon say what comes next.
                    self.park(server, answer, rpc);
                }
            }
            Some(Route::Down) => self.park(server, answer, rpc),
            Some(Route::Failed(cause)) => {
                answer
                    .owed()
                    .refuse(&RpcError::internal(format!("MCP server '{server}' has failed: {cause}")));
            }
            None => {
                self.shared.counting.not_found.one();
                answer.owed().refuse(&RpcError::unknown_server(&server));
            }
        }
    }

    fn park(&mut self, server: String, answer: Answer, rpc: Rpc) {
        let until = after(Instant::now(), self.shared.options().timeouts.server_restart);
        self.deadlines.insert(until, answer.owed().request_id.clone());
        self.parked.entry(server).or_default().push_back(Parked { answer, rpc, until });
        self.arm();
    }

    fn server_up(&mut self, server: String, actor: ActorRef<ServerMessage>) {
        self.servers.insert(server.clone(), Route::Up(actor));
        for Parked { answer, rpc, until } in self.parked.remove(&server).unwrap_or_default() {
            self.deadlines.remove(until, answer.owed().request_id.clone());
            if answer.owed().is_open() {
                self.mcp(server.clone(), answer, rpc);
            }
        }
    }

    fn server_failed(&mut self, server: String, cause: String) {
        self.servers.insert(server.clone(), Route::Failed(cause));
        self.unpark(server);
    }

    fn server_removed(&mut self, server: String) {
        self.servers.remove(&server);
        self.unpark(server);
    }

    /// Answers what waits for a server that does not come back.
    fn unpark(&mut self, server: String) {
        for Parked { answer, rpc, until } in self.parked.remove(&server).unwrap_or_default() {
            self.deadlines.remove(until, answer.owed().request_id.clone());
            self.mcp(server.clone(), answer, rpc);
        }
    }

    fn withdrawn(&mut self, request_id: &str) {
        match self.ledger.get(request_id) {
            Some(owed) => {
                tracing::debug!(parent: &owed.span, "withdrawn by the CLI");
                owed.orphan();
            }
            None => self.shared.counting.unmatched_cancels.one(),
        }
    }

    fn ended(&mut self, epoch: u64) {
        self.ended_epoch = self.ended_epoch.max(epoch);
        self.ledger.end_epoch(epoch);
        self.parked.clear();
        if self.lane.as_ref().is_some_and(|lane| lane.epoch() <= epoch) {
            self.lane = None;
            self.deadlines.clear();
            self.asking.ended();
        }
    }

    fn reply(&mut self, reply: Reply) {
        let pushed = reply.request_id.starts_with(PUSH_PREFIX);
        if pushed
            && let Err(error) = &reply.outcome
            && !self.shared.outgoing.not_taken(&reply.request_id, &error.message)
        {
            tracing::debug!(message = error.message, "the CLI refused a notification of a tool server");
        }
        if !self.asking.reply(reply, &mut self.deadlines) && !pushed {
            self.shared.counting.unmatched_responses.one();
        }
    }

    fn tick(&mut self, now: Instant) {
        for request_id in self.deadlines.expired(now) {
            self.expired(&request_id, now);
        }
        self.arm();
    }

    fn expired(&mut self, request_id: &str, now: Instant) {
        self.asking.expired(request_id);
        let limit = self.shared.options().timeouts.server_restart;
        for (server, parked) in &mut self.parked {
            parked.retain(|parked| {
                let late = parked.until <= now;
                if late {
                    let message = format!(
                        "MCP server '{server}' was restarting and did not come back within {limit:?}"
                    );
                    parked.answer.owed().refuse(&RpcError::internal(message));
                }
                !late
            });
        }
    }

    fn arm(&mut self) {
        let myself = self.myself.clone();
        self.deadlines.arm(move || {
            // A router that has ended has no deadlines.
            myself.cast(RouterMessage::Tick).ok();
        });
    }

    fn snapshot(&self) -> RouterSnapshot {
        let now = Instant::now();
        RouterSnapshot {
            owed: self
                .ledger
                .open()
                .map(|owed| RequestSnapshot {
                    request_id: owed.request_id.clone(),
                    kind: owed.kind,
                    epoch: owed.epoch(),
                    dispatched: owed.is_dispatched(),
                    age_ms: millis(now.duration_since(owed.received)),
                })
                .collect(),
            awaited: self.asking.len(),
            parked: self.parked.values().map(VecDeque::len).sum(),
        }
    }
}

/// A duration in whole milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
