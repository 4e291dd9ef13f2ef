//! The control router: sends the session's requests to the CLI, and takes the answers. It runs no user code and waits for
//! nothing.
//!
//! ```text
//!   send ──written──► awaited ──answer──────────────► answered | refused
//!                      │  limit passes,
//!                      │  or the future is dropped
//!                      └─ control_cancel_request ──► withdrawn
//!                      (the incarnation ends: CliExited)
//! ```
//!
//! - [`client`]: how the session asks the CLI
//! - [`settings`]: the run-time settings that are sent again to the next CLI. The reader notes the answers to them, which
//!   count also when nobody waits for them any more
//!
//! Requests of the CLI do not pass through here: the reader passes them on, and the [ledger](super::request::ledger)
//! holds them until they are settled.
//!
//! Restart policy: permanent. When a router ends, its requests to the CLI fail, and the next router starts without any.

pub(crate) mod client;
pub(crate) mod settings;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::Instant;

pub(crate) use self::client::ask;
use super::base::deadlines::{Deadlines, after};
use super::base::reply::{respond, telling};
use super::context::Shared;
use super::outbound::Outbound;
use crate::actor::messages::router::{OutboundRequest, RouterMessage, not_ready};
use crate::error::{Error, ErrorKind, Result};
use crate::wire::envelope::{ControlReply, ReplyError};
use crate::wire::outgoing::{self, OutRequest, PUSH_PREFIX};

/// Subtypes that are written above `Limits::outbound_bytes`. An interrupt ends a turn. A change of the MCP servers may
/// have to be undone, or the CLI would keep servers that the session does not have; there is one change at a time.
const PASSES: [&str; 2] = ["interrupt", "mcp_set_servers"];

pub(crate) struct ControlRouter;

pub(crate) struct RouterState {
    shared: Arc<Shared>,
    myself: ActorRef<RouterMessage>,
    /// The requests to the CLI that wait for an answer, by id.
    awaited: HashMap<String, AwaitedReply>,
    /// Their deadlines.
    deadlines: Deadlines<String>,
}

struct AwaitedReply {
    reply: oneshot::Sender<Result<Box<RawValue>>>,
    /// The queue that the request went to; a withdrawal goes there too.
    outbound: Outbound,
    subtype: String,
    limit: Duration,
    deadline: Instant,
    span: tracing::Span,
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
        Ok(RouterState { shared, myself, awaited: HashMap::new(), deadlines: Deadlines::new() })
    }

    async fn handle(
        &self,
        _: ActorRef<RouterMessage>,
        message: RouterMessage,
        state: &mut RouterState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            RouterMessage::Reply { reply, was_setting, permit } => {
                drop(permit);
                state.reply(reply, was_setting);
            }
            RouterMessage::Send(request) => state.send(request),
            RouterMessage::Withdraw { request_id } => {
                if let Some(awaited) = state.withdraw(&request_id, "withdrawn") {
                    state.deadlines.remove(awaited.deadline, request_id);
                }
            }
            RouterMessage::Tick => {
                for request_id in state.deadlines.expired(Instant::now()) {
                    state.expired(&request_id);
                }
                state.arm();
            }
            // The next incarnation starts after this message was sent: no request in the table is for it.
            RouterMessage::Ended => state.cli_ended(),
            RouterMessage::Snapshot(reply) => respond(reply, state.awaited.len()),
            #[cfg(feature = "testing")]
            RouterMessage::Panic => panic!("a fault was injected into the control router"),
        }
        Ok(())
    }
}

impl RouterState {
    /// Writes a request to the current incarnation.
    fn send(&mut self, request: OutboundRequest) {
        let OutboundRequest { request_id, body, limit, handshake, reply } = request;
        let subtype = body.get("subtype").and_then(Value::as_str).unwrap_or_default().to_owned();
        let setting = (handshake.is_none() && settings::is_setting(&body)).then(|| body.clone());
        let outbound = match self.write(&request_id, &subtype, body, handshake, setting) {
            Ok(outbound) => outbound,
            Err(error) => return respond(reply, Err(error)),
        };
        let span = tracing::info_span!(
            parent: &self.shared.span, "control_request", request_id, kind = subtype, epoch = outbound.epoch(),
            outcome = tracing::field::Empty,
        );
        let deadline = after(Instant::now(), limit);
        self.deadlines.insert(deadline, request_id.clone());
        self.awaited.insert(request_id, AwaitedReply { reply, outbound, subtype, limit, deadline, span });
        self.arm();
    }

