//! The session, in methods.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ractor::{ActorRef, RpcReplyPort};
use tokio::sync::oneshot;

use super::{Messages, Prompt, SessionBuilder};
use crate::actor::message::{Internal, SessionMessage};
use crate::actor::shared::Shared;
use crate::actor::turn::Turn;
use crate::error::{Error, Result};
use crate::report::{Events, Snapshot};
use crate::tool::ServerHandle;

/// A running session. Cheap to clone; every clone is the same session.
///
/// A session ends by [`stop`](Session::stop), which returns when nothing of it is left. When the last clone is
/// dropped it ends as well, in the background: the CLI's stdin is closed, and what does not go by itself is
/// killed. When the runtime goes away, or the process, the CLI goes with it.
///
/// ```
/// use greenroom::{Session, ToolServer};
/// use greenroom::testkit::{ModelTurn, Script, ScriptedCli};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Add { a: f64, b: f64 }
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let calc = ToolServer::new("calc", "1.0.0").tool("add", "Add two numbers", async |args: Add| args.a + args.b);
///
/// // A scripted stand-in for the CLI and the model; leave `transport` out to use the real ones.
/// let script = Script::new()
///     .turn(ModelTurn::new().call("mcp__calc__add", serde_json::json!({ "a": 5, "b": 3 })))
///     .turn(ModelTurn::new().text("5 + 3 is 8."));
/// let cli = ScriptedCli::play(script);
///
/// let session = Session::builder()
///     .mcp_server(calc)
///     .allow_server_tools("calc")
///     .transport(cli.transport())
///     .start()
///     .await?;
/// let mut turn = session.prompt("What is 5 + 3?").await?;
/// while let Some(message) = turn.next().await {
///     println!("{}", message.kind());
/// }
/// assert_eq!(turn.outcome().await?.text(), Some("5 + 3 is 8."));
/// session.stop().await?;
/// # greenroom::Result::<()>::Ok(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Session {
    pub(super) inner: Arc<Handle>,
    /// The limit of requests to the CLI that are made with this handle, if it is another than that of the options.
    limit: Option<Duration>,
}

pub(super) struct Handle {
    pub(super) shared: Arc<Shared>,
    pub(super) actor: ActorRef<SessionMessage>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // A session that has ended already needs no telling.
        self.actor.cast(SessionMessage::Internal(Internal::Abandoned)).ok();
    }
}

impl Session {
    /// Begins to define a session.
    pub fn builder() -> SessionBuilder {
        SessionBuilder::default()
    }

    pub(crate) fn new(shared: Arc<Shared>, actor: ActorRef<SessionMessage>) -> Self {
        Self { inner: Arc::new(Handle { shared, actor }), limit: None }
    }

    /// Queues a prompt. Returns at once with its turn; prompts are answered one after another, in order. A future that
    /// is dropped before it returns may leave a prompt behind that was accepted, and runs.
    ///
    /// # Errors
    /// [`AtCapacity`](crate::ErrorKind::AtCapacity) when too many wait already; [`Stopped`](crate::ErrorKind::Stopped) or
    /// [`SessionFailed`](crate::ErrorKind::SessionFailed) when the session is no more. The prompt was not sent then.
    pub async fn prompt(&self, prompt: impl Into<Prompt>) -> Result<Turn> {
        let prompt = prompt.into();
        self.call(|reply| SessionMessage::Prompt(prompt, reply)).await?
    }

    /// A handle of one of its tool servers, to change what it offers; `None` if it has none of this name.
    pub fn server(&self, name: &str) -> Option<ServerHandle> {
        let shared = &self.inner.shared;
        let roster = shared.roster();
        let spec = roster.inside().iter().find(|server| server.name == name)?;
        Some(ServerHandle::new(spec.clone(), shared.gone.clone()))
    }

    /// The supervision events from now on.
    pub fn events(&self) -> Events {
        self.inner.shared.subscribe()
    }

    /// All messages from now on, also those that belong to no turn.
    pub fn messages(&self) -> Messages {
        Messages::new(self.inner.shared.messages.listen(), self.inner.shared.gone.clone())
    }

