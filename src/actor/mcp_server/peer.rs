//! Notifications of a server and its handlers to the CLI.

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;

use crate::actor::outbound::Outbound;
use crate::actor::request::pending::PendingRequest;
use crate::tool::run::cancel::Cancel;
use crate::tool::run::peer::{Peer, Request};
use crate::wire::fast::request_ids::RequestIds;
use crate::wire::outgoing::{OutMcp, OutRequest, PUSH_PREFIX};
use crate::wire::rpc::RpcNotification;

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

impl Peer for Outbound {
    fn notify<'a>(&'a self, server: &'a str, method: &'a str, params: Box<RawValue>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            match notification(server, method, Some(params)) {
                // An incarnation that has ended wants no notifications.
                Ok(json) => drop(self.send_with_room(json).await),
                Err(error) => tracing::debug!(%error, "a notification does not serialise"),
            }
        })
    }
}

impl Peer for PendingRequest {
    fn notify<'a>(&'a self, server: &'a str, method: &'a str, params: Box<RawValue>) -> BoxFuture<'a, ()> {
        self.outbound().notify(server, method, params)
    }
}

impl Request for PendingRequest {
    fn ids(&self) -> &RequestIds {
        self.ids()
    }

    fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    fn room(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.outbound().bytes().room())
    }
}
