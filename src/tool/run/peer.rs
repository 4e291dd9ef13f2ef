//! The CLI as a handler sees it: takes the server's notifications, and answers its requests.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;

use super::cancel::Cancel;
use super::log_level::LevelFilter;
use crate::error::{Error, ErrorKind};
use crate::identity::Identity;
use crate::wire::RpcError;
use crate::wire::fast::request_ids::RequestIds;

/// A [`ServerHandle`](crate::tool::ServerHandle) without its type, which lies above this module.
pub(crate) type AnyHandle = Box<dyn Any + Send>;

/// Takes notifications and answers requests of a server.
pub(crate) trait Peer: Send + Sync {
    /// Sends a notification, waiting for room. The notification is dropped if the CLI has ended.
    fn notify<'a>(&'a self, method: &'a str, params: Box<RawValue>) -> BoxFuture<'a, ()>;

    /// Sends a request and waits for the answer.
    fn request<'a>(
        &'a self,
        method: &'a str,
        params: Box<RawValue>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, RequestError>>;

    /// A handle of the server; `None` without a session.
    fn server(&self) -> Option<AnyHandle>;
}

/// The CLI for the handler of one request.
pub(crate) trait Caller: Peer {
    fn server_name(&self) -> &str;

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

/// The caller of a request without a session: drops notifications, answers no request.
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

    fn request<'a>(
        &'a self,
        _: &'a str,
        _: Box<RawValue>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, RequestError>> {
        Box::pin(std::future::ready(Err(RequestError::Ended)))
    }

    fn server(&self) -> Option<AnyHandle> {
        None
    }
}

/// The failure of a server's request to the CLI.
///
/// ```
/// use greenroom::tool::RequestError;
/// use greenroom::{NoArgs, ToolContext, ToolServer};
///
/// let server: ToolServer = ToolServer::new("files", "1.0.0").tool("roots", "Where to look", |_: NoArgs, cx: ToolContext| async move {
///     match cx.request("roots/list", serde_json::json!({})).await {
///         Ok(roots) => roots.to_string(),
///         Err(RequestError::Refused(error)) => format!("refused: {error}"),
///         Err(other) => format!("no answer: {other}"),
///     }
/// });
/// # let _ = server;
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The CLI answered with an error; -32601 means that it does not know the method.
    #[error("the CLI refused the request: {0}")]
    Refused(RpcError),
    /// The CLI rejected the message itself, with this text.
    #[error("the CLI did not take the request: {0}")]
    NotTaken(String),
    /// The CLI did not answer within [`Timeouts::mcp_request`](crate::options::Timeouts::mcp_request). The request was
    /// withdrawn.
    #[error("the CLI did not answer the request within {0:?}")]
    TimedOut(Duration),
    /// The call that sent the request was cancelled or timed out.
    #[error("the call that asked was cancelled")]
    Cancelled,
    /// The CLI has ended, or there is no session, as in a unit test.
    #[error("there is no CLI to answer the request")]
    Ended,
    /// The server that sent the request was restarted or stopped.
    #[error("the server that asked has ended")]
    ServerEnded,
    /// The server already waits for
    /// [`Limits::mcp_requests_per_server`](crate::options::Limits::mcp_requests_per_server) answers. Nothing was sent.
    #[error("at capacity: {0} requests of this server wait for an answer")]
    AtCapacity(usize),
    /// The parameters do not serialise. Nothing was sent.
    #[error("the parameters of the request do not serialise: {0}")]
    Unserializable(String),
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Self {
        let kind = match &error {
            RequestError::Refused(_) | RequestError::NotTaken(_) => ErrorKind::Refused,
            RequestError::TimedOut(_) => ErrorKind::Timeout,
            RequestError::Cancelled | RequestError::ServerEnded => ErrorKind::Tool,
            RequestError::Ended => ErrorKind::CliExited,
            RequestError::AtCapacity(_) => ErrorKind::AtCapacity,
            RequestError::Unserializable(_) => ErrorKind::InvalidOption,
        };
        Error::new(kind, error.to_string()).with_source(error)
    }
}
