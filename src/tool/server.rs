//! The definition of an in-process MCP server.

use std::any::{TypeId, type_name};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use tokio::sync::OnceCell;

use super::about::Icon;
use super::def::{AnyState, Tool, ToolDef};
use super::dispatch::{McpSession, Service};
use super::handler::ToolHandler;
use super::isolated::Isolated;
use super::policy::Policies;
use super::prompt::PromptDef;
use super::registry::{Lists, Registry};
use super::resource::{ResourceDef, ResourceTemplateDef};
use crate::error::{Error, Result};
use crate::options::Limits;
use crate::wire::rpc::PROTOCOL_VERSIONS;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Make = Arc<dyn Fn() -> BoxFuture<'static, Result<AnyState, BoxError>> + Send + Sync>;

/// How a state is made, and of which type it is.
#[derive(Clone)]
struct Factory {
    state: TypeId,
    make: Make,
}

/// An in-process MCP server: a name, its tools, and how to make the state that their handlers share.
///
/// It is a definition, cheap to clone; one may serve many sessions at once, each with a state of its own.
///
/// `S` is the type of state that is still missing, as in a web framework's router: handlers that take a
/// `ToolContext<App>` make it a `ToolServer<App>`, and [`state`](ToolServer::state) makes that a `ToolServer`
/// that a session accepts. Forgetting it does not compile.
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
    state: PhantomData<fn(S)>,
}

/// A server, without the type of its state. In a session, what can be changed of it is changed in place: the lists of its
/// [`Registry`]. A clone is the same server for another session.
#[derive(Clone)]
pub(crate) struct ServerSpec {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) title: Option<String>,
    pub(crate) instructions: Option<String>,
    description: Option<String>,
    website_url: Option<String>,
    icons: Vec<Icon>,
    pub(crate) registry: Registry,
    pub(crate) page_size: Option<usize>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) significant: bool,
    pub(crate) policies: Policies,
    factories: Vec<Factory>,
    /// What serves in place of the tools, if something else does.
    #[cfg(feature = "rmcp")]
    mount: Option<crate::rmcp::Mount>,
}

impl<S> Clone for ToolServer<S> {
    /// The clone is the same definition; what [`call`](ToolServer::call) and [`handle`](ToolServer::handle) have
    /// made of it is not shared.
    fn clone(&self) -> Self {
        Self::with(self.spec.clone())
    }
}

impl<S: Send + Sync + 'static> ToolServer<S> {
    /// A server without tools. The name is what the model's names for its tools are made of: `mcp__NAME__TOOL`.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self::with(ServerSpec {
            name: name.into(),
            version: version.into(),
            title: None,
            instructions: None,
            description: None,
            website_url: None,
            icons: Vec::new(),
            registry: Registry::default(),
            page_size: None,
            timeout: None,
            significant: false,
            policies: Policies::default(),
            factories: Vec::new(),
            #[cfg(feature = "rmcp")]
            mount: None,
        })
    }

    /// With a tool that is a closure or a function.
    pub fn tool<M>(
        self,
        name: impl Into<String>,
        description: impl Into<String>,
        handler: impl ToolHandler<S, M>,
    ) -> Self {
        self.add(ToolDef::new(name, description, handler))
    }

    /// With a tool that is defined in full.
    #[allow(clippy::should_implement_trait, reason = "a builder's word, with another type on the right")]
    pub fn add(mut self, tool: ToolDef<S>) -> Self {
        self.spec.registry.get_mut().tools.push(Arc::new(tool.inner), None);
        self
    }

    /// With a resource.
    pub fn resource(mut self, resource: ResourceDef<S>) -> Self {
        self.spec.registry.get_mut().resources.push(Arc::new(resource.inner), None);
        self
    }

    /// With resources under a template of URIs.
    pub fn resource_template(mut self, template: ResourceTemplateDef<S>) -> Self {
        self.spec.registry.get_mut().templates.push(Arc::new(template.inner), None);
        self
    }

    /// With a prompt.
    pub fn prompt(mut self, prompt: PromptDef<S>) -> Self {
        self.spec.registry.get_mut().prompts.push(Arc::new(prompt.inner), None);
        self
    }

    /// With a tool that is a type.
    pub fn add_tool(self, tool: impl Tool<S>) -> Self {
        self.add(ToolDef::from_type(tool))
    }

    /// How to make the state of all tools, resources and prompts so far. Called when the server starts, and again at each restart, on a
    /// task of its own; a factory that panics is a failed start.
    pub fn state<N: Send + Sync + 'static>(
        self,
        factory: impl Fn() -> S + Send + Sync + 'static,
    ) -> ToolServer<N> {
        self.bind(Arc::new(move || {
            let state: AnyState = Arc::new(factory());
            std::future::ready(Ok(state)).boxed()
        }))
    }

    /// The same with a factory that may wait and may fail.
    ///
    /// ```
    /// use greenroom::{NoArgs, ToolContext, ToolServer};
    ///
    /// struct Db(tokio::net::TcpStream);
    ///
    /// let server: ToolServer = ToolServer::new("db", "1.0.0")
    ///     .tool("peer", "Where the database is", |_: NoArgs, cx: ToolContext<Db>| async move {
    ///         cx.state().0.peer_addr().map(|address| address.to_string())
    ///     })
    ///     .async_state(|| async { tokio::net::TcpStream::connect("127.0.0.1:5432").await.map(Db) });
    /// # let _ = server;
    /// ```
    pub fn async_state<N, F, Fut, E>(self, factory: F) -> ToolServer<N>
    where
        N: Send + Sync + 'static,
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<S, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        self.bind(Arc::new(move || {
            let made = factory();
            async move { made.await.map(|state| Arc::new(state) as AnyState).map_err(Into::into) }.boxed()
        }))
    }

    fn bind<N: Send + Sync + 'static>(mut self, make: Make) -> ToolServer<N> {
        let index = self.spec.factories.len();
        self.spec.factories.push(Factory { state: TypeId::of::<S>(), make });
        self.spec.registry.get_mut().bind(index);
        ToolServer::with(self.spec)
    }
}

