//! Define a session.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde_json::Value;

use super::handle::Session;
use super::messages::{Messages, Own};
use crate::actor::context::Feeds;
use crate::actor::mirror::SharedStore;
use crate::actor::supervisor::killing::KillSwitch;
use crate::actor::turn::cli_turns::CliTurns;
use crate::blocking::caught::DropElsewhere;
use crate::control::{
    CallbackContext, CallbackHandlers, DialogAnswer, DialogRequest, Hook, IntoReply, erase,
};
use crate::guardian::Watchdog;
use crate::identity::SessionData;
use crate::options::{ExternalServer, OutputFormat, SystemPrompt, Thinking};
use crate::report::{DeferredCall, Events};
use crate::store::SessionStore;
use crate::tool::{CompleteServer, spec::ServerSpec};
use crate::transport::{StderrSink, Transport};
use crate::{Options, PermissionMode};

/// Defines a session: its [`Options`], its tool servers and its handlers.
///
/// Frequent options have a method here. Every other option is a field of [`Options`]: set all of them with
/// [`options`](SessionBuilder::options), or change some with [`configure`](SessionBuilder::configure).
///
/// ```no_run
/// use std::time::Duration;
/// use greenroom::{NoArgs, Session, ToolServer};
///
/// # async fn example() -> greenroom::Result<()> {
/// let clock = ToolServer::new("clock", "1.0.0").tool("now", "The time", async |_: NoArgs| "noon");
/// let session = Session::builder()
///     .model("haiku")
///     .mcp_server(clock)
///     .allow_server_tools("clock")
///     .configure(|options| options.timeouts.tool = Some(Duration::from_secs(30)))
///     .start()
///     .await?;
/// # session.stop().await
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use = "a session begins with `start`"]
pub struct SessionBuilder {
    /// Boxed, because futures hold the builder.
    pub(super) options: Box<Options>,
    pub(super) servers: Vec<Arc<ServerSpec>>,
    pub(super) allowed_servers: Vec<String>,
    pub(super) handlers: CallbackHandlers,
    pub(super) transport: Option<Arc<dyn Transport>>,
    pub(super) stderr: Option<StderrSink>,
    pub(super) watchdog: Option<Watchdog>,
    pub(super) store: Option<SharedStore>,
    pub(super) data: SessionData,
    pub(super) resumed_call: Option<DeferredCall>,
    /// Opened by a subscription before the start.
    pub(super) feeds: Own<Feeds>,
    pub(super) kill_switch: Own<KillSwitch>,
}

impl Session {
    /// Begins to define a session.
    pub fn builder() -> SessionBuilder {
        SessionBuilder::default()
    }
}

impl SessionBuilder {
    /// Sets all options, and drops options set before. Servers and handlers stay.
    pub fn options(mut self, options: Options) -> Self {
        *self.options = options;
        self
    }

    /// Changes options.
    pub fn configure(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }

    /// Adds an in-process tool server.
    pub fn mcp_server(mut self, server: impl CompleteServer) -> Self {
        self.servers.push(Arc::new(server.complete().spec().clone()));
        self
    }

    /// Adds an MCP server that the CLI connects to.
    pub fn external_mcp_server(mut self, name: impl Into<String>, server: ExternalServer) -> Self {
        self.options.mcp_servers.insert(name.into(), server);
        self
    }

    /// Lets tool calls that match a rule, such as `Bash(ls:*)`, run without asking.
    pub fn allow_tool(mut self, rule: impl Into<String>) -> Self {
        self.options.allowed_tools.push(rule.into());
        self
    }

    /// Subscribes to the supervision events of the session that this builder starts. Unlike [`Session::events`], the
    /// subscription sees the start of the first CLI, which is over when [`start`](SessionBuilder::start) returns. Set
    /// `events_kept` and `kept_bytes` of [`Limits`](crate::options::Limits) before. A clone of the builder has events of its own.
    ///
    /// ```no_run
    /// # async fn example() -> greenroom::Result<()> {
    /// let mut builder = greenroom::Session::builder();
    /// let mut events = builder.events();
    /// let session = builder.start().await?;
    /// // `CliStarted`, with the process id.
    /// println!("{:?}", events.next().await);
    /// # session.stop().await }
    /// ```
    pub fn events(&mut self) -> Events {
        self.feeds().subscribe()
    }

