//! The control router: sends the session's requests to the CLI, and takes the answers. It runs no user code and waits for
//! nothing.
//!
//! - [`client`]: how the session asks the CLI
//! - [`outbound_requests`]: the requests to the CLI that wait for an answer
//! - [`settings`]: the run-time settings that are sent again to the next CLI
//!
//! Requests of the CLI do not pass through here: the reader passes them on, and the [ledger](super::request::ledger)
//! holds them until they are settled.
//!
//! Restart policy: permanent. When a router ends, its requests to the CLI fail, and the next router starts without any.

pub(crate) mod client;
pub(crate) mod outbound_requests;
pub(crate) mod settings;

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::time::Instant;

pub(crate) use self::client::ask;
use self::outbound_requests::OutboundRequests;
use super::base::deadlines::{Deadlines, millis};
use super::base::reply::{respond, telling};
use super::context::Shared;
use super::request::pending::PendingRequest;
use crate::actor::messages::router::RouterMessage;
use crate::plain::short;
use crate::report::{RequestSnapshot, RouterSnapshot};
use crate::wire::envelope::ControlReply;
use crate::wire::outgoing::PUSH_PREFIX;

pub(crate) struct ControlRouter;

pub(crate) struct RouterState {
    shared: Arc<Shared>,
    myself: ActorRef<RouterMessage>,
    outbound_requests: OutboundRequests,
    /// Deadlines of the requests to the CLI, by request id.
    deadlines: Deadlines<String>,
}

#[cfg_attr(feature = "async-trait", ractor::async_trait)]
impl Actor for ControlRouter {
    type Msg = RouterMessage;
    type State = RouterState;
    type Arguments = Arc<Shared>;

    async fn pre_start(
        &self,
        myself: ActorRef<RouterMessage>,
        shared: Arc<Shared>,
    ) -> Result<RouterState, ActorProcessingErr> {
        let outbound_requests = OutboundRequests::new(shared.clone());
        Ok(RouterState { shared, myself, outbound_requests, deadlines: Deadlines::new() })
    }

    async fn handle(
        &self,
        _: ActorRef<RouterMessage>,
        message: RouterMessage,
        state: &mut RouterState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            RouterMessage::Reply(reply, permit) => {
                drop(permit);
                state.reply(reply);
            }
            RouterMessage::Send(request) => {
                let outbound = state.shared.cli.outbound();
                state.outbound_requests.send(request, outbound.as_ref(), &mut state.deadlines);
                state.arm();
            }
            RouterMessage::Withdraw { request_id } => {
                state.outbound_requests.withdraw_dropped(&request_id, &mut state.deadlines);
            }
            RouterMessage::Tick => state.tick(Instant::now()),
            // The next incarnation starts after this message was sent: no request in the table is for it.
            RouterMessage::Ended => {
                state.deadlines.clear();
                state.outbound_requests.ended();
            }
            RouterMessage::Snapshot(reply) => respond(reply, state.snapshot()),
            #[cfg(feature = "testing")]
            RouterMessage::Panic => panic!("a fault was injected into the control router"),
        }
        Ok(())
    }
}

impl RouterState {
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
        self.arm();
    }

    fn arm(&mut self) {
        self.deadlines.arm(telling(&self.myself, || RouterMessage::Tick));
    }

    fn snapshot(&self) -> RouterSnapshot {
        let now = Instant::now();
        let request = |pending: &Arc<PendingRequest>| RequestSnapshot {
            request_id: short(pending.request_id()),
            kind: pending.kind.as_str(),
            epoch: pending.epoch(),
            dispatched: pending.is_dispatched(),
            age_ms: millis(now.duration_since(pending.received)),
        };
        RouterSnapshot {
            owed: self.shared.ledger.open().iter().map(request).collect(),
            awaited: self.outbound_requests.len(),
            waiting: self
                .shared
                .roster()
                .inside()
                .iter()
                .map(|server| server.queue.waiting_for_restart())
                .sum(),
        }
    }
}