    /// Returns the queue that the request was written to.
    fn write(
        &self,
        request_id: &str,
        subtype: &str,
        body: Value,
        handshake: Option<u64>,
        setting: Option<Value>,
    ) -> Result<Outbound> {
        let json = serde_json::to_vec(&OutRequest::new(request_id, body))
            .map_err(|error| Error::invalid_option(format!("the request does not serialise: {error}")))?;
        let addressed = |outbound: &Outbound| match handshake {
            Some(epoch) => outbound.epoch() == epoch,
            None => outbound.is_ready(),
        };
        let outbound = self.shared.cli.outbound().filter(addressed).ok_or_else(not_ready)?;
        if outbound.bytes().is_full() && handshake.is_none() && !PASSES.contains(&subtype) {
            return Err(Error::new(ErrorKind::AtCapacity, outbound.bytes().refusal())
                .with_help("the CLI does not read what it is told (`limits.outbound_bytes`)"));
        }
        // Before the request is written: the reader may read the answer before this thread goes on.
        if let Some(setting) = setting {
            self.shared.settings.ask(request_id.to_owned(), setting);
        }
        outbound.send(json).map_err(|_| {
            self.shared.settings.not_asked(request_id);
            Error::new(ErrorKind::CliExited, "the CLI has just ended")
        })?;
        Ok(outbound)
    }

    /// Takes an answer of the CLI. `was_setting`: it answers a setting, which counts although nobody waits for it.
    fn reply(&mut self, reply: ControlReply, was_setting: bool) {
        let pushed = reply.request_id.starts_with(PUSH_PREFIX);
        if pushed && let Err(error) = &reply.outcome {
            tracing::debug!(message = error.message, "the CLI refused a notification of a tool server");
        }
        let Some(awaited) = self.take(&reply.request_id) else {
            if !was_setting && !pushed {
                self.shared.counting.unmatched_responses.one();
            }
            return;
        };
        self.deadlines.remove(awaited.deadline, reply.request_id);
        awaited.span.record("outcome", if reply.outcome.is_ok() { "answered" } else { "refused" });
        let outcome = reply.outcome.map_err(|error| refused(&awaited.subtype, error));
        respond(awaited.reply, outcome);
    }

    /// Fails a request whose limit has passed. The key may belong to no request.
    fn expired(&mut self, request_id: &str) {
        let Some(awaited) = self.withdraw(request_id, "timed_out") else { return };
        let message = format!("the CLI did not answer '{}' within {:?}", awaited.subtype, awaited.limit);
        let error = Error::new(ErrorKind::Timeout, message).with_help(
            "give it more time: `timeouts.control_request`, `long_request` or `with_request_timeout`",
        );
        respond(awaited.reply, Err(error));
    }

    /// Removes a request. Requests are rare, so an empty list keeps no capacity.
    fn take(&mut self, request_id: &str) -> Option<AwaitedReply> {
        let awaited = self.awaited.remove(request_id);
        if self.awaited.is_empty() {
            self.awaited = HashMap::new();
        }
        awaited
    }

    fn withdraw(&mut self, request_id: &str, outcome: &str) -> Option<AwaitedReply> {
        let awaited = self.take(request_id)?;
        // An incarnation that has ended needs no withdrawal.
        awaited.outbound.send(outgoing::cancel(request_id)).ok();
        awaited.span.record("outcome", outcome);
        self.shared.settings.withdrawn(request_id, |other| self.awaited.contains_key(other));
        Some(awaited)
    }

    /// Fails all requests, because their incarnation has ended.
    fn cli_ended(&mut self) {
        self.deadlines.clear();
        self.shared.settings.cli_ended();
        for (_, awaited) in self.awaited.drain() {
            let text = format!("the CLI ended before it answered '{}'", awaited.subtype);
            respond(awaited.reply, Err(Error::new(ErrorKind::CliExited, text)));
        }
    }

    fn arm(&mut self) {
        self.deadlines.arm(telling(&self.myself, || RouterMessage::Tick));
    }
}

/// The error of the CLI, as an [`Error`].
fn refused(subtype: &str, error: ReplyError) -> Error {
    let ReplyError { message, code } = error;
    // Older CLIs send only the text.
    let unknown = code.as_deref() == Some("unsupported_request")
        || message.starts_with("Unsupported control request subtype");
    if unknown {
        let text = format!("the CLI does not know the control request '{subtype}': {message}");
        return Error::new(ErrorKind::Unsupported, text).with_code(code);
    }
    let shown = code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default();
    Error::new(ErrorKind::Refused, format!("the CLI refused '{subtype}': {message}{shown}")).with_code(code)
}
