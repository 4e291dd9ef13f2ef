//! Start a session from its definition.

use std::sync::Arc;

use ractor::{Actor, ActorCell};

use super::builder::SessionBuilder;
use super::handle::Session;
use super::known_servers::ConfigFiles;
use crate::Options;
use crate::actor::context::{Feeds, SessionSpec, Shared};
use crate::actor::mirror::Mirror;
use crate::actor::resume;
use crate::actor::supervisor::SessionSupervisor;
use crate::actor::supervisor::claims::Claims;
use crate::actor::supervisor::killing::KillSwitch;
use crate::control::Hook;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lock;
use crate::options::Setting;
use crate::sessions::{config_dir, variable};
use crate::tool::spec::ServerSpec;
use crate::transport::ChildProcess;

impl SessionBuilder {
    /// Starts the session. Waits until the CLI has answered `initialize` and every
    /// [significant](crate::ToolServer::significant) tool server has its state. Does not wait for other tool servers, and
    /// not for external MCP servers. Needs a tokio runtime with time and IO enabled. Dropping the future ends the session.
    ///
    /// # Errors
    /// Returns within [`Timeouts::start`](crate::options::Timeouts::start), plus the time to end the CLI. A CLI that has to
    /// be started once more, because it refused the first way to open
    /// [`Options::conversation`](crate::Options::conversation) or did not know a part of `initialize`, has this time
    /// twice.
    ///
    /// | kind | what happened |
    /// |---|---|
    /// | [`InvalidOption`](ErrorKind::InvalidOption) | options, servers or tools contradict; no process was started |
    /// | [`CliNotFound`](ErrorKind::CliNotFound), [`CliNotExecutable`](ErrorKind::CliNotExecutable) | there is no CLI, or the system cannot execute it |
    /// | [`NoResources`](ErrorKind::NoResources), [`NoGuardian`](ErrorKind::NoGuardian) | the machine has no room for a process, or no guardian |
    /// | [`Spawn`](ErrorKind::Spawn) | the CLI cannot be started for another reason |
    /// | [`CliExited`](ErrorKind::CliExited) | the CLI ended at once; its stderr is in the error |
    /// | [`StartTimeout`](ErrorKind::StartTimeout) | the CLI did not answer |
    /// | [`NotTheProtocol`](ErrorKind::NotTheProtocol) | the CLI wrote lines that are not the protocol |
    /// | [`SessionNotFound`](ErrorKind::SessionNotFound) | the session to resume is neither on disk nor in the store |
    /// | [`NoOpenCall`](ErrorKind::NoOpenCall) | the conversation does not end with the call to [resume](SessionBuilder::resume_call) |
    /// | [`SessionInUse`](ErrorKind::SessionInUse) | another live session has the conversation |
    /// | [`Io`](ErrorKind::Io) | the conversation cannot be locked; no process was started; see [`Options::lock_dir`](crate::Options::lock_dir) |
    /// | [`Store`](ErrorKind::Store) | the store failed, or took too long |
    /// | [`CliTooOld`](ErrorKind::CliTooOld) | the CLI is older than [`OLDEST_CLI`](crate::options::OLDEST_CLI) |
    /// | [`InitializeRefused`](ErrorKind::InitializeRefused) | the CLI answered with an error, or cannot do what the options ask for |
    pub async fn start(self) -> Result<Session> {
        self.spawn(None).await
    }

    /// Starts the session as a child of your actor, which sees the session stop and fail: see
    /// [`greenroom::actor`](crate::actor).
    ///
    /// # Errors
    /// The errors of [`start`](SessionBuilder::start).
    pub async fn spawn_linked(self, supervisor: ActorCell) -> Result<Session> {
        self.spawn(Some(supervisor)).await
    }

    /// Changes each tool server.
    #[cfg(feature = "testing")]
    pub(crate) fn change_servers(&mut self, change: impl Fn(&mut ServerSpec)) {
        for server in &mut self.servers {
            change(Arc::make_mut(server));
        }
    }

    /// A switch that kills the session which this builder starts, also while it starts: before
    /// [`start`](SessionBuilder::start) returns there is no [`Session`] to [`kill`](Session::kill). For an owner that
    /// may lose its right to the conversation at any moment. A clone of the builder starts another session, which this
    /// switch does not kill.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// # async fn example() -> greenroom::Result<()> {
    /// let mut builder = greenroom::Session::builder();
    /// let switch = builder.kill_switch();
    /// let watch_lease = async {
    ///     // Where the owner learns that it is none any more.
    ///     tokio::time::sleep(Duration::from_secs(24)).await;
    ///     switch.kill().await;
    /// };
    /// let (session, ()) = tokio::join!(builder.start(), watch_lease);
    /// # drop(session);
    /// # Ok(()) }
    /// ```
    pub fn kill_switch(&mut self) -> KillSwitch {
        self.kill_switch.0.get_or_insert_with(KillSwitch::new).clone()
    }

