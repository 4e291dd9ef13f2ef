//! The definition of an in-process MCP server.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::define::def::ToolDef;
use super::define::handler::{ArgumentsSchema, IntoToolResult, ReadArguments, ToolHandler};
use super::define::resource::ResourceDef;
use super::define::template::ResourceTemplateDef;
use super::policy::{Policies, ToolPolicy};
use super::registry::Registry;
use super::run::erased::AnyState;
use super::run::isolated::Isolated;
use super::spec::ServerSpec;
use super::state::{StateContext, StateFactory};
use crate::error::{BoxError, Result};
use crate::identity::TestSession;

/// The definition of an in-process MCP server: a name, tools, and how to make the state that their handlers share.
///
/// A definition is cheap to clone, and may serve many sessions at once, each with a state of its own.
///
/// `S` is the type of the state that is still missing, as in the router of a web framework: handlers that take a
/// `ToolContext<App>` make a `ToolServer<App>`, and [`state`](ToolServer::state) turns that into a `ToolServer` that a
/// session accepts. A forgotten state does not compile.
///
/// ```
/// use greenroom::{NoArgs, ToolContext, ToolServer};
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// let server: ToolServer = ToolServer::new("counter", "1.0.0")
///     .tool("next", "The next number", |_: NoArgs, cx: ToolContext<AtomicU64>| async move {
///         cx.state().fetch_add(1, Ordering::Relaxed)
///     })
///     .state(|| AtomicU64::new(1));
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// assert_eq!(server.call("next", serde_json::json!({})).await.text(), "1");
/// assert_eq!(server.call("next", serde_json::json!({})).await.text(), "2");
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct ToolServer<S = ()> {
    pub(super) spec: ServerSpec,
    isolated: Arc<OnceCell<Isolated>>,
    test_session: TestSession,
    state: PhantomData<fn(S)>,
}

/// A [`ToolServer<S>`](crate::ToolServer) that has its state, or needs none: its `S` is `()`. Sessions take no other
/// server. You need not implement this trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no state yet, but its tools take a `ToolContext` with this state",
    label = "the state of this server is missing",
    note = "after the tools that use the state, write `.state(|| ...)` with a closure that makes it, or \
            `.state_with(|cx| async {{ ... }})`",
    note = "a tool that uses no state takes no `ToolContext`, or a `ToolContext<()>`"
)]
pub trait CompleteServer {
    #[doc(hidden)]
    fn complete(self) -> ToolServer;
}

impl CompleteServer for ToolServer {
    fn complete(self) -> ToolServer {
        self
    }
}

impl<S> Clone for ToolServer<S> {
    /// Clones the definition; the state that [`call`](ToolServer::call) and [`handle`](ToolServer::handle) use is not
    /// shared.
    fn clone(&self) -> Self {
        Self::with(self.spec.clone(), self.test_session.clone())
    }
}