impl<S> ToolServer<S> {
    fn with(spec: ServerSpec) -> Self {
        Self { spec, isolated: Arc::default(), state: PhantomData }
    }

    /// A name for people.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.spec.title = Some(title.into());
        self
    }

    /// What the model is told about the server as a whole.
    pub fn instructions(mut self, instructions: impl Into<String>) -> Self {
        self.spec.instructions = Some(instructions.into());
        self
    }

    /// What it is, for people.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.spec.description = Some(description.into());
        self
    }

    /// Its page on the web.
    pub fn website_url(mut self, url: impl Into<String>) -> Self {
        self.spec.website_url = Some(url.into());
        self
    }

    /// With one more picture.
    pub fn icon(mut self, icon: Icon) -> Self {
        self.spec.icons.push(icon);
        self
    }

    /// Announces resources to the CLI though there may be none yet, for those that are added at run time. A server that has
    /// some announces them by itself.
    pub fn dynamic_resources(mut self) -> Self {
        self.spec.registry.get_mut().resources_to_come = true;
        self
    }

    /// The same for prompts.
    pub fn dynamic_prompts(mut self) -> Self {
        self.spec.registry.get_mut().prompts_to_come = true;
        self
    }

    /// How many things are on one page of `tools/list`, and of the lists of resources, resource templates and prompts. At
    /// least 1. Default: all on one page, which is what the CLI is told beforehand. It asks for several pages itself.
    pub fn page_size(mut self, things: usize) -> Self {
        self.spec.page_size = Some(things);
        self
    }

    /// The CLI's own limit for a call of this server: a hard wall-clock limit after which the CLI stops waiting
    /// and cancels. It ignores values under 1 s. Default: the CLI's.
    pub fn cli_timeout(mut self, timeout: Duration) -> Self {
        self.spec.timeout = Some(timeout);
        self
    }

    /// Whether the session fails when this server is given up, instead of living on without it. Default: false.
    pub fn significant(mut self, significant: bool) -> Self {
        self.spec.significant = significant;
        self
    }

    /// The server's name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }
}

impl ToolServer {
    #[cfg(feature = "rmcp")]
    pub(crate) fn mounted(name: String, mount: crate::rmcp::Mount) -> Self {
        let mut server = Self::new(name, "");
        server.spec.mount = Some(mount);
        server
    }

    pub(crate) fn spec(&self) -> &ServerSpec {
        &self.spec
    }

    /// Calls a tool without a session, for unit tests. The state is made at the first call and kept by this value.
    /// A panic of the handler is caught and becomes an error result, as in a session.
    pub async fn call(&self, tool: &str, arguments: Value) -> crate::CallToolResult {
        self.isolated().await.call(tool, arguments).await
    }

    /// Drives the server's JSON-RPC dispatch without a session: one message in, its answer out; `None` for
    /// notifications and responses, which have none. The state is that of [`call`](ToolServer::call).
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
    pub async fn handle(&self, message: Value) -> Option<Value> {
        self.isolated().await.handle(message).await
    }

    async fn isolated(&self) -> &Isolated {
        self.isolated.get_or_init(|| Isolated::start(self.spec.clone())).await
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

impl fmt::Debug for ServerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSpec").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ServerSpec {
    /// Makes the states, one after another. A panic of a factory is an error.
    pub(crate) async fn make_states(self: &Arc<Self>) -> Result<Vec<AnyState>, String> {
        #[cfg(feature = "rmcp")]
        if let Some(mount) = &self.mount {
            return made(async move { mount.make(self).await }).await.map(|handler| vec![handler]);
        }
        let mut states = Vec::with_capacity(self.factories.len());
        for factory in &self.factories {
            let make = factory.make.clone();
            states.push(made(async move { make().await }).await?);
        }
        Ok(states)
    }

    /// Whether something else than its tools serves.
    pub(crate) fn is_mounted(&self) -> bool {
        #[cfg(feature = "rmcp")]
        return self.mount.is_some();
        #[cfg(not(feature = "rmcp"))]
        false
    }

    /// Which state a handler of this type of state is given, if it needs one.
    pub(crate) fn state_of<S: 'static>(&self) -> Result<Option<usize>> {
        let wanted = TypeId::of::<S>();
        match self.factories.iter().rposition(|factory| factory.state == wanted) {
            Some(index) => Ok(Some(index)),
            None if wanted == TypeId::of::<()>() => Ok(None),
            None => {
                let text = format!("server '{}' has no state of the type {}", self.name, type_name::<S>());
                Err(Error::invalid_option(text).with_help("give it one with `ToolServer::state`"))
            }
        }
    }

