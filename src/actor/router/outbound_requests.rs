//! The requests to the CLI that wait for an answer. The router's own table; it runs on the router's actor.
//!
//! ```text
//!   send ──written──► awaited ──answer──────────────► answered | refused
//!                      │  limit passes,                 ▲
//!                      │  or the future is dropped      │ a setting that took effect all the same
//!                      └─ control_cancel_request ──► withdrawn
//!                      (the incarnation ends: CliExited)
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::settings;
use crate::actor::base::deadlines::{Deadlines, after};
use crate::actor::base::reply::respond;
use crate::actor::context::Shared;
use crate::actor::messages::router::OutboundRequest;
use crate::actor::outbound::Outbound;
use crate::error::{Error, ErrorKind, Result};
use crate::wire::envelope::{ControlReply, ReplyError};
use crate::wire::outgoing::{self, OutRequest};

/// Subtypes that are written above `Limits::outbound_bytes`. An interrupt ends a turn. A change of the MCP servers may
/// have to be undone, or the CLI would keep servers that the session does not have; there is one change at a time.
const PASSES: [&str; 2] = ["interrupt", "mcp_set_servers"];

/// The requests to the CLI that wait for an answer.
pub(crate) struct OutboundRequests {
    shared: Arc<Shared>,
    awaited: HashMap<String, AwaitedReply>,
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

impl OutboundRequests {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, awaited: HashMap::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.awaited.len()
    }

    /// Writes a request to the current incarnation.
    pub(super) fn send(
        &mut self,
        request: OutboundRequest,
        outbound: Option<&Outbound>,
        deadlines: &mut Deadlines<String>,
    ) {
        let OutboundRequest { request_id, body, limit, handshake, reply } = request;
        let subtype = body.get("subtype").and_then(Value::as_str).unwrap_or_default().to_owned();
        let setting = (handshake.is_none() && settings::is_setting(&body)).then(|| body.clone());
        let json = serde_json::to_vec(&OutRequest::new(&request_id, body));
        let outbound = outbound.filter(|outbound| match handshake {
            Some(epoch) => outbound.epoch() == epoch,
            None => outbound.is_ready(),
        });
        let written = match (outbound, json) {
            (_, Err(error)) => Err(Error::invalid_option(format!("the request does not serialise: {error}"))),
            (None, _) => Err(not_ready()),
            (Some(outbound), Ok(_))
                if outbound.bytes().is_full() && handshake.is_none() && !PASSES.contains(&&*subtype) =>
            {
                Err(Error::new(ErrorKind::AtCapacity, outbound.bytes().refusal())
                    .with_help("the CLI does not read what it is told (`limits.outbound_bytes`)"))
            }
            (Some(outbound), Ok(json)) => outbound
                .send(json)
                .map_err(|_| Error::new(ErrorKind::CliExited, "the CLI has just ended"))
                .map(|()| outbound.clone()),
        };
        match written {
            Ok(outbound) => {
                let span = tracing::info_span!(
                    parent: &self.shared.span, "control_request", request_id, kind = subtype, epoch = outbound.epoch(),
                    outcome = tracing::field::Empty,
                );
                let deadline = after(Instant::now(), limit);
                deadlines.insert(deadline, request_id.clone());
                if let Some(setting) = setting {
                    self.shared.settings.ask(request_id.clone(), setting);
                }
                let awaited = AwaitedReply { reply, outbound, subtype, limit, deadline, span };
                self.awaited.insert(request_id, awaited);
            }
            Err(error) => respond(reply, Err(error)),
        }
    }

    /// Takes an answer of the CLI; false if no request waits for it.
    pub(crate) fn reply(&mut self, reply: ControlReply, deadlines: &mut Deadlines<String>) -> bool {
        // A setting took effect even if the receiver was dropped.
        let was_setting = self.setting_answered(&reply);
        let Some(awaited) = self.take(&reply.request_id) else {
            return was_setting;
        };
        deadlines.remove(awaited.deadline, reply.request_id);
        awaited.span.record("outcome", if reply.outcome.is_ok() { "answered" } else { "refused" });
        let outcome = reply.outcome.map_err(|error| refused(&awaited.subtype, error));
        respond(awaited.reply, outcome);
        true
    }

    /// Notes the setting that an answer confirms; false if the answer is to no setting.
    fn setting_answered(&self, reply: &ControlReply) -> bool {
        let Some(setting) = self.shared.settings.answered(&reply.request_id) else { return false };
        if let Ok(answer) = &reply.outcome {
            let answer = serde_json::from_str(answer.get()).unwrap_or_default();
            if settings::took_effect(&setting, &answer).is_ok() {
                self.shared.settings.took(&settings::as_taken(&setting, &answer));
            }
        }
        true
    }

    /// Withdraws a request whose future was dropped.
    pub(crate) fn withdraw_dropped(&mut self, request_id: &str, deadlines: &mut Deadlines<String>) {
        if let Some(awaited) = self.withdraw(request_id, "withdrawn") {
            deadlines.remove(awaited.deadline, request_id.to_owned());
        }
    }

    /// Fails a request whose limit has passed. The key may belong to no request.
    pub(crate) fn expired(&mut self, request_id: &str) {
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
    pub(crate) fn ended(&mut self) {
        self.shared.settings.cli_ended();
        for (_, awaited) in self.awaited.drain() {
            let text = format!("the CLI ended before it answered '{}'", awaited.subtype);
            respond(awaited.reply, Err(Error::new(ErrorKind::CliExited, text)));
        }
    }
}

pub(super) fn not_ready() -> Error {
    Error::new(ErrorKind::NotReady, "the session has no CLI to talk to at this moment")
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
