//! The control router: it keeps the [ledger](super::ledger) of who owes whom an answer, publishes the
//! [routes](super::routes) to the tool servers, and sends each request for which there is no route to the actor that serves
//! it. It runs no user code and waits for nothing.
//!
//! The reader enters requests in the ledger and hands a message to a tool server that is up over itself: the most frequent
//! thing has one hop fewer. Everything else comes through here. A tool server that is restarting has its calls *parked* until it is back, up to `Timeouts::server_restart`.
//!
//! Restart policy: permanent. A router that ends leaves nothing open: what it owed is answered with an error, what
//! it awaited fails, and the next one starts with an empty ledger.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, MessagingErr};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::actor_message;
pub(crate) use super::asking::ask;
use super::asking::{Ask, Asking};
use super::callbacks::CallbacksMessage;
use super::deadlines::Deadlines;
use super::lane::Lane;
use super::ledger::Ledger;
use super::mcp_server::{Batch, Incoming, ServerMessage};
use super::owed::Answer;
use super::reader::Place;
use super::routes::{Detour, Route, Routes};
use super::shared::Shared;
use super::work::after;
use crate::report::{RequestSnapshot, RouterSnapshot};
use crate::wire::envelope::{Reply, Request};
use crate::wire::rpc::RpcError;

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
    /// The CLI asks something that is entered in the ledger and has no route of its own.
    Request {
        answer: Answer,
        asked: Asked,
        place: Place,
    },
    /// The CLI answers.
    Reply(Reply, Place),
    /// So many requests were settled that it is time to sweep the ledger.
    Sweep,
    /// The application asks.
    Ask(Ask),
    /// The application does not wait for the answer any more.
    Unwanted {
        request_id: String,
    },
    /// A deadline may have passed.
    Tick,
    /// A tool server can be reached.
    ServerUp(Arc<Route>),
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
    pub(crate) servers: HashMap<String, Known>,
    pub(crate) callbacks: ActorRef<CallbacksMessage>,
    /// The newest incarnation that has ended.
    pub(crate) ended_epoch: u64,
    /// Empty and its own.
    pub(crate) ledger: Arc<Ledger>,
    /// Where it publishes the routes to the servers.
    pub(crate) routes: watch::Sender<Arc<Routes>>,
}

/// What a request that comes to the router asks for.
pub(crate) enum Asked {
    /// A tool server.
    Mcp { server: Arc<str>, incoming: Incoming, detour: Detour },
    /// Something else.
    Other(Request),
}

/// What is known of a tool server.
#[derive(Clone)]
pub(crate) enum Known {
    Up(Arc<Route>),
    Down,
    Failed(String),
}

pub(crate) struct RouterState {
    shared: Arc<Shared>,
    myself: ActorRef<RouterMessage>,
    lane: Option<Lane>,
    ledger: Arc<Ledger>,
    asking: Asking,
    servers: HashMap<String, Known>,
    routes: watch::Sender<Arc<Routes>>,
    parked: HashMap<String, VecDeque<Parked>>,
    callbacks: ActorRef<CallbacksMessage>,
    deadlines: Deadlines<String>,
}

