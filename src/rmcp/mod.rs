//! Runs servers written with [`rmcp`](https://docs.rs/rmcp/3) in a session.
//!
//! [`mount`] makes a [`ToolServer`] from any `rmcp` handler (version 3), with the promises of a [`ToolServer`]: every
//! request of the CLI is answered once, through panic, cancellation, timeout and restart; a factory makes the handler
//! at each start of the server; calls are bounded, and listed in the snapshot.
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
//! # How it works
//!
//! `rmcp`'s service loop runs each request on a task that nobody watches: if the handler panics, the request is never
//! answered (seen in `rmcp` 3.9.0). So requests bypass that loop. They run on tasks of the server, which catch a panic,
//! cancel [`RequestContext::ct`](::rmcp::service::RequestContext), and abort the handler after the grace time. The loop
//! runs beside them for notifications of the CLI, and for what the handler sends with its [`Peer`](::rmcp::Peer).
//!
//! - A handler finds the call's [`ToolContext`](crate::ToolContext) in the request's extensions: the session's id and data, the
//!   deadline, the id of the tool use. `context.extensions.get::<ToolContext>()`, or the argument
//!   `Extension(cx): Extension<ToolContext>` of a `#[tool]`.
//! - A handler sees ids that are unique for it, not the CLI's ids, which repeat.
//! - Progress goes to the CLI under the token of its call, and is dropped after the call. Other notifications go to the current
//!   CLI.
//! - Requests to the CLI are answered here: `ping` with `{}`, any other with -32601. CLI 2.1.328 was seen to take no other from an
//!   in-process server.
//! - The CLI starts many MCP sessions with one handler: `initialize` may come again at any time, also during calls. A restarted
//!   handler first gets the newest `initialize` and `initialized`.
//! - The CLI asks for the server's lists before the first turn. It does not get them at its start, as for other tool servers.
//! - A handler that blocks its thread blocks a thread of the runtime, as in `rmcp`.

mod dispatch;
mod instance;
mod wire;

use std::sync::{Arc, Mutex};

use ::rmcp::RoleServer;
use ::rmcp::model::{ClientJsonRpcMessage, InitializeRequestParams};
use ::rmcp::service::{DynService, Service};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use crate::blocking::caught::DropElsewhere;
use crate::error::BoxError;
use crate::tool::StateContext;
use crate::tool::run::erased::AnyState;
use crate::tool::run::service as steps;
use crate::tool::server::ToolServer;
use crate::tool::spec::{Mount, ServerSpec};

type RmcpHandler = Arc<dyn DynService<RoleServer>>;
type MakeHandler =
    Arc<dyn Fn(StateContext) -> BoxFuture<'static, Result<RmcpHandler, BoxError>> + Send + Sync>;

/// Makes a tool server from an `rmcp` handler: a `ServerHandler`, one of `rmcp`'s routers, or any other
/// `Service<RoleServer>`. The factory makes the handler at each start of the server, on a task of its own; its panic is
/// a failed start. See the [module](self) for an example.
///
/// The handler defines the tools and the answer to `initialize`: a session refuses a mounted server with tools of its
/// own ([`ToolServer::tool`]). Everything else of a [`ToolServer`] works as usual, except that a
/// [`tool_policy`](ToolServer::tool_policy) may name any tool.
pub fn mount<H, F>(name: impl Into<String>, factory: F) -> ToolServer
where
    H: Service<RoleServer>,
    F: Fn() -> H + Send + Sync + 'static,
{
    mounted(name.into(), move |_| std::future::ready(Ok(Arc::new(factory()) as RmcpHandler)).boxed())
}

/// [`mount`] with an async factory that may fail, and that knows the session: the [`StateContext`] has the session's data
/// and id, and why the handler is made.
///
/// ```
/// # use rmcp::model::*;
/// # struct Tenant(&'static str);
/// # struct Db(tokio::net::TcpStream);
/// # impl rmcp::ServerHandler for Db {
/// #     fn get_info(&self) -> ServerConfig { ServerConfig::default() }
/// # }
/// let db = greenroom::rmcp::mount_with("db", |cx| async move {
///     let address = cx.data::<Tenant>()?.0;
///     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(Db(tokio::net::TcpStream::connect(address).await?))
/// });
/// # let _ = db;
/// ```
pub fn mount_with<H, F, Fut, E>(name: impl Into<String>, factory: F) -> ToolServer
where
    H: Service<RoleServer>,
    F: Fn(StateContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<H, E>> + Send + 'static,
    E: Into<BoxError>,
{
    mounted(name.into(), move |cx| {
        let made = factory(cx);
        async move { made.await.map(|handler| Arc::new(handler) as RmcpHandler).map_err(Into::into) }.boxed()
    })
}

fn mounted(
    name: String,
    factory: impl Fn(StateContext) -> BoxFuture<'static, Result<RmcpHandler, BoxError>> + Send + Sync + 'static,
) -> ToolServer {
    let factory = DropElsewhere::new(factory);
    let mount = RmcpMount { factory: Arc::new(move |cx| factory(cx)), meeting: Arc::default() };
    ToolServer::mounted(name, mount)
}

/// The factory of one server's handler in one session, and what outlives a handler.
struct RmcpMount {
    factory: MakeHandler,
    meeting: Arc<Meeting>,
}

/// The state that a handler passes on to the next one.
#[derive(Default)]
struct Meeting {
    /// The newest `initialize`.
    initialize: Mutex<Option<InitializeRequestParams>>,
    /// Takes notifications for the current handler.
    door: Mutex<Option<Door>>,
}

/// Sends into the service loop of a handler. Unbounded here: the loop takes notifications at once, and each request of the
/// handler has one answer.
type Door = mpsc::WeakUnboundedSender<ClientJsonRpcMessage>;

impl Mount for RmcpMount {
    fn service(&self, spec: &Arc<ServerSpec>) -> Box<dyn steps::Service> {
        Box::new(dispatch::MountedSession::new(spec.registry.look(), self.meeting.clone()))
    }

    fn make(
        &self,
        spec: Arc<ServerSpec>,
        cx: StateContext,
    ) -> BoxFuture<'static, Result<AnyState, BoxError>> {
        let (factory, meeting) = (self.factory.clone(), self.meeting.clone());
        Box::pin(async move {
            let handler = factory(cx).await?;
            Ok(Arc::new(instance::Mounted::start(handler, spec, meeting).await) as AnyState)
        })
    }

    fn for_another_session(&self) -> Box<dyn Mount> {
        Box::new(Self { factory: self.factory.clone(), meeting: Arc::default() })
    }
}