    /// Subscribes to all messages of the session that this builder starts, including messages that the CLI writes while
    /// it starts. Set [`Limits::messages_kept`](crate::options::Limits::messages_kept) and
    /// [`Limits::kept_bytes`](crate::options::Limits::kept_bytes) before; they bound the messages that wait for you. A
    /// clone of the builder has messages of its own.
    ///
    /// ```no_run
    /// # async fn example() -> greenroom::Result<()> {
    /// let mut builder = greenroom::Session::builder();
    /// let mut messages = builder.messages();
    /// let session = builder.start().await?;
    /// // A hook that runs at the start of a session, for example.
    /// println!("{:?}", messages.next().await);
    /// # session.stop().await }
    /// ```
    pub fn messages(&mut self) -> Messages {
        let (listener, gone) = self.feeds().listen();
        Messages::of(listener, gone)
    }

    /// Opens the turns that the CLI of the session begins by itself, from its start on: see [`CliTurns`]. A clone of the builder has
    /// turns of its own.
    pub fn cli_turns(&mut self) -> CliTurns {
        self.feeds().cli_turns()
    }

    fn feeds(&mut self) -> &mut Feeds {
        let limits = &self.options.limits;
        self.feeds.0.get_or_insert_with(|| Feeds::new(limits))
    }

    /// Adds a hook. The CLI runs all hooks that match an event, at the same time.
    pub fn hook(mut self, hook: Hook) -> Self {
        self.handlers.hooks.push(hook);
        self
    }

    /// Answers dialogs of the CLI of these kinds. The CLI is told the kinds and asks for no other; another dialog that
    /// it asks for anyway is left to the CLI. A handler that fails closes the dialog.
    pub fn on_dialog<K: Into<String>, Fut>(
        mut self,
        kinds: impl IntoIterator<Item = K>,
        handler: impl Fn(DialogRequest, CallbackContext) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        Fut: Future<Output: IntoReply<DialogAnswer>> + Send + 'static,
    {
        self.handlers.dialog = Some(erase(handler));
        self.handlers.dialog_kinds = kinds.into_iter().map(Into::into).collect();
        self
    }

    /// Takes each line of the CLI's stderr. Must not block: it is called on the task that reads stderr.
    pub fn on_stderr(mut self, take: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let take = DropElsewhere::new(take);
        self.stderr = Some(Arc::new(move |line| take(line)));
        self
    }

    /// Gives the session a value of the application, such as its user or its tenant, so that definitions of tools and
    /// handlers can be shared by many sessions. Tools, resources, hooks, permission handlers and
    /// factories of states find it by its type, with `cx.data::<T>()`.
    ///
    /// A second value of the same type replaces the first: give each kind of data a type of its own. The value is
    /// shared, not cloned, also by the clones of a builder. It is dropped when the session has ended and nobody holds
    /// the builder, a `Session` or a context any more.
    ///
    /// ```
    /// use greenroom::{NoArgs, Session, ToolContext, ToolServer};
    ///
    /// struct User { name: String }
    ///
    /// let account = ToolServer::new("account", "1.0.0")
    ///     .tool("whoami", "Who is asking", async |_: NoArgs, cx: ToolContext| {
    ///         Ok::<_, greenroom::Error>(cx.data::<User>()?.name.clone())
    ///     });
    /// let everybody = Session::builder().mcp_server(account).allow_server_tools("account");
    /// let ada = everybody.clone().data(User { name: "ada".into() });
    /// let bob = everybody.data(User { name: "bob".into() });
    /// # let _ = (ada, bob);
    /// ```
    pub fn data<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.data.insert(value);
        self
    }

    /// Ends the session's CLI when the deadline of a watchdog passes. Until the deadline is extended, no CLI starts, and requests
    /// that the CLI has left behind are refused: no tool, hook or permission handler begins. Without the call there is no deadline.
    ///
    /// No CLI starts either if the guardian does not run, or if it could not find what the CLI starts: with
    /// [`Containment::Group`](crate::options::Containment::Group), or where [`Containment::Auto`](crate::options::Containment::Auto)
    /// has no other way.
    ///
    /// Only [`ChildProcess`](crate::transport::ChildProcess) knows watchdogs. A transport of your own finds it in
    /// [`Command::watchdog`](crate::transport::Command::watchdog).
    pub fn watchdog(mut self, watchdog: &Watchdog) -> Self {
        self.watchdog = Some(watchdog.clone());
        self
    }

