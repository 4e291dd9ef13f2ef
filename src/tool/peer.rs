//! The other end of an MCP connection, as a handler sees it: where its notifications and its own requests go.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;

use super::cancel::Cancel;
use super::context::LevelFilter;
use super::handle::ServerHandle;
use crate::error::{Error, ErrorKind};
use crate::wire::RpcError;
use crate::wire::head::{Head, Parts};

/// Where what a server says by itself goes.
pub(crate) trait Notifies: Send + Sync {
    /// Sends a notification, waiting for room. It is dropped when nobody is there to read it any more.
    fn notify<'a>(&'a self, method: &'a str, params: Box<RawValue>) -> BoxFuture<'a, ()>;
}

/// The same, and where its own requests go.
pub(crate) trait Peer: Notifies {
    /// Sends a request and waits for its answer.
    fn request<'a>(
        &'a self,
        method: &'a str,
        params: Box<RawValue>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, RequestError>>;

    /// A handle of the server itself.
    fn server(&self) -> Option<ServerHandle>;
}

/// The same for one request: what is known of it.
pub(crate) trait Caller: Peer {
    /// The name of the server.
    fn server_name(&self) -> &str;

    /// What the request is called by.
    fn head(&self) -> &Head;

    fn cancel(&self) -> &Cancel;

    /// How often the server was started, from 1 on.
    fn generation(&self) -> u32;

    fn log_level(&self) -> &LevelFilter;
}

/// A request without a CLI: it takes notifications and keeps none.
pub(crate) struct Alone {
    pub(crate) server: String,
    pub(crate) head: Head,
    pub(crate) cancel: Cancel,
    pub(crate) log_level: Arc<LevelFilter>,
}

impl Alone {
    pub(crate) fn new(server: &str, request_id: &str, tool: &str, log_level: Arc<LevelFilter>) -> Self {
        let head = Head::new(Parts { request_id, tool: Some(tool), ..Parts::default() });
        Self { server: server.to_owned(), head, cancel: Cancel::default(), log_level }
    }
}

impl Caller for Alone {
    fn server_name(&self) -> &str {
        &self.server
    }

    fn head(&self) -> &Head {
        &self.head
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
}

impl Notifies for Alone {
    fn notify<'a>(&'a self, _: &'a str, _: Box<RawValue>) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}

impl Peer for Alone {
    fn request<'a>(
        &'a self,
        _: &'a str,
        _: Box<RawValue>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, RequestError>> {
        Box::pin(std::future::ready(Err(RequestError::Ended)))
    }

    fn server(&self) -> Option<ServerHandle> {
        None
    }
}

/// Why a request of a server to the CLI got no result.
///
/// ```
/// use greenroom::RequestError;
/// use greenroom::{NoArgs, ToolContext, ToolServer};
///
/// let server: ToolServer = ToolServer::new("files", "1.0.0").tool("roots", "Where to look", |_: NoArgs, cx: ToolContext| async move {
///     match cx.request("roots/list", serde_json::json!({})).await {
///         Ok(roots) => roots.to_string(),
///         Err(RequestError::Refused(error)) => format!("it has none to tell: {error}"),
///         Err(other) => format!("no answer: {other}"),
///     }
/// });
/// # let _ = server;
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RequestError {
    /// The CLI answered with an error. -32601 says that it does not know the method.
    Refused(RpcError),
    /// The CLI did not take the message at all; with its words.
    NotTaken(String),
    /// It did not answer within [`Timeouts::mcp_request`](crate::Timeouts::mcp_request). It was told that nobody waits any
    /// more.
    TimedOut(Duration),
    /// The call that asked was cancelled, or was answered for because it took too long.
    Cancelled,
    /// The CLI that was asked has ended; or there is none, in a unit test.
    Ended,
    /// The server that asked was restarted or stopped.
    ServerEnded,
    /// As many requests of this server wait for an answer as may
    /// ([`Limits::mcp_requests_per_server`](crate::Limits::mcp_requests_per_server)). Nothing was sent.
    AtCapacity(usize),
    /// The parameters do not serialise. Nothing was sent.
    Unserializable(String),
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::Refused(error) => write!(f, "the CLI refused the request: {error}"),
            RequestError::NotTaken(reason) => write!(f, "the CLI did not take the request: {reason}"),
            RequestError::TimedOut(limit) => write!(f, "the CLI did not answer the request within {limit:?}"),
            RequestError::Cancelled => f.write_str("the call that asked was cancelled"),
            RequestError::Ended => f.write_str("there is no CLI to answer the request"),
            RequestError::ServerEnded => f.write_str("the server that asked has ended"),
            RequestError::AtCapacity(limit) => {
                write!(f, "at capacity: {limit} requests of this server wait for an answer")
            }
            RequestError::Unserializable(reason) => {
                write!(f, "the parameters of the request do not serialise: {reason}")
            }
        }
    }
}

impl std::error::Error for RequestError {}

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
