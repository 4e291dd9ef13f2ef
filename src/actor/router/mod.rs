//! The control router: keeps the [ledger](super::request::ledger) of open requests, publishes the [routes] to the tool
//! servers, and sends requests without a route to the actors that serve them. It runs no user code and waits for
//! nothing.
//!
//! The reader enters requests in the ledger, and sends messages to running tool servers itself: so a tool call has one
//! hop fewer. All other requests come through here. Messages to a tool server that is restarting are *parked* until the
//! server is back, up to `Timeouts::server_restart`.
//!
//! - [`client`]: how the session asks the CLI
//! - [`outbound_requests`]: the requests to the CLI that wait for an answer
//! - [`settings`]: the run-time settings that are sent again to the next CLI
//!
//! Restart policy: permanent. When a router ends, its open requests are answered with an error, its requests to the CLI
//! fail, and the next router starts with an empty ledger.

pub(crate) mod client;
pub(crate) mod outbound_requests;
pub(crate) mod routes;
pub(crate) mod settings;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef, MessagingErr};
use tokio::sync::watch;
use tokio::time::Instant;

pub(crate) use self::client::ask;
use self::outbound_requests::OutboundRequests;
use self::routes::{Known, Routes};
use super::base::deadlines::{Deadlines, after, millis};
use super::base::reply::{respond, telling};
use super::context::Shared;
use super::messages::callbacks::CallbacksMessage;
use super::messages::inbound::{InboundBody, McpBatch, McpMessage};
use super::messages::mcp_server::ServerMessage;
use super::messages::permits::MailboxPermit;
use super::request::answer::{Answer, drop_settled};
use super::request::ledger::Ledger;
use super::request::pending::PendingRequest;
use crate::actor::messages::router::RouterMessage;
use crate::plain::short;
use crate::report::{RequestSnapshot, RouterSnapshot};
use crate::wire::brief::Short;
use crate::wire::envelope::{ControlReply, UnservedRequest};
use crate::wire::outgoing::PUSH_PREFIX;
use crate::wire::rpc::RpcError;

pub(crate) struct ControlRouter;

pub(crate) struct RouterArguments {
    pub(crate) shared: Arc<Shared>,
    pub(crate) servers: HashMap<String, Known>,
    pub(crate) callbacks: ActorRef<CallbacksMessage>,
    /// The newest incarnation that has ended.
    pub(crate) ended_epoch: u64,
    /// Empty, and of no other router.
    pub(crate) ledger: Arc<Ledger>,
    /// Publishes the routes.
    pub(crate) routes: watch::Sender<Arc<Routes>>,
}

pub(crate) struct RouterState {
    shared: Arc<Shared>,
    myself: ActorRef<RouterMessage>,
    ledger: Arc<Ledger>,
    outbound_requests: OutboundRequests,
    servers: HashMap<String, Known>,
    routes: watch::Sender<Arc<Routes>>,
    parked: HashMap<String, VecDeque<Parked>>,
    callbacks: ActorRef<CallbacksMessage>,
    /// Deadlines of parked requests and of requests to the CLI, by request id.
    deadlines: Deadlines<String>,
}

/// A message to a tool server that is restarting.
struct Parked {
    answer: Answer,
    message: McpMessage,
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
        let RouterArguments { shared, servers, callbacks, ended_epoch, ledger, routes } = arguments;
        ledger.start(ended_epoch, telling(&myself, || RouterMessage::Sweep));
        let state = RouterState {
            outbound_requests: OutboundRequests::new(shared.clone()),
            shared,
            myself,
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
            // Both guards are dropped once the request was passed on or parked.
            RouterMessage::Request { answer, body, permit: _permit, routed: _routed } => {
                state.request(answer, body);
            }
            RouterMessage::Sweep => state.ledger.sweep(state.shared.options().limits.calls_in_flight),
            RouterMessage::Reply(reply, _permit) => state.reply(reply),
            RouterMessage::Send(request) => {
                let outbound = state.shared.cli.outbound();
                state.outbound_requests.send(request, outbound.as_ref(), &mut state.deadlines);
                state.arm();
            }
            RouterMessage::Withdraw { request_id } => {
                state.outbound_requests.withdraw_dropped(&request_id, &mut state.deadlines);
            }
            RouterMessage::Tick => state.tick(Instant::now()),
            RouterMessage::Ended { epoch } => state.ended(epoch),
            RouterMessage::Server(server, known) => state.server(&server, known),
            RouterMessage::CallbacksUp(actor) => state.callbacks = actor,
            RouterMessage::CancelAll => {
                for pending in state.ledger.open() {
                    pending.cancel();
                }
            }
            RouterMessage::Snapshot(reply) => respond(reply, state.snapshot()),
            #[cfg(feature = "testing")]
            RouterMessage::Panic => panic!("a fault was injected into the control router"),
        }
        Ok(())
    }
}

impl Drop for RouterState {
    fn drop(&mut self) {
        self.ledger.close();
    }
}