    /// How things stand: the tree, the calls in flight, queues, counters. Takes at most
    /// [`Timeouts::child_stop`](crate::Timeouts::child_stop); a part that does not answer until then is left out.
    ///
    /// # Errors
    /// [`Stopped`](crate::ErrorKind::Stopped) or [`SessionFailed`](crate::ErrorKind::SessionFailed) when the session is no more.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        self.call(SessionMessage::Snapshot).await?
    }

    /// The id of the conversation, once the CLI has named it: with its first turn. It is what
    /// [`Options::resume`](crate::Options::resume) takes.
    pub fn session_id(&self) -> Option<String> {
        self.inner.shared.vitals.borrow().session_id.clone()
    }

    /// Waits until the run is over: no turn, no queued prompt, and nothing that the CLI does in the background; or
    /// until the session is.
    pub async fn run_ended(&self) {
        let mut vitals = self.inner.shared.vitals.subscribe();
        tokio::select! {
            // The sender is part of what this handle holds, so there is no error.
            _ = vitals.wait_for(|vitals| vitals.run_ended) => {}
            () = self.inner.shared.gone.cancelled() => {}
        }
    }

    /// Stops the session: no new prompts; the turn in flight may end within
    /// [`Timeouts::drain`](crate::Timeouts::drain); then the CLI's stdin is closed, and what does not go by itself
    /// is asked, and then killed. Returns when nothing is left: no process, no task. What blocks a thread cannot be ended
    /// from outside: a handler on the blocking lane, or the drop of a server's state, that goes on past its time is left
    /// on the runtime's blocking pool. Takes at most
    /// [`shutdown_bound`](Session::shutdown_bound). Safe to call more than once, and to cancel: the stopping goes on.
    ///
    /// # Errors
    /// The reason why the session failed, if it had.
    pub async fn stop(&self) -> Result<()> {
        let (reply, stopped) = oneshot::channel();
        if self.inner.actor.cast(SessionMessage::Internal(Internal::Stop(reply))).is_ok()
            && let Ok(outcome) = stopped.await
        {
            self.wait().await;
            return outcome;
        }
        self.wait().await;
        match self.inner.shared.failed.get() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Waits until the session is no more, for whatever reason.
    pub async fn wait(&self) {
        // Without a limit it cannot time out.
        self.inner.actor.wait(None).await.ok();
    }

    /// Why the session has failed, once it has.
    pub fn failure(&self) -> Option<Error> {
        self.inner.shared.failed.get().cloned()
    }

    /// The session's actor, for programs that are made of actors: see [`greenroom::actor`](crate::actor).
    pub fn actor(&self) -> &ActorRef<SessionMessage> {
        &self.inner.actor
    }

    /// Breaks a part of the session on purpose, to see the rest survive it.
    #[cfg(feature = "testkit")]
    pub fn inject(&self, fault: crate::testkit::Fault) {
        // A session that has ended is broken enough.
        self.inner.actor.cast(SessionMessage::Internal(Internal::Inject(fault))).ok();
    }

    pub(crate) async fn started(&self) -> Result<()> {
        self.ask(Internal::AwaitStart).await?
    }

    async fn call<T: Send + 'static>(
        &self,
        message: impl FnOnce(RpcReplyPort<T>) -> SessionMessage,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.inner.actor.cast(message(reply.into())).map_err(|_| self.gone())?;
        answer.await.map_err(|_| self.gone())
    }

    pub(super) fn gone(&self) -> Error {
        self.inner.shared.gone()
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.inner.shared
    }

    pub(super) fn request_limit(&self) -> Option<Duration> {
        self.limit
    }

    pub(super) fn with_limit(&self, limit: Duration) -> Self {
        Self { inner: self.inner.clone(), limit: Some(limit) }
    }

    /// Asks the session's actor something.
    pub(super) async fn ask<T>(&self, message: impl FnOnce(oneshot::Sender<T>) -> Internal) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.inner.actor.cast(SessionMessage::Internal(message(reply))).map_err(|_| self.gone())?;
        answer.await.map_err(|_| self.gone())
    }

    /// How long [`stop`](Session::stop) takes at most.
    pub fn shutdown_bound(&self) -> Duration {
        let options = self.inner.shared.options();
        let store = match self.inner.shared.mirror() {
            Some(_) => options.store.stop.saturating_add(options.timeouts.child_stop),
            None => Duration::ZERO,
        };
        options.timeouts.shutdown_bound().saturating_add(store)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("session_id", &self.session_id()).finish_non_exhaustive()
    }
}
