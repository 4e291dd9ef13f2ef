//! Notifications and requests of a server and its handlers to the CLI.

use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::actor::context::Shared;
use crate::actor::mcp_server::outgoing::PUSH_PREFIX;
use crate::actor::outbound::Outbound;
use crate::actor::request::pending::PendingRequest;
use crate::identity::Identity;
use crate::tool::RequestError;
use crate::tool::handle::ServerHandle;
use crate::tool::run::cancel::Cancel;
use crate::tool::run::context::CallContext;
use crate::tool::run::log_level::LevelFilter;
use crate::tool::run::peer::{AnyHandle, Caller, Peer};
use crate::tool::spec::ServerSpec;
use crate::wire::fast::request_ids::RequestIds;
use crate::wire::outgoing::{OutMcp, OutRequest};
use crate::wire::rpc::{OutCall, RpcNotification};

/// Shared by all calls of a server's actor.
pub(super) struct Link {
    pub(super) shared: Arc<Shared>,
    pub(super) spec: Arc<ServerSpec>,
    /// The generation at the actor's start: tells its requests from those of another actor.
    pub(super) generation: u32,
}

/// The actor's own link: its drop ends the requests of handlers, which may outlive the actor.
pub(super) struct OwnLink(pub(super) Arc<Link>);

impl OwnLink {
    /// Settles the server's open requests to the CLI.
    pub(super) fn end(&self) {
        self.0.shared.outgoing.end(&self.0.spec.name, self.0.generation);
    }
}

impl Drop for OwnLink {
    fn drop(&mut self) {
        self.end();
    }
}

/// The CLI that a request came from, for the handler that answers the request; and what the server has to know of the
/// handler while it runs.
pub(super) struct CallPeer {
    pub(super) pending: Arc<PendingRequest>,
    pub(super) link: Arc<Link>,
    /// Generation of the state that the handler was given.
    pub(super) generation: u32,
    /// Whether the handler is a tool, whose failures are results.
    pub(super) is_tool: bool,
    /// Whether the handler blocks a thread, and so cannot be aborted.
    pub(super) blocks: bool,
    /// Name for people, if it differs from the subject of the call.
    pub(super) label: Option<String>,
}

impl CallContext<CallPeer> {
    pub(super) fn label(&self) -> &str {
        self.caller.label.as_deref().unwrap_or_else(|| self.subject())
    }
}

/// The CLI of the moment, for the server itself. It is kept with what the session keeps, which the link leads to.
pub(super) struct OutboundPeer {
    pub(super) outbound: Outbound,
    pub(super) link: Weak<Link>,
}

/// A notification as a line.
pub(super) fn notification(
    server: &str,
    method: &str,
    params: Option<Box<RawValue>>,
) -> serde_json::Result<Vec<u8>> {
    let request_id = format!("{PUSH_PREFIX}{}", uuid::Uuid::new_v4());
    line(&request_id, server, RpcNotification::new(method, params))
}

fn line(request_id: &str, server: &str, message: impl Serialize) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&OutRequest::new(request_id, OutMcp::new(server, message)))
}

async fn notify(outbound: &Outbound, server: &str, method: &str, params: Box<RawValue>) {
    match notification(server, method, Some(params)) {
        // An incarnation that has ended wants no notifications.
        Ok(json) => drop(outbound.send_with_room(json).await),
        Err(error) => tracing::debug!(%error, "a notification does not serialise"),
    }
}

impl Link {
    fn handle(&self) -> AnyHandle {
        Box::new(ServerHandle::new(self.spec.clone(), self.shared.gone.clone()))
    }

    /// Asks the CLI, and waits for its answer, its end, or the limit.
    async fn ask(
        &self,
        outbound: &Outbound,
        cancel: &CancellationToken,
        method: &str,
        params: Box<RawValue>,
    ) -> Result<Box<RawValue>, RequestError> {
        let Link { shared, spec, generation } = self;
        let limit = shared.options().timeouts.mcp_request;
        let most = shared.options().limits.mcp_requests_per_server;
        if cancel.is_cancelled() {
            return Err(RequestError::Cancelled);
        }
        let mut waiting = shared.outgoing.open(&spec.name, *generation, outbound, most)?;
        let id = waiting.id();
        let json = line(&waiting.request_id(), &spec.name, OutCall::new(&id, method, Some(params)))
            .map_err(|error| RequestError::Unserializable(error.to_string()))?;
        let asking = async {
            outbound.send_with_room(json).await.map_err(|_| RequestError::Ended)?;
            waiting.sent = true;
            // The list lets go of a waiter only with an answer.
            (&mut waiting.answer).await.unwrap_or(Err(RequestError::ServerEnded))
        };
        tokio::select! {
            biased;
            answer = asking => answer,
            () = cancel.cancelled() => Err(RequestError::Cancelled),
            () = outbound.ended() => Err(RequestError::Ended),
            () = tokio::time::sleep(limit) => Err(RequestError::TimedOut(limit)),
        }
    }
}

impl Peer for OutboundPeer {
    fn notify<'a>(&'a self, method: &'a str, params: Box<RawValue>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            // A server that has ended says nothing.
            let Some(link) = self.link.upgrade() else { return };
            notify(&self.outbound, &link.spec.name, method, params).await;
        })
    }

    fn request<'a>(
        &'a self,
        method: &'a str,
        params: Box<RawValue>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, RequestError>> {
        Box::pin(async move {
            let Some(link) = self.link.upgrade() else { return Err(RequestError::ServerEnded) };
            // Nothing cancels it but whoever drops it.
            link.ask(&self.outbound, &CancellationToken::new(), method, params).await
        })
    }

    fn server(&self) -> Option<AnyHandle> {
        let link = self.link.upgrade()?;
        Some(link.handle())
    }
}

impl Caller for CallPeer {
    fn server_name(&self) -> &str {
        &self.link.spec.name
    }

    fn ids(&self) -> &RequestIds {
        self.pending.ids()
    }

    fn cancel(&self) -> &Cancel {
        &self.pending.cancel
    }

    fn room(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.pending.outbound().bytes().room())
    }

    fn generation(&self) -> u32 {
        self.generation
    }

    fn log_level(&self) -> &LevelFilter {
        &self.link.spec.registry.log_level
    }

    fn identity(&self) -> &dyn Identity {
        &*self.link.shared.identity
    }
}

impl Peer for CallPeer {
    fn notify<'a>(&'a self, method: &'a str, params: Box<RawValue>) -> BoxFuture<'a, ()> {
        Box::pin(notify(self.pending.outbound(), &self.link.spec.name, method, params))
    }

    fn request<'a>(
        &'a self,
        method: &'a str,
        params: Box<RawValue>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, RequestError>> {
        Box::pin(self.link.ask(self.pending.outbound(), self.pending.cancel.token(), method, params))
    }

    fn server(&self) -> Option<AnyHandle> {
        Some(self.link.handle())
    }
}