    async fn spawn(mut self, parent: Option<ActorCell>) -> Result<Session> {
        let switch = self.kill_switch();
        let guard = switch.starts();
        let shared = guard.step(Box::pin(self.prepare())).await?;
        let (supervisor, arguments) = (SessionSupervisor, shared.clone());
        let spawned = match parent {
            Some(parent) => Box::pin(Actor::spawn_linked(None, supervisor, arguments, parent)).await,
            None => Box::pin(Actor::spawn(None, supervisor, arguments)).await,
        };
        let (actor, _) = spawned.map_err(|error| {
            Error::new(ErrorKind::SessionFailed, "the session's actor did not start").with_source(error)
        })?;
        guard.started(&shared, &actor);
        let session = Session::new(shared, actor);
        session.started().await?;
        Ok(session)
    }

    /// Does everything that comes before the session's actor.
    async fn prepare(mut self) -> Result<Arc<Shared>> {
        self.resume_of_call()?;
        self.options.validate()?;
        self.options.store.cut();
        #[cfg(feature = "otel")]
        super::otel::take_current(&mut self.options);
        let files = ConfigFiles::read(&self.options).await;
        self.validate_server_names(&files)?;
        // Before the store changes the options: the claim is on the conversation in the folder that the user's options
        // name.
        let claims = Claims::new(&self.options, self.transport.as_deref())?;
        // The CLI finds a conversation by the name of its file, which is in lower case.
        self.options.conversation.iter_mut().for_each(|id| id.make_ascii_lowercase());
        if self.store.is_some() {
            fits_store(&self.options)?;
        }
        claims.check().await?;
        // Before the conversation is read: the session that has it may still write to it.
        Box::pin(claims.begin(&self.options)).await?;
        let home = match &self.store {
            Some(store) => {
                Box::pin(resume::from_store(store, &mut self.options, self.resumed_call.as_ref())).await?
            }
            None => None,
        };
        match &self.resumed_call {
            _ if home.is_some() => {}
            Some(call) => resume::call::defer_on_disk(&self.options, call).await?,
            None => resume::call::abandon_on_disk(&self.options).await?,
        }
        let found = match (&self.store, &self.options.conversation, claims.config_dir()) {
            (None, Some(id), Some(config_dir)) => resume::is_on_disk(config_dir, id).await,
            _ => home.is_some(),
        };
        // The id of the newest conversation of the store is known now.
        Box::pin(claims.begin(&self.options)).await?;
        let is_call = self.resumed_call.is_some();
        let shared = self.into_shared(claims)?;
        shared.facts.send_modify(|facts| {
            facts.resumed |= found;
            // A conversation that the store has is never started again: the store would mix the two. One whose call is resumed
            // has the call.
            facts.recorded |= home.is_some() || is_call;
        });
        *lock(&shared.home) = home;
        Ok(shared)
    }

    fn into_shared(mut self, claims: Claims) -> Result<Arc<Shared>> {
        let killed = self.kill_switch().token();
        let feeds = self.feeds.0.take();
        let (spec, servers) = self.into_spec()?;
        let feeds = feeds.unwrap_or_else(|| Feeds::new(&spec.options.limits));
        Ok(Shared::new(spec, servers, feeds, claims, killed))
    }

    pub(crate) fn into_spec(mut self) -> Result<(SessionSpec, Vec<Arc<ServerSpec>>)> {
        self.options.validate()?;
        if self.handlers.decide() && self.options.permission_prompt_tool_name.is_some() {
            let text = "option `permission_prompt_tool_name` and a handler given to `can_use_tool` exclude each other";
            return Err(Error::invalid_option(text).with_help("let one of them decide on permissions"));
        }
        self.options.timeouts.cut();
        self.options.restarts.cut();
        self.servers.iter().try_for_each(|server| server.validate())?;
        self.validate_server_names(&ConfigFiles::unread(&self.options))?;
        self.handlers.hooks.iter().try_for_each(Hook::validate)?;
        for server in &self.allowed_servers {
            self.options.allowed_tools.push(format!("{}*", ServerSpec::prefix(server)));
        }
        let killed = self.kill_switch().token();
        let transport = self.transport.unwrap_or_else(|| Arc::new(ChildProcess::new()));
        let mirror = match self.store {
            Some(store) => {
                let config_dir = config_dir(|name| variable(&self.options, name))?;
                Some(Arc::new(Mirror::new(store, &self.options, &config_dir, killed)))
            }
            None => None,
        };
        let spec = SessionSpec {
            options: *self.options,
            handlers: self.handlers,
            transport,
            stderr: self.stderr,
            watchdog: self.watchdog,
            mirror,
            data: self.data,
            resumed_call: self.resumed_call,
        };
        // Cloned, because a clone of the builder starts another session, whose servers change independently.
        let servers = self.servers.iter().map(|server| Arc::new(ServerSpec::clone(server))).collect();
        Ok((spec, servers))
    }
}

/// Refuses options that exclude a session store.
fn fits_store(options: &Options) -> Result<()> {
    if options.persist_session == Some(false) {
        let text = "a session store needs the CLI's own transcript, and option `persist_session` is false";
        return Err(Error::invalid_option(text).with_help("leave one of the two out"));
    }
    if options.enable_file_checkpointing {
        let text =
            "a session store has no copies of files, and option `enable_file_checkpointing` needs them";
        return Err(Error::invalid_option(text).with_help("leave one of the two out"));
    }
    Ok(())
}