impl<S: Send + Sync + 'static> ToolServer<S> {
    /// A server without tools. The model sees its tools as `mcp__NAME__TOOL`.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        let spec = ServerSpec {
            name: name.into(),
            version: version.into(),
            instructions: None,
            registry: Registry::default(),
            timeout: None,
            significant: false,
            policies: Policies::default(),
            factories: Vec::new(),
            mount: None,
        };
        Self::with(spec, TestSession::new())
    }

    /// Adds a tool from an async closure or function.
    pub fn tool<M, H>(self, name: impl Into<String>, description: impl Into<String>, handler: H) -> Self
    where
        H: ToolHandler<S, M> + Send + Sync + 'static,
        H::Args: ArgumentsSchema + ReadArguments + Send + 'static,
        H::Future: Future<Output: IntoToolResult> + Send + 'static,
    {
        self.add_tool(ToolDef::new(name, description, handler))
    }

    /// Adds a tool.
    pub fn add_tool(mut self, tool: ToolDef<S>) -> Self {
        self.spec.registry.get_mut().tools.push(Arc::new(tool.inner), None);
        self
    }

    /// Adds a resource.
    pub fn resource(mut self, resource: ResourceDef<S>) -> Self {
        self.spec.registry.get_mut().resources.push(Arc::new(resource.inner), None);
        self
    }

    /// Adds all resources whose URI matches a template.
    pub fn resource_template(mut self, template: ResourceTemplateDef<S>) -> Self {
        self.spec.registry.get_mut().templates.push(Arc::new(template.inner), None);
        self
    }

    /// Sets how to make the state of all tools and resources added so far. The factory runs at each start of
    /// the server, in each session, on a task of its own; its panic is a failed start. A factory that waits, may fail or
    /// has to know the session goes to [`state_with`](ToolServer::state_with).
    pub fn state<N: Send + Sync + 'static>(
        self,
        factory: impl Fn() -> S + Send + Sync + 'static,
    ) -> ToolServer<N> {
        self.bind(StateFactory::new::<S>(move |_| {
            let state: AnyState = Arc::new(factory());
            std::future::ready(Ok(state)).boxed()
        }))
    }

    /// [`state`](ToolServer::state) with an async factory that may fail, and that knows the session: the
    /// [`StateContext`] has the session's data and id, and why the state is made.
    ///
    /// ```
    /// use greenroom::{NoArgs, Session, ToolContext, ToolServer};
    ///
    /// /// One for each session.
    /// struct Tenant(&'static str);
    ///
    /// struct Db(tokio::net::TcpStream);
    ///
    /// let server: ToolServer = ToolServer::new("db", "1.0.0")
    ///     .tool("peer", "Where the database is", |_: NoArgs, cx: ToolContext<Db>| async move {
    ///         cx.state().0.peer_addr().map(|address| address.to_string())
    ///     })
    ///     .state_with(|cx| async move {
    ///         let address = cx.data::<Tenant>()?.0;
    ///         Ok::<_, Box<dyn std::error::Error + Send + Sync>>(Db(tokio::net::TcpStream::connect(address).await?))
    ///     });
    ///
    /// let north = Session::builder().mcp_server(server.clone()).data(Tenant("north.example.com:5432"));
    /// let south = Session::builder().mcp_server(server).data(Tenant("south.example.com:5432"));
    /// # let _ = (north, south);
    /// ```
    pub fn state_with<N, F, Fut, E>(self, factory: F) -> ToolServer<N>
    where
        N: Send + Sync + 'static,
        F: Fn(StateContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<S, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        self.bind(StateFactory::new::<S>(move |cx| {
            let made = factory(cx);
            async move { made.await.map(|state| Arc::new(state) as AnyState).map_err(Into::into) }.boxed()
        }))
    }

    fn bind<N: Send + Sync + 'static>(mut self, factory: StateFactory) -> ToolServer<N> {
        let index = self.spec.factories.len();
        self.spec.factories.push(factory);
        self.spec.registry.get_mut().bind(index);
        ToolServer::with(self.spec, self.test_session)
    }
}

impl<S> ToolServer<S> {
    fn with(spec: ServerSpec, test_session: TestSession) -> Self {
        Self { spec, isolated: Arc::default(), test_session, state: PhantomData }
    }

    /// Sets a text about the whole server that the model reads.
    pub fn instructions(mut self, instructions: impl Into<String>) -> Self {
        self.spec.instructions = Some(instructions.into());
        self
    }

    /// Announces resources even if the server has none yet, for resources added at run time. A server with resources
    /// announces them anyway.
    pub fn dynamic_resources(mut self) -> Self {
        self.spec.registry.get_mut().resources_to_come = true;
        self
    }

    /// Sets the CLI's own limit for a call of this server, after which it cancels the call. The CLI ignores values
    /// under 1 s. Default: the CLI's.
    pub fn cli_timeout(mut self, timeout: Duration) -> Self {
        self.spec.timeout = Some(timeout);
        self
    }

    /// Whether the session depends on this server. If so, [`SessionBuilder::start`](crate::SessionBuilder::start) waits
    /// for the server's state, and fails at once if the state cannot be made; and when the server fails for good later,
    /// the session fails with it. Default: false.
    pub fn significant(mut self, significant: bool) -> Self {
        self.spec.significant = significant;
        self
    }

    /// Whether the model sees all tools of the server from the start (`anthropic/alwaysLoad`), also tools added later,
    /// unless a tool [sets it itself](crate::ToolDef::always_load). Otherwise the CLI defers the tools: the model sees
    /// only their names until it looks them up with the CLI's tool search, and the CLI adds advice about the search to
    /// the errors of a tool that was not looked up (seen with CLI 2.1.330). A mounted server lists its tools itself.
    pub fn always_load(mut self, always: bool) -> Self {
        self.spec.registry.get_mut().tools.meta.insert("anthropic/alwaysLoad".into(), always.into());
        self
    }

