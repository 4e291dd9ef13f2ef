//! What a session is made from.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ractor::{Actor, ActorCell};
use schemars::JsonSchema;
use serde_json::Value;

use super::Session;
use crate::actor::mirror::Mirror;
use crate::actor::resume;
use crate::actor::roster::refuse_clash;
use crate::actor::shared::{SessionSpec, Shared, Telling};
use crate::actor::supervisor::SessionSupervisor;
use crate::control::permission::{Answers, Question};
use crate::control::{
    CallbackContext, DialogAnswer, DialogRequest, ElicitationAnswer, ElicitationRequest, Handlers, Hook,
    IntoReply, PermissionDecision, PermissionRequest, erase,
};
use crate::error::{Error, ErrorKind, Result};
use crate::options::{
    AgentDefinition, Effort, ExternalServer, Options, OutputFormat, PermissionMode, Plugin, Sandbox, Skills,
    SystemPrompt, Thinking,
};
use crate::report::Events;
use crate::sessions::{config_dir, variable};
use crate::store::SessionStore;
use crate::tool::ToolServer;
use crate::tool::server::ServerSpec;
use crate::transport::{ChildProcess, StderrSink, Transport};

/// Defines a session: its [`Options`], its tool servers, its handlers.
///
/// The methods here are those that are needed often; everything else is a field of [`Options`], given whole with
/// [`options`](SessionBuilder::options) or changed in place with [`configure`](SessionBuilder::configure).
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
pub struct SessionBuilder {
    /// In a box, for a builder travels through futures, which are as large as what they hold.
    options: Box<Options>,
    servers: Vec<Arc<ServerSpec>>,
    allowed_servers: Vec<String>,
    handlers: Handlers,
    transport: Option<Arc<dyn Transport>>,
    stderr: Option<StderrSink>,
    store: Option<Arc<dyn SessionStore>>,
    telling: EarlyTelling,
}

/// The channel for events of one session, made before it starts. A clone of a builder is another session's.
#[derive(Default)]
struct EarlyTelling(Option<Telling>);

impl Clone for EarlyTelling {
    fn clone(&self) -> Self {
        Self(None)
    }
}

impl SessionBuilder {
    /// All options at once. Those that were set before are gone; servers and handlers stay.
    pub fn options(mut self, options: Options) -> Self {
        *self.options = options;
        self
    }

    /// Changes options in place.
    pub fn configure(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }

    /// With an in-process tool server.
    pub fn mcp_server(mut self, server: ToolServer) -> Self {
        self.servers.push(Arc::new(server.spec().clone()));
        self
    }

    /// With an MCP server that the CLI dials itself.
    pub fn external_mcp_server(mut self, name: impl Into<String>, server: ExternalServer) -> Self {
        self.options.mcp_servers.insert(name.into(), server);
        self
    }

