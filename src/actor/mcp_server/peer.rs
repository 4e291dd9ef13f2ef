//! How a server and its handlers speak to the CLI.

use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::actor::lane::Lane;
use crate::actor::owed::Owed;
use crate::actor::router::PUSH_PREFIX;
use crate::actor::shared::Shared;
use crate::tool::RequestError;
use crate::tool::cancel::Cancel;
use crate::tool::context::LevelFilter;
use crate::tool::handle::ServerHandle;
use crate::tool::peer::{Caller, Notifies, Peer};
use crate::tool::server::ServerSpec;
use crate::wire::envelope::{OutMcp, OutRequest};
use crate::wire::head::Head;
use crate::wire::rpc::{Notification, OutCall};

/// What all calls of a server share.
pub(super) struct Link {
    pub(super) shared: Arc<Shared>,
    pub(super) spec: Arc<ServerSpec>,
    pub(super) generation: u32,
}

/// The end that the actor holds. Handlers may outlive it, and what they have asked may not.
pub(super) struct OwnLink(pub(super) Arc<Link>);

impl OwnLink {
    /// What the server has asked gets no answer any more.
    pub(super) fn end(&self) {
        self.0.shared.outgoing.end(&self.0.spec.name, self.0.generation);
    }
}

impl Drop for OwnLink {
    fn drop(&mut self) {
        self.end();
    }
}

/// The CLI that a request came from, for the handler that answers it.
pub(super) struct CallPeer {
    pub(super) owed: Arc<Owed>,
    pub(super) link: Arc<Link>,
}

/// The CLI of the moment, for the server itself. It is kept with what the session keeps, which the link leads to.
pub(super) struct LanePeer {
    pub(super) lane: Lane,
    pub(super) link: Weak<Link>,
}

/// A notification as a line.
pub(super) fn notification(
    server: &str,
    method: &str,
    params: Option<Box<RawValue>>,
) -> serde_json::Result<Vec<u8>> {
    let request_id = format!("{PUSH_PREFIX}{}", uuid::Uuid::new_v4());
    line(&request_id, server, Notification::new(method, params))
}

fn line(request_id: &str, server: &str, message: impl Serialize) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&OutRequest::new(request_id, OutMcp::new(server, message)))
}

async fn notify(lane: &Lane, server: &str, method: &str, params: Box<RawValue>) {
    match notification(server, method, Some(params)) {
        // An incarnation that has ended wants no notifications.
        Ok(json) => drop(lane.send_with_room(json).await),
        Err(error) => tracing::debug!(%error, "a notification does not serialise"),
    }
}

impl Link {
    /// Asks the CLI, and waits for its answer, its end, or the limit.
    async fn ask(
        &self,
        lane: &Lane,
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
        let mut waiting = shared.outgoing.open(&spec.name, *generation, lane, most)?;
        let id = waiting.id();
        let json = line(&waiting.request_id(), &spec.name, OutCall::new(&id, method, Some(params)))
            .map_err(|error| RequestError::Unserializable(error.to_string()))?;
        let asking = async {
            lane.send_with_room(json).await.map_err(|_| RequestError::Ended)?;
            waiting.sent = true;
            // The list lets go of a waiter only with an answer.
            (&mut waiting.answer).await.unwrap_or(Err(RequestError::ServerEnded))
        };
        tokio::select! {
            biased;
            answer = asking => answer,
            () = cancel.cancelled() => Err(RequestError::Cancelled),
            () = lane.ended() => Err(RequestError::Ended),
            () = tokio::time::sleep(limit) => Err(RequestError::TimedOut(limit)),
        }
    }
}

impl Notifies for LanePeer {
    fn notify<'a>(&'a self, method: &'a str, params: Box<RawValue>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            // A server that has ended says nothing.
            let Some(link) = self.link.upgrade() else { return };
            notify(&self.lane, &link.spec.name, method, params).await;
        })
    }
}

impl Peer for LanePeer {
    fn request<'a>(
        &'a self,
        method: &'a str,
        params: Box<RawValue>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, RequestError>> {
        Box::pin(async move {
            let Some(link) = self.link.upgrade() else { return Err(RequestError::ServerEnded) };
            // Nothing cancels it but whoever drops it.
            link.ask(&self.lane, &CancellationToken::new(), method, params).await
        })
    }

    fn server(&self) -> Option<ServerHandle> {
        let link = self.link.upgrade()?;
        Some(ServerHandle::new(link.spec.clone(), link.shared.gone.clone()))
    }
}

impl Notifies for CallPeer {
    fn notify<'a>(&'a self, method: &'a str, params: Box<RawValue>) -> BoxFuture<'a, ()> {
        Box::pin(notify(self.owed.lane(), &self.link.spec.name, method, params))
    }
}

impl Caller for CallPeer {
    fn server_name(&self) -> &str {
        &self.link.spec.name
    }

    fn head(&self) -> &Head {
        self.owed.head()
    }

    fn cancel(&self) -> &Cancel {
        &self.owed.cancel
    }

    fn generation(&self) -> u32 {
        self.link.generation
    }

    fn log_level(&self) -> &LevelFilter {
        &self.link.spec.registry.log_level
    }
}

impl Peer for CallPeer {
    fn request<'a>(
        &'a self,
        method: &'a str,
        params: Box<RawValue>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, RequestError>> {
        Box::pin(self.link.ask(self.owed.lane(), self.owed.cancel.token(), method, params))
    }

    fn server(&self) -> Option<ServerHandle> {
        Some(ServerHandle::new(self.link.spec.clone(), self.link.shared.gone.clone()))
    }
}