    /// Sets what the CLI does before it calls the tool with this name (without the prefix). The last policy of a tool
    /// counts. The CLI enforces it: it is told at its start and with every change of the session's servers. A policy
    /// for a tool that the server does not have fails `start()`.
    pub fn tool_policy(mut self, tool: impl Into<String>, policy: ToolPolicy) -> Self {
        self.spec.policies.set(tool.into(), policy);
        self
    }

    /// Sets the session that [`call`](ToolServer::call) and [`handle`](ToolServer::handle) pretend to run in: its data
    /// and its id. Default: no data, and no id yet. Sessions take no notice of it.
    pub fn test_session(self, session: TestSession) -> Self {
        Self::with(self.spec, session)
    }

    /// The server's name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    pub(crate) fn spec(&self) -> &ServerSpec {
        &self.spec
    }

    /// Calls a tool without a session, for unit tests, and returns what the model would read. The state is made at the
    /// first call and kept in this value.
    ///
    /// As in a session, arguments that do not fit, an `Err`, a panic, an unknown tool and an exceeded
    /// [`timeout`](crate::ToolDef::timeout) become error results; `max_concurrency` counts, blocking handlers run on
    /// the blocking pool, and [`ToolContext::deadline`](crate::ToolContext::deadline) is set. The differences:
    ///
    /// | | in a session | here |
    /// |---|---|---|
    /// | default limit | [`Timeouts::tool`](crate::options::Timeouts::tool) | none; only the tool's own timeout counts |
    /// | exceeded limit | answered at once; the handler has `cancel_grace` to return | answered after the grace of 5 s: nothing of an async handler is left |
    /// | task of the handler | one of the session | the caller's |
    /// | cancelled by the CLI | the handler has its grace time | `notifications/cancelled` is ignored; drop the future: its token is cancelled, and the handler is dropped at once |
    /// | panics | restart the server if there are too many | never restart it |
    /// | failed state factory | tried again; bounded by `server_restart` | every call fails with its error; no bound |
    /// | permissions, hooks, size limits | enforced by the CLI | none |
    /// | progress, logs | sent | dropped |
    /// | events, `tool_call` span | emitted | none |
    ///
    /// ```
    /// use std::time::Duration;
    /// use greenroom::{NoArgs, ToolDef, ToolServer};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
    /// let slow = ToolDef::new("slow", "Hangs", async |_: NoArgs| std::future::pending::<()>().await);
    /// let server: ToolServer = ToolServer::new("x", "1.0.0").add_tool(slow.timeout(Duration::from_secs(30)));
    /// let result = server.call("slow", serde_json::json!({})).await;
    /// assert_eq!(result.text(), "tool 'slow' did not finish within its limit of 30s");
    /// # });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Panics
    /// Outside a tokio runtime if a state, a blocking tool or a timeout needs the runtime. A timeout needs a runtime with
    /// timers (`enable_time`).
    pub async fn call(&self, tool: &str, arguments: Value) -> crate::tool::CallToolResult
    where
        Self: CompleteServer,
    {
        let arrived = Instant::now();
        self.isolated().await.call(tool, arguments, arrived).await
    }

    /// Answers a JSON-RPC message without a session; `None` for notifications and responses, which have no answer. Uses
    /// the state of [`call`](ToolServer::call), with the same differences from a session and the same panics.
    ///
    /// ```
    /// use greenroom::ToolServer;
    /// use serde_json::json;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let server = ToolServer::new("empty", "1.0.0");
    /// let answer = server.handle(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})).await;
    /// assert_eq!(answer, Some(json!({"jsonrpc": "2.0", "id": 1, "result": {"tools": []}})));
    /// # });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn handle(&self, message: Value) -> Option<Value>
    where
        Self: CompleteServer,
    {
        let arrived = Instant::now();
        self.isolated().await.handle(message, arrived).await
    }

    async fn isolated(&self) -> &Isolated {
        self.isolated.get_or_init(|| Isolated::start(self.spec.clone(), self.test_session.clone())).await
    }
}

impl ToolServer {
    #[cfg(feature = "rmcp")]
    pub(crate) fn mounted(name: String, mount: impl super::spec::Mount + 'static) -> Self {
        let mut server = Self::new(name, "");
        server.spec.mount = Some(Box::new(mount));
        server
    }
}

impl<S> fmt::Debug for ToolServer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = self.spec.registry.snapshot();
        let tools: Vec<_> = lists.tools.iter().map(|tool| &tool.definition.name).collect();
        f.debug_struct("ToolServer")
            .field("name", &self.spec.name)
            .field("tools", &tools)
            .finish_non_exhaustive()
    }
}
