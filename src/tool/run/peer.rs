//! The CLI as a handler sees it: takes the server's notifications.

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;

use super::cancel::Cancel;
use crate::wire::fast::request_ids::RequestIds;

/// Takes notifications of servers.
pub(crate) trait Peer: Send + Sync {
    /// Sends a notification of a server, waiting for room. The notification is dropped if the CLI has ended.
    fn notify<'a>(&'a self, server: &'a str, method: &'a str, params: Box<RawValue>) -> BoxFuture<'a, ()>;
}

/// One request, and the CLI that it came from.
pub(crate) trait Request: Peer {
    fn ids(&self) -> &RequestIds;

    fn cancel(&self) -> &Cancel;

    /// Waits until there is room for an answer among those that the CLI has not read.
    fn room(&self) -> BoxFuture<'_, ()>;
}

/// A request without a session: drops notifications.
pub(crate) struct Alone {
    ids: RequestIds,
    cancel: Cancel,
}

impl Alone {
    pub(crate) fn new(request_id: &str, tool: &str) -> Self {
        Self { ids: RequestIds::detached(request_id, tool), cancel: Cancel::default() }
    }
}

impl Request for Alone {
    fn ids(&self) -> &RequestIds {
        &self.ids
    }

    fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    fn room(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

impl Peer for Alone {
    fn notify<'a>(&'a self, _: &'a str, _: &'a str, _: Box<RawValue>) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}