    /// What takes the messages of the CLI for it.
    pub(crate) fn service(self: &Arc<Self>, limits: &Limits) -> Box<dyn Service> {
        #[cfg(feature = "rmcp")]
        if let Some(mount) = &self.mount {
            return mount.service(self);
        }
        Box::new(McpSession::new(self.clone(), limits.subscriptions_per_server))
    }

    /// The result of MCP `initialize` for this version of the protocol.
    pub(crate) fn initialize_result(&self, lists: &Lists, version: &str) -> Value {
        let mut info = json!({ "name": self.name, "version": self.version });
        let texts =
            [("title", &self.title), ("description", &self.description), ("websiteUrl", &self.website_url)];
        for (field, text) in texts {
            if let Some(text) = text {
                info[field] = json!(text);
            }
        }
        if !self.icons.is_empty() {
            info["icons"] = json!(self.icons);
        }
        let mut result = json!({
            "protocolVersion": version,
            "capabilities": lists.capabilities(),
            "serverInfo": info,
        });
        if let Some(instructions) = &self.instructions {
            result["instructions"] = json!(instructions);
        }
        result
    }

    /// What the CLI is told beforehand, so that it need not ask before the first turn. A list of several pages is left
    /// out; it has to ask for that. `None` for a server that knows only when it is asked.
    pub(crate) fn manifest(&self) -> Option<Value> {
        if self.is_mounted() {
            return None;
        }
        let lists = self.registry.snapshot();
        self.registry.announce(&lists);
        let mut manifest =
            json!({ "initializeResult": self.initialize_result(&lists, PROTOCOL_VERSIONS[0]) });
        if let Ok(list) = lists.tools.page(None, self.page_size)
            && list.get("nextCursor").is_none()
        {
            manifest["toolsListResult"] = list;
        }
        Some(manifest)
    }

    /// The server's settings in `initialize.sdkMcpServerConfigs`.
    pub(crate) fn settings(&self) -> Map<String, Value> {
        let mut settings = Map::new();
        if let Some(timeout) = self.timeout {
            settings.insert("timeout".into(), json!(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)));
        }
        if let Some(policies) = self.policies.to_wire() {
            settings.insert("tools".into(), policies);
        }
        settings
    }

    /// An error if something was added to what is mounted, for nobody would serve it.
    fn mounted_offers_nothing_else(&self, lists: &Lists) -> Result<()> {
        if lists.is_empty() {
            return Ok(());
        }
        self.must_not_be_mounted()
    }

    /// An error if something else than its lists serves.
    pub(crate) fn must_not_be_mounted(&self) -> Result<()> {
        if !self.is_mounted() {
            return Ok(());
        }
        let text = format!("server '{}' is a mounted one, and offers what its handler does", self.name);
        Err(Error::invalid_option(text)
            .with_help("put what it is to offer beside that into a server of its own"))
    }

    /// The prefix of its tools' names as the model sees them.
    pub(crate) fn prefix(name: &str) -> String {
        let safe: String =
            name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
        format!("mcp__{safe}__")
    }

    pub(crate) fn validate(&self) -> Result<()> {
        if self.name.trim().is_empty() {
            return Err(Error::invalid_option("a tool server has no name"));
        }
        if self.page_size == Some(0) {
            return Err(Error::invalid_option(format!(
                "server '{}': page_size must be at least 1",
                self.name
            )));
        }
        let lists = self.registry.snapshot();
        if self.is_mounted() {
            return self.mounted_offers_nothing_else(&lists);
        }
        self.policies.validate(&self.name, lists.tools.iter().map(|tool| tool.definition.name.as_str()))?;
        lists.validate(&self.name)
    }
}

/// What a factory makes. Its panic is an error.
async fn made(making: impl Future<Output = Result<AnyState, BoxError>>) -> Result<AnyState, String> {
    match std::panic::AssertUnwindSafe(making).catch_unwind().await {
        Ok(Ok(state)) => Ok(state),
        Ok(Err(error)) => Err(format!("its state could not be made: {error}")),
        Err(panic) => {
            let text = super::instance::panic_text(&*panic);
            Err(format!("the factory of its state panicked: {text}"))
        }
    }
}