    /// Sets the transport to the CLI. Default: [`ChildProcess`](crate::transport::ChildProcess).
    pub fn transport(mut self, transport: impl Transport) -> Self {
        self.transport = Some(Arc::new(DropElsewhere::new(transport)));
        self
    }

    /// Sets the path of the `claude` executable. Default: looked up.
    pub fn cli_path(self, path: impl Into<PathBuf>) -> Self {
        self.configure(|options| options.cli_path = Some(path.into()))
    }

    /// Sets the CLI's working directory. Default: the host's.
    pub fn cwd(self, path: impl Into<PathBuf>) -> Self {
        self.configure(|options| options.cwd = Some(path.into()))
    }

    /// Sets an environment variable of the CLI.
    pub fn env(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.configure(|options| drop(options.env.insert(name.into(), value.into())))
    }

    /// Sets environment variables of the CLI.
    pub fn envs(self, variables: BTreeMap<String, String>) -> Self {
        self.configure(|options| options.env.extend(variables))
    }

    /// Sets the model, by name or alias.
    pub fn model(self, model: impl Into<String>) -> Self {
        self.configure(|options| options.model = Some(model.into()))
    }

    /// Sets the system prompt. Default: empty.
    pub fn system_prompt(self, prompt: SystemPrompt) -> Self {
        self.configure(|options| options.system_prompt = prompt)
    }

    /// Sets how the CLI decides on tool calls that no rule allows.
    pub fn permission_mode(self, mode: PermissionMode) -> Self {
        self.configure(|options| options.permission_mode = Some(mode))
    }

    /// Sets the conversation by an id of your choice, a UUID: resumes it if it exists, else starts it. See
    /// [`conversation_id`](crate::conversation_id) and [`Options::conversation`].
    pub fn conversation(self, id: impl Into<String>) -> Self {
        self.configure(|options| options.conversation = Some(id.into()))
    }

    /// Resumes a conversation by its session id.
    pub fn resume(self, session_id: impl Into<String>) -> Self {
        self.configure(|options| options.resume = Some(session_id.into()))
    }

    /// Has the model give the result of each turn as a `T`, which [`Turn::structured`](crate::Turn::structured) reads.
    pub fn output_format<T: JsonSchema>(self) -> Self {
        self.configure(|options| options.output_format = Some(OutputFormat::of::<T>()))
    }

    /// Sets whether and how much the model thinks before it answers.
    pub fn thinking(self, thinking: Thinking) -> Self {
        self.configure(|options| options.thinking = Some(thinking))
    }

    /// Sets the CLI's settings for this session: a JSON object, or the path of a file.
    pub fn settings(self, settings: impl Into<Value>) -> Self {
        self.configure(|options| options.settings = Some(settings.into()))
    }

    /// Mirrors the session to a store, and resumes or continues from the store: see [`greenroom::store`](crate::store)
    /// and [`Options::store`](crate::Options::store).
    ///
    /// With [`resume`](SessionBuilder::resume) or [`continue_conversation`](crate::Options::continue_conversation) the
    /// session is loaded from the store; a session on this machine's disk does not count. A loaded session runs in a
    /// configuration folder of its own, with a copy of the user's settings and login (which cannot renew itself) and
    /// without plugins. The folder is removed with the session, but not by a host that is killed. On macOS the login in
    /// the keychain is not copied: give the CLI `CLAUDE_CODE_OAUTH_TOKEN` or a key.
    ///
    /// Excludes `persist_session: Some(false)`, because the CLI mirrors its own transcript, and
    /// `enable_file_checkpointing`, because file checkpoints stay on this machine.
    pub fn session_store(mut self, store: Arc<dyn SessionStore>) -> Self {
        self.store = Some(Arc::new(DropElsewhere::new(store)));
        self
    }
}

impl From<Options> for SessionBuilder {
    fn from(options: Options) -> Self {
        Self::default().options(options)
    }
}

impl fmt::Debug for SessionBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<_> = self.servers.iter().map(|server| &server.name).collect();
        f.debug_struct("SessionBuilder").field("servers", &servers).finish_non_exhaustive()
    }
}