struct Parked {
    answer: Answer,
    incoming: Incoming,
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
        let RouterArguments { shared, lane, servers, callbacks, ended_epoch, ledger, routes } = arguments;
        let waker = myself.clone();
        ledger.start(ended_epoch, move || {
            // A router that has ended has no ledger.
            waker.cast(RouterMessage::Sweep).ok();
        });
        let state = RouterState {
            asking: Asking::new(shared.clone()),
            shared,
            myself,
            lane,
            ledger,
            servers,
            routes,
            parked: HashMap::new(),
            callbacks,
            deadlines: Deadlines::new(),
        };
        state.publish();
        Ok(state)
    }

    async fn handle(
        &self,
        _: ActorRef<RouterMessage>,
        message: RouterMessage,
        state: &mut RouterState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            RouterMessage::Request { answer, asked, place: _place } => state.request(answer, asked),
            RouterMessage::Sweep => state.ledger.sweep(state.shared.options().limits.calls_in_flight),
            RouterMessage::Reply(reply, _place) => state.reply(reply),
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
            RouterMessage::ServerUp(route) => state.server_up(route),
            RouterMessage::ServerDown { server } => {
                state.servers.insert(server, Known::Down);
                state.publish();
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

impl Drop for RouterState {
    /// However it ends, it owes nothing afterwards.
    fn drop(&mut self) {
        self.ledger.close();
    }
}

impl RouterState {
    fn request(&mut self, answer: Answer, asked: Asked) {
        if !answer.owed().is_open() {
            // Its incarnation has ended, or it was withdrawn on its way.
            return;
        }
        match asked {
            // The detour is over when the message is passed on, or waits for its server.
            Asked::Mcp { server, incoming, detour: _detour } => self.mcp(&server, answer, incoming),
            Asked::Other(body) => self.other(answer, body),
        }
    }

    fn other(&mut self, answer: Answer, body: Request) {
        let counting = &self.shared.counting;
        match body {
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
            // The reader makes another thing of these.
            Request::Mcp { .. } => {}
        }
    }

    fn mcp(&mut self, server: &str, answer: Answer, incoming: Incoming) {
        match self.servers.get(server) {
            Some(Known::Up(route)) => {
                let asked =
                    ServerMessage::Asked { batch: Batch::One(answer, incoming), place: Place::none() };
                if let Err(MessagingErr::SendErr(ServerMessage::Asked { batch, .. })) =
                    route.actor.cast(asked)
                {
                    // It has ended, and the supervisor will soon say what comes next.
                    for (answer, incoming) in batch {
                        self.park(server.to_owned(), answer, incoming);
                    }
                }
            }
            Some(Known::Down) => self.park(server.to_owned(), answer, incoming),
            Some(Known::Failed(cause)) => {
                answer
                    .owed()
                    .refuse(&RpcError::internal(format!("MCP server '{server}' has failed: {cause}")));
            }
            None => {
                self.shared.counting.not_found.one();
                answer.owed().refuse(&RpcError::unknown_server(server));
            }
        }
    }

    /// Tells the reader which servers it can reach without the router.
    fn publish(&self) {
        let up = |route: &Known| match route {
            Known::Up(route) => Some((route.server.clone(), route.clone())),
            Known::Down | Known::Failed(_) => None,
        };
        self.routes.send_replace(Arc::new(self.servers.values().filter_map(up).collect()));
    }

    fn park(&mut self, server: String, answer: Answer, incoming: Incoming) {
        let until = after(Instant::now(), self.shared.options().timeouts.server_restart);
        self.deadlines.insert(until, answer.owed().request_id().to_owned());
        self.parked.entry(server).or_default().push_back(Parked { answer, incoming, until });
        self.arm();
    }

    fn server_up(&mut self, route: Arc<Route>) {
        let server = route.server.to_string();
        self.servers.insert(server.clone(), Known::Up(route));
        for Parked { answer, incoming, until } in self.parked.remove(&server).unwrap_or_default() {
            self.deadlines.remove(until, answer.owed().request_id().to_owned());
            if answer.owed().is_open() {
                self.mcp(&server, answer, incoming);
            }
        }
        // Now, so that nothing overtakes what has waited.
        self.publish();
    }

    fn server_failed(&mut self, server: String, cause: String) {
        self.servers.insert(server.clone(), Known::Failed(cause));
        self.publish();
        self.unpark(&server);
    }

    fn server_removed(&mut self, server: String) {
        self.servers.remove(&server);
        self.publish();
        self.unpark(&server);
    }

    /// Answers what waits for a server that does not come back.
    fn unpark(&mut self, server: &str) {
        for Parked { answer, incoming, until } in self.parked.remove(server).unwrap_or_default() {
            self.deadlines.remove(until, answer.owed().request_id().to_owned());
            self.mcp(server, answer, incoming);
        }
    }

    fn ended(&mut self, epoch: u64) {
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
                .iter()
                .map(|owed| RequestSnapshot {
                    request_id: owed.request_id().to_owned(),
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
