//! The CLI as a handler sees it: takes the server's notifications.

use std::any::Any;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;

use super::cancel::Cancel;
use super::log_level::LevelFilter;
use crate::identity::Identity;
use crate::wire::fast::request_ids::RequestIds;

/// A [`ServerHandle`](crate::tool::ServerHandle) without its type, which lies above this module.
pub(crate) type AnyHandle = Box<dyn Any + Send>;

/// Takes notifications of a server.
pub(crate) trait Peer: Send + Sync {
    /// Sends a notification, waiting for room. The notification is dropped if the CLI has ended.
    fn notify<'a>(&'a self, method: &'a str, params: Box<RawValue>) -> BoxFuture<'a, ()>;
}

/// The CLI for the handler of one request.
pub(crate) trait Caller: Peer {
    fn server_name(&self) -> &str;

    /// A handle of the server; `None` without a session.
    fn server(&self) -> Option<AnyHandle> {
        None
    }

    fn ids(&self) -> &RequestIds;

    fn cancel(&self) -> &Cancel;

    /// Waits until there is room for an answer among those that the CLI has not read.
    fn room(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Number of starts of the server so far, from 1.
    fn generation(&self) -> u32;

    fn log_level(&self) -> &LevelFilter;

    /// The session.
    fn identity(&self) -> &dyn Identity;
}

/// The caller of a request without a session: drops notifications.
pub(crate) struct Alone {
    pub(crate) server: String,
    pub(crate) ids: RequestIds,
    pub(crate) cancel: Cancel,
    pub(crate) log_level: Arc<LevelFilter>,
    identity: Arc<dyn Identity>,
}

impl Alone {
    pub(crate) fn new(
        server: &str,
        request_id: &str,
        tool: &str,
        log_level: Arc<LevelFilter>,
        identity: Arc<dyn Identity>,
    ) -> Self {
        let ids = RequestIds::detached(request_id, tool);
        Self { server: server.to_owned(), ids, cancel: Cancel::default(), log_level, identity }
    }
}

impl Caller for Alone {
    fn server_name(&self) -> &str {
        &self.server
    }

    fn ids(&self) -> &RequestIds {
        &self.ids
    }

    fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    fn generation(&self) -> u32 {
        1
    }

    fn log_level(&self) -> &LevelFilter {
        &self.log_level
    }

    fn identity(&self) -> &dyn Identity {
        &*self.identity
    }
}

impl Peer for Alone {
    fn notify<'a>(&'a self, _: &'a str, _: Box<RawValue>) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}
