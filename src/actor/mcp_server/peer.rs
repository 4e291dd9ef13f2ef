//! Notifications of a server and its handlers to the CLI.

use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;

use crate::actor::context::Shared;
use crate::actor::outbound::Outbound;
use crate::actor::request::pending::PendingRequest;
use crate::identity::Identity;
use crate::tool::handle::ServerHandle;
use crate::tool::run::cancel::Cancel;
use crate::tool::run::context::CallContext;
use crate::tool::run::log_level::LevelFilter;
use crate::tool::run::peer::{AnyHandle, Caller, Peer};
use crate::tool::spec::ServerSpec;
use crate::wire::fast::request_ids::RequestIds;
use crate::wire::outgoing::{OutMcp, OutRequest, PUSH_PREFIX};
use crate::wire::rpc::RpcNotification;

/// Shared by all calls of a server's actor.
pub(super) struct Link {
    pub(super) shared: Arc<Shared>,
    pub(super) spec: Arc<ServerSpec>,
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
    let message = RpcNotification::new(method, params);
    serde_json::to_vec(&OutRequest::new(&request_id, OutMcp::new(server, message)))
}

async fn notify(outbound: &Outbound, server: &str, method: &str, params: Box<RawValue>) {
    match notification(server, method, Some(params)) {
        // An incarnation that has ended wants no notifications.
        Ok(json) => drop(outbound.send_with_room(json).await),
        Err(error) => tracing::debug!(%error, "a notification does not serialise"),
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
}

impl Caller for CallPeer {
    fn server_name(&self) -> &str {
        &self.link.spec.name
    }

    fn server(&self) -> Option<AnyHandle> {
        let gone = self.link.shared.ending.gone.clone();
        Some(Box::new(ServerHandle::new(self.link.spec.clone(), gone)))
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
}