    /// With a file that names further MCP servers, in the CLI's own format.
    pub fn mcp_config_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.mcp_config_files.push(path.into());
        self
    }

    /// Lets all tools of this server run without asking. Hooks still see their calls. It may be a server that only the CLI
    /// knows, of `.mcp.json`, settings or plugins; with [`Options::strict_mcp_config`] there are none of these, and an
    /// unknown name is refused by [`start`](SessionBuilder::start).
    pub fn allow_server_tools(mut self, server: impl Into<String>) -> Self {
        self.allowed_servers.push(server.into());
        self
    }

    /// Lets what this rule names run without asking, such as `Bash(ls:*)`.
    pub fn allow_tool(mut self, rule: impl Into<String>) -> Self {
        self.options.allowed_tools.push(rule.into());
        self
    }

    /// Keeps what this rule names from running.
    pub fn disallow_tool(mut self, rule: impl Into<String>) -> Self {
        self.options.disallowed_tools.push(rule.into());
        self
    }

    /// Decides on tools that no rule allows. Without a handler the CLI's permission mode decides, which denies
    /// where it would have asked. A handler that fails denies.
    ///
    /// ```
    /// use greenroom::{PermissionDecision, Session};
    ///
    /// let builder = Session::builder().can_use_tool(|request, _cx| async move {
    ///     if request.tool_name == "Read" { PermissionDecision::allow() } else { PermissionDecision::deny("read only") }
    /// });
    /// # let _ = builder;
    /// ```
    pub fn can_use_tool<Fut>(
        mut self,
        handler: impl Fn(PermissionRequest, CallbackContext) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        Fut: Future<Output: IntoReply<PermissionDecision>> + Send + 'static,
    {
        self.handlers.permission = Some(erase(handler));
        self
    }

    /// Answers what the model asks the person with its tool `AskUserQuestion`. Such a question does not reach the handler
    /// of [`can_use_tool`](SessionBuilder::can_use_tool); without that one, everything else that the CLI would ask is
    /// denied. A handler that fails denies the question, with the text of its error.
    ///
    /// ```
    /// use greenroom::{Session, permission::Answers};
    ///
    /// // Whatever is asked, the first choice will do.
    /// let builder = Session::builder().on_question(async |questions, _cx| {
    ///     questions.into_iter().fold(Answers::new(), |answers, question| {
    ///         match question.options.first() {
    ///             Some(first) => answers.answer(question.question, first.label.as_str()),
    ///             None => answers,
    ///         }
    ///     })
    /// });
    /// # let _ = builder;
    /// ```
    pub fn on_question<Fut>(
        mut self,
        handler: impl Fn(Vec<Question>, CallbackContext) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        Fut: Future<Output: IntoReply<Answers>> + Send + 'static,
    {
        self.handlers.question = Some(erase(handler));
        self
    }

    /// The supervision events from the very start on: those of the first CLI are over when
    /// [`start`](SessionBuilder::start) returns. They are those of the session that this builder starts, not of one
    /// that is started from a clone of it. Set [`Limits::events_kept`](crate::Limits::events_kept) before.
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
        let kept = self.options.limits.events_kept;
        self.telling.0.get_or_insert_with(|| Telling::new(kept)).subscribe()
    }

    /// With a hook. There may be several at an event: the CLI runs all that match, at the same time.
    pub fn hook(mut self, hook: Hook) -> Self {
        self.handlers.hooks.push(hook);
        self
    }

    /// Answers elicitations of MCP servers that the CLI dials. Without a handler they are declined, and one that fails
    /// cancels.
    pub fn on_elicitation<Fut>(
        mut self,
        handler: impl Fn(ElicitationRequest, CallbackContext) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        Fut: Future<Output: IntoReply<ElicitationAnswer>> + Send + 'static,
    {
        self.handlers.elicitation = Some(erase(handler));
        self
    }

    /// Answers dialogs of the CLI, of these kinds only. The CLI shows no others, and one that it asks all the same is left
    /// for it to settle. A handler that fails counts as a person who closes the dialog.
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

    /// Takes each line of the CLI's stderr. Called on the task that reads it: it must not block.
    pub fn on_stderr(mut self, take: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.stderr = Some(StderrSink::new(take));
        self
    }

    /// How the CLI is reached. Default: [`ChildProcess`].
    pub fn transport(mut self, transport: impl Transport) -> Self {
        self.transport = Some(Arc::new(transport));
        self
    }

    /// The `claude` executable. Default: looked for.
    pub fn cli_path(self, path: impl Into<PathBuf>) -> Self {
        self.configure(|options| options.cli_path = Some(path.into()))
    }

    /// The CLI's working directory. Default: the host's.
    pub fn cwd(self, path: impl Into<PathBuf>) -> Self {
        self.configure(|options| options.cwd = Some(path.into()))
    }

    /// Sets a variable for the CLI.
    pub fn env(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.configure(|options| drop(options.env.insert(name.into(), value.into())))
    }

    /// Sets variables for the CLI.
    pub fn envs(self, variables: BTreeMap<String, String>) -> Self {
        self.configure(|options| options.env.extend(variables))
    }

    /// The model, by name or alias.
    pub fn model(self, model: impl Into<String>) -> Self {
        self.configure(|options| options.model = Some(model.into()))
    }

    /// The system prompt, instead of an empty one.
    pub fn system_prompt(self, prompt: SystemPrompt) -> Self {
        self.configure(|options| options.system_prompt = prompt)
    }

    /// How the CLI decides on tools that no rule allows.
    pub fn permission_mode(self, mode: PermissionMode) -> Self {
        self.configure(|options| options.permission_mode = Some(mode))
    }

    /// Continues this conversation.
    pub fn resume(self, session_id: impl Into<String>) -> Self {
        self.configure(|options| options.resume = Some(session_id.into()))
    }

    /// The form in which the model gives the result of each turn: `T`, which
    /// [`Turn::structured`](crate::Turn::structured) reads.
    pub fn output_format<T: JsonSchema>(self) -> Self {
        self.configure(|options| options.output_format = Some(OutputFormat::of::<T>()))
    }

    /// The most model turns that one prompt may take.
    pub fn max_turns(self, turns: u32) -> Self {
        self.configure(|options| options.max_turns = Some(turns))
    }

    /// How hard the model works.
    pub fn effort(self, effort: Effort) -> Self {
        self.configure(|options| options.effort = Some(effort))
    }

    /// Whether and how much the model thinks before it answers.
    pub fn thinking(self, thinking: Thinking) -> Self {
        self.configure(|options| options.thinking = Some(thinking))
    }

    /// With a subagent of this name.
    pub fn agent(self, name: impl Into<String>, agent: AgentDefinition) -> Self {
        self.configure(|options| drop(options.agents.insert(name.into(), agent)))
    }

    /// With a plugin.
    pub fn plugin(self, plugin: Plugin) -> Self {
        self.configure(|options| options.plugins.push(plugin))
    }

    /// With a skill turned on, by name. All of them: set [`Options::skills`].
    pub fn skill(self, name: impl Into<String>) -> Self {
        self.configure(|options| match &mut options.skills {
            Some(Skills::Only(names)) => names.push(name.into()),
            Some(Skills::All) => {}
            None => options.skills = Some(Skills::only([name])),
        })
    }

    /// Settings for this session: a JSON object, or the path of a file.
    pub fn settings(self, settings: impl Into<Value>) -> Self {
        self.configure(|options| options.settings = Some(settings.into()))
    }

    /// The sandbox for commands.
    pub fn sandbox(self, sandbox: Sandbox) -> Self {
        self.configure(|options| options.sandbox = Some(sandbox))
    }

    /// A directory besides the working directory that tools may touch.
    pub fn additional_directory(self, path: impl Into<PathBuf>) -> Self {
        self.configure(|options| options.additional_directories.push(path.into()))
    }

    /// How long a tool call may take, unless the tool says otherwise.
    pub fn tool_timeout(self, timeout: Duration) -> Self {
        self.configure(|options| options.timeouts.tool = Some(timeout))
    }

    /// Mirrors the session to a store while it is written, and resumes or continues from it: see
    /// [`greenroom::store`](crate::store). [`Options::store`](crate::Options::store) says how.
    ///
    /// With [`resume`](SessionBuilder::resume) or
    /// [`continue_conversation`](crate::Options::continue_conversation) the session has to be in the store; what is on this
    /// machine's disk does not count. It runs in a configuration folder of its own, with a copy of the user's login (which
    /// cannot renew itself) and settings, and without plugins. The folder is removed with the session, but not by a host
    /// that is killed. On macOS the login that is in the keychain is not copied: give the CLI
    /// `CLAUDE_CODE_OAUTH_TOKEN` or a key.
    ///
    /// Does not go with `persist_session: Some(false)`, for the CLI mirrors what it has written itself, nor with
    /// `enable_file_checkpointing`, for what can be rewound to is on this machine only.
    pub fn session_store(mut self, store: Arc<dyn SessionStore>) -> Self {
        self.store = Some(store);
        self
    }

    /// Starts the session and waits until the CLI has answered `initialize`. Must be called on a tokio runtime
    /// with its time and IO enabled. Dropping the future gives the session up.
    ///
    /// # Errors
    /// Within [`Timeouts::start`](crate::Timeouts::start), and what it takes to end the CLI:
    ///
    /// | kind | what happened |
    /// |---|---|
    /// | [`InvalidOption`](ErrorKind::InvalidOption) | options, servers or tools contradict; no process was started |
    /// | [`CliNotFound`](ErrorKind::CliNotFound), [`Spawn`](ErrorKind::Spawn) | there is no CLI, or it does not run |
    /// | [`CliExited`](ErrorKind::CliExited) | it ended at once; its stderr is in the error |
    /// | [`StartTimeout`](ErrorKind::StartTimeout) | it did not answer |
    /// | [`NotTheProtocol`](ErrorKind::NotTheProtocol) | it wrote something, but no protocol |
    /// | [`SessionNotFound`](ErrorKind::SessionNotFound) | the session to resume is not there, nor in the store |
    /// | [`Store`](ErrorKind::Store) | the store failed, or took too long |
    /// | [`InitializeRefused`](ErrorKind::InitializeRefused) | it answered with an error, or cannot do what was asked |
    pub async fn start(self) -> Result<Session> {
        self.spawn(None).await
    }

    /// The same as a child of an actor, which sees it stop and fail: see [`greenroom::actor`](crate::actor).
    ///
    /// # Errors
    /// Those of [`start`](SessionBuilder::start).
    pub async fn spawn_linked(self, supervisor: ActorCell) -> Result<Session> {
        self.spawn(Some(supervisor)).await
    }

    /// Replaces each tool server by what is made of it; returns their names.
    #[cfg(feature = "testkit")]
    pub(crate) fn map_servers(&mut self, map: impl Fn(ServerSpec) -> ServerSpec) -> Vec<String> {
        for server in &mut self.servers {
            *server = Arc::new(map(ServerSpec::clone(server)));
        }
        self.servers.iter().map(|server| server.name.clone()).collect()
    }

    async fn spawn(mut self, parent: Option<ActorCell>) -> Result<Session> {
        self.options.validate()?;
        self.options.store.clamp();
        let home = match &self.store {
            Some(store) => {
                fits_store(&self.options)?;
                Box::pin(resume::from_store(store, &mut self.options)).await?
            }
            None => None,
        };
        let shared = self.into_shared()?;
        *shared.home.lock().unwrap_or_else(PoisonError::into_inner) = home;
        let (supervisor, arguments) = (SessionSupervisor, shared.clone());
        let spawned = match parent {
            Some(parent) => Box::pin(Actor::spawn_linked(None, supervisor, arguments, parent)).await,
            None => Box::pin(Actor::spawn(None, supervisor, arguments)).await,
        };
        let (actor, _) = spawned.map_err(|error| {
            Error::new(ErrorKind::SessionFailed, "the session's actor did not start").with_source(error)
        })?;
        let session = Session::new(shared, actor);
        session.started().await?;
        Ok(session)
    }

    fn into_shared(mut self) -> Result<Arc<Shared>> {
        let telling = self.telling.0.take();
        let (spec, servers) = self.into_spec()?;
        let telling = telling.unwrap_or_else(|| Telling::new(spec.options.limits.events_kept));
        Ok(Shared::new(spec, servers, telling))
    }

    pub(crate) fn into_spec(mut self) -> Result<(SessionSpec, Vec<Arc<ServerSpec>>)> {
        self.options.validate()?;
        if self.handlers.decide() && self.options.permission_prompt_tool_name.is_some() {
            let text = "option `permission_prompt_tool_name` and a handler given to `can_use_tool` exclude each other";
            return Err(Error::invalid_option(text).with_help("let one of them decide on permissions"));
        }
        self.options.timeouts.clamp();
        self.options.restarts.clamp();
        for (index, server) in self.servers.iter().enumerate() {
            server.validate()?;
            let earlier = self.servers[..index].iter().map(|server| &server.name);
            refuse_clash(&server.name, earlier.chain(self.options.mcp_servers.keys()).map(String::as_str))?;
        }
        self.handlers.hooks.iter().try_for_each(Hook::validate)?;
        for server in &self.allowed_servers {
            let known = self.servers.iter().any(|known| known.name == *server)
                || self.options.mcp_servers.contains_key(server);
            // Elsewhere the CLI may know others: of `.mcp.json`, of settings, of plugins.
            let here_only = self.options.strict_mcp_config
                && self.options.mcp_config_files.is_empty()
                && !self.options.extra_args.contains_key("mcp-config");
            if !known && here_only {
                let text = format!(
                    "`allow_server_tools` names the server '{server}', which this session does not have"
                );
                return Err(Error::invalid_option(text)
                    .with_help("give it to the session, or leave out `strict_mcp_config`"));
            }
            self.options.allowed_tools.push(format!("{}*", ServerSpec::prefix(server)));
        }
        let transport = self.transport.unwrap_or_else(|| Arc::new(ChildProcess::new()));
        let mirror = match self.store {
            Some(store) => {
                let config_dir = config_dir(|name| variable(&self.options, name))?;
                Some(Arc::new(Mirror::new(store, &self.options, &config_dir)))
            }
            None => None,
        };
        let spec = SessionSpec {
            options: *self.options,
            handlers: self.handlers,
            transport,
            stderr: self.stderr,
            mirror,
        };
        // A clone of the builder is another session, whose servers change by themselves.
        let servers = self.servers.iter().map(|server| Arc::new(ServerSpec::clone(server))).collect();
        Ok((spec, servers))
    }
}

/// Refuses what cannot be had of a session with a store.
fn fits_store(options: &Options) -> Result<()> {
    if options.persist_session == Some(false) {
        let text = "a session store needs the CLI's own transcript, and option `persist_session` is false";
        return Err(Error::invalid_option(text).with_help("leave one of the two out"));
    }
    if options.enable_file_checkpointing {
        let text =
            "a session store has no copies of files, and option `enable_file_checkpointing` wants some";
        return Err(Error::invalid_option(text).with_help("leave one of the two out"));
    }
    Ok(())
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
