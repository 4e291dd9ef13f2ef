//! Servers that are made with [`rmcp`](https://docs.rs/rmcp/3), in a session, under the promises of a tool server.
//!
//! [`mount`] makes a [`ToolServer`] of any `rmcp` handler (version 3). What is promised of a [`ToolServer`] holds for it:
//! every request of the CLI is answered once, through panic, cancellation, limit and restart; the handler is made by a
//! factory, and made anew when the server restarts; calls have their bound, and are in the snapshot.
//!
//! ```
//! use greenroom::Session;
//! use rmcp::model::*;
//! use rmcp::service::RequestContext;
//! use rmcp::{ErrorData, RoleServer, ServerHandler};
//!
//! struct Clock;
//!
//! impl ServerHandler for Clock {
//!     fn get_info(&self) -> ServerConfig {
//!         ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
//!     }
//!
//!     async fn list_tools(
//!         &self, _: Option<PaginatedRequestParams>, _: RequestContext<RoleServer>,
//!     ) -> Result<ListToolsResult, ErrorData> {
//!         Ok(ListToolsResult::with_all_items(vec![Tool::new("now", "The time", JsonObject::new())]))
//!     }
//!
//!     async fn call_tool(
//!         &self, _: CallToolRequestParams, _: RequestContext<RoleServer>,
//!     ) -> Result<CallToolResponse, ErrorData> {
//!         Ok(CallToolResult::success(vec![ContentBlock::text("noon")]).into())
//!     }
//! }
//!
//! let clock = greenroom::rmcp::mount("clock", || Clock);
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! assert_eq!(clock.call("now", serde_json::json!({})).await.text(), "noon");
//! # });
//! let builder = Session::builder().mcp_server(clock).allow_server_tools("clock");
//! # let _ = builder;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # How it works, and what that means
//!
//! `rmcp`'s own service loop runs each request on a task that nobody watches: one whose handler panics is never answered
//! (seen in `rmcp` 3.9.0). So requests do not go through that loop. They are given to the handler on tasks of the server,
//! which catch its panic, cancel its [`RequestContext::ct`](::rmcp::service::RequestContext), and abort it after the grace
//! time. The loop runs beside them, for what else there is: notifications of the CLI, and what the handler sends with its
//! [`Peer`](::rmcp::Peer).
//!
//! - The ids that a handler sees are not those of the CLI, which repeat; they are unique for one handler.
//! - Progress goes to the CLI under the token of the call that it belongs to, and nowhere once that is over. Other
//!   notifications go to the CLI of the moment.
//! - Requests to the CLI are answered with what the CLI says. CLI 2.1.328 was seen to refuse every one (-32601).
//! - The CLI begins many MCP sessions with one handler: `initialize` may come again at any time, also while calls are in
//!   flight. A handler that is made anew is told the newest `initialize` and `initialized` before anything else.
//! - The CLI is not told beforehand what the server offers, as it is for other tool servers; it asks before the first turn.
//! - A handler that blocks its thread blocks a thread of the runtime, as in `rmcp`.

mod dispatch;
mod instance;
mod wire;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::rmcp::RoleServer;
use ::rmcp::model::{ClientJsonRpcMessage, InitializeRequestParams};
use ::rmcp::service::{DynService, Service};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use crate::tool::ToolServer;
use crate::tool::def::AnyState;
use crate::tool::dispatch as steps;
use crate::tool::server::ServerSpec;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Handler = Arc<dyn DynService<RoleServer>>;
type Factory = Arc<dyn Fn() -> BoxFuture<'static, Result<Handler, BoxError>> + Send + Sync>;

/// A tool server of this name that an `rmcp` handler serves: a `ServerHandler`, one of `rmcp`'s routers, or any other
/// `Service<RoleServer>`. The factory makes the handler when the server starts, and again at each restart, on a task of its
/// own; one that panics is a failed start.
///
/// The tools are the handler's: a session refuses a server that was given others with [`ToolServer::tool`]. Everything else
/// of a [`ToolServer`] works as it does for others, except that a [`tool_policy`](ToolServer::tool_policy) may name any
/// tool. What the CLI is told in `initialize` is what the handler says; see the [module](self) for an example.
pub fn mount<H, F>(name: impl Into<String>, factory: F) -> ToolServer
where
    H: Service<RoleServer>,
    F: Fn() -> H + Send + Sync + 'static,
{
    mounted(name.into(), move || std::future::ready(Ok(Arc::new(factory()) as Handler)).boxed())
}

/// The same with a factory that may wait and may fail.
///
/// ```
/// # use rmcp::model::*;
/// # struct Db(tokio::net::TcpStream);
/// # impl rmcp::ServerHandler for Db {
/// #     fn get_info(&self) -> ServerConfig { ServerConfig::default() }
/// # }
/// let db = greenroom::rmcp::async_mount("db", || async {
///     tokio::net::TcpStream::connect("127.0.0.1:5432").await.map(Db)
/// });
/// # let _ = db;
/// ```
pub fn async_mount<H, F, Fut, E>(name: impl Into<String>, factory: F) -> ToolServer
where
    H: Service<RoleServer>,
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<H, E>> + Send + 'static,
    E: Into<BoxError>,
{
    mounted(name.into(), move || {
        let made = factory();
        async move { made.await.map(|handler| Arc::new(handler) as Handler).map_err(Into::into) }.boxed()
    })
}

fn mounted(
    name: String,
    factory: impl Fn() -> BoxFuture<'static, Result<Handler, BoxError>> + Send + Sync + 'static,
) -> ToolServer {
    let mount = Mount { factory: Arc::new(factory), meeting: Arc::default() };
    ToolServer::mounted(name, mount)
}

/// How the handler of one server in one session is made, and what outlives it.
pub(crate) struct Mount {
    factory: Factory,
    meeting: Arc<Meeting>,
}

/// What the CLI has said to the handler, for the one that comes after it.
#[derive(Default)]
struct Meeting {
    /// The newest `initialize`.
    initialize: Mutex<Option<InitializeRequestParams>>,
    /// Where notifications go.
    door: Mutex<Option<Door>>,
}

/// The way into the loop of a handler. What waits there is bounded by those who send: the answers to requests of the
/// handler by [`Limits::mcp_requests_per_server`](crate::Limits::mcp_requests_per_server), and the loop takes a
/// notification of the CLI at once.
type Door = mpsc::WeakUnboundedSender<ClientJsonRpcMessage>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Clone for Mount {
    /// The same factory, for another session.
    fn clone(&self) -> Self {
        Self { factory: self.factory.clone(), meeting: Arc::default() }
    }
}

impl fmt::Debug for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mount")
    }
}

impl Mount {
    /// What takes the messages of the CLI.
    pub(crate) fn service(&self, spec: &Arc<ServerSpec>) -> Box<dyn steps::Service> {
        Box::new(dispatch::MountedSession::new(spec.registry.look(), self.meeting.clone()))
    }

    /// Makes the handler, which is the server's state.
    pub(crate) async fn make(&self, spec: &Arc<ServerSpec>) -> Result<AnyState, BoxError> {
        let handler = (self.factory)().await?;
        Ok(Arc::new(instance::Mounted::start(handler, spec.clone(), self.meeting.clone()).await))
    }
}