impl RouterState {
    fn request(&mut self, answer: Answer, body: InboundBody) {
        if !answer.pending().is_open() {
            // The incarnation has ended, or the CLI withdrew the request.
            return;
        }
        match body {
            InboundBody::Mcp { server, message } => self.mcp(&server, answer, message),
            InboundBody::Callback(body) => {
                // Callbacks that have just ended drop the answer, which answers with an error.
                self.callbacks.cast(CallbacksMessage::Request { answer, body }).ok();
            }
            InboundBody::Unserved(UnservedRequest::Silent { subtype }) => {
                self.shared.counting.silent_requests.one();
                tracing::debug!(subtype, "a request that is meant for another machine");
                answer.without_answer();
            }
            InboundBody::Unserved(UnservedRequest::Unknown { subtype }) => {
                self.shared.counting.unknown_requests.one();
                let text = format!("Unsupported control request subtype: {}", Short(&subtype));
                answer.pending().refuse_unsupported(&text);
            }
            InboundBody::Unserved(UnservedRequest::Incomplete { subtype, missing }) => {
                let text = format!("a {subtype} request without `{missing}`");
                answer.pending().refuse(&RpcError::internal(text));
            }
        }
    }

    fn mcp(&mut self, server: &str, answer: Answer, message: McpMessage) {
        match self.servers.get(server) {
            Some(Known::Up(route)) => {
                let batch = McpBatch::One(answer, message);
                // No permit: the sender is bounded elsewhere.
                let asked = ServerMessage::Asked { batch, permit: MailboxPermit::default() };
                if let Err(MessagingErr::SendErr(ServerMessage::Asked { batch, .. })) =
                    route.actor.cast(asked)
                {
                    // The server has just ended, and the supervisor will say what comes next.
                    for (answer, message) in batch {
                        self.park(server.to_owned(), answer, message);
                    }
                }
            }
            Some(Known::Down) => self.park(server.to_owned(), answer, message),
            Some(Known::Failed(cause)) => {
                let text = format!("MCP server '{server}' has failed: {cause}");
                answer.pending().refuse(&RpcError::internal(text));
            }
            None => {
                self.shared.counting.not_found.one();
                answer.pending().refuse(&RpcError::unknown_server(server));
            }
        }
    }

    /// Tells the reader which servers it can reach.
    fn publish(&self) {
        let up = |server: &Known| match server {
            Known::Up(route) => Some((route.server.clone(), route.clone())),
            Known::Down | Known::Failed(_) => None,
        };
        self.routes.send_replace(Arc::new(self.servers.values().filter_map(up).collect()));
    }

    fn park(&mut self, server: String, answer: Answer, message: McpMessage) {
        let until = after(Instant::now(), self.shared.options().timeouts.server_restart);
        self.deadlines.insert(until, answer.pending().request_id().to_owned());
        let parked = self.parked.entry(server).or_default();
        drop_settled(parked, |parked| parked.answer.pending().is_open());
        parked.push_back(Parked { answer, message, until });
        self.arm();
    }

    fn server(&mut self, server: &str, known: Option<Known>) {
        let waits = matches!(known, Some(Known::Down));
        match known {
            Some(known) => drop(self.servers.insert(server.to_owned(), known)),
            None => drop(self.servers.remove(server)),
        }
        if !waits {
            self.unpark(server);
        }
        // Published last, so that no message of the reader overtakes a parked one.
        self.publish();
    }

    /// Passes on the parked messages of a server, or refuses them if the server does not come back.
    fn unpark(&mut self, server: &str) {
        for Parked { answer, message, until } in self.parked.remove(server).unwrap_or_default() {
            self.deadlines.remove(until, answer.pending().request_id().to_owned());
            if answer.pending().is_open() {
                self.mcp(server, answer, message);
            }
        }
    }

    fn ended(&mut self, epoch: u64) {
        self.ledger.end_epoch(epoch);
        self.parked.clear();
        self.deadlines.clear();
        // The next incarnation starts after this message was sent: no request in the table is for it.
        self.outbound_requests.ended();
    }

    fn reply(&mut self, reply: ControlReply) {
        let pushed = reply.request_id.starts_with(PUSH_PREFIX);
        if pushed && let Err(error) = &reply.outcome {
            tracing::debug!(message = error.message, "the CLI refused a notification of a tool server");
        }
        if !self.outbound_requests.reply(reply, &mut self.deadlines) && !pushed {
            self.shared.counting.unmatched_responses.one();
        }
    }

    fn tick(&mut self, now: Instant) {
        for request_id in self.deadlines.expired(now) {
            self.outbound_requests.expired(&request_id);
        }
        let limit = self.shared.options().timeouts.server_restart;
        for (server, parked) in &mut self.parked {
            parked.retain(|parked| {
                let late = parked.until <= now;
                if late {
                    let text = format!(
                        "MCP server '{server}' was restarting and did not come back within {limit:?}"
                    );
                    parked.answer.pending().refuse(&RpcError::internal(text));
                }
                !late
            });
        }
        self.arm();
    }

    fn arm(&mut self) {
        self.deadlines.arm(telling(&self.myself, || RouterMessage::Tick));
    }

    fn snapshot(&self) -> RouterSnapshot {
        let now = Instant::now();
        let open = self.ledger.open();
        let request = |pending: &Arc<PendingRequest>| RequestSnapshot {
            request_id: short(pending.request_id()),
            kind: pending.kind.as_str(),
            epoch: pending.epoch(),
            dispatched: pending.is_dispatched(),
            age_ms: millis(now.duration_since(pending.received)),
        };
        RouterSnapshot {
            owed: open.iter().map(request).collect(),
            awaited: self.outbound_requests.len(),
            parked: self.parked.values().map(VecDeque::len).sum(),
        }
    }
}
