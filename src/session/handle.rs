//! The running session.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ractor::{ActorRef, Message};
use tokio::sync::oneshot;

use super::messages::Messages;
use crate::actor::context::Shared;
use crate::actor::messages::conversation::ConversationMessage;
use crate::actor::messages::session::{Internal, SessionMessage};
use crate::actor::turn::Turn;
use crate::actor::turn::cli_turns::CliTurns;
use crate::actor::turn::steering::Steering;
use crate::error::{Error, Result};
use crate::prompt::Prompt;
use crate::report::{Events, Snapshot};
use crate::tool::ServerHandle;
use crate::transport::ProcessIdentity;

/// A running session. Cheap to clone; every clone is the same session.
///
/// To end a session call [`stop`](Session::stop), which returns when nothing of the session is left. Dropping the last
/// clone ends the session in the background: the CLI's stdin is closed, and processes that do not exit are killed. The
/// CLI also ends with the tokio runtime and with the host process.
///
/// ```
/// use greenroom::{Session, ToolServer};
/// use greenroom_testkit::{ModelTurn, Script, ScriptedCli};
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
#[must_use = "dropping the last handle ends the session"]
pub struct Session {
    pub(super) inner: Arc<Handle>,
    /// Limits requests to the CLI through this handle; `None` for the limits of the options.
    pub(super) limit: Option<Duration>,
}

pub(super) struct Handle {
    pub(super) shared: Arc<Shared>,
    pub(super) actor: ActorRef<SessionMessage>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.tell(Internal::Abandoned);
    }
}

impl Session {
    pub(crate) fn new(shared: Arc<Shared>, actor: ActorRef<SessionMessage>) -> Self {
        Self { inner: Arc::new(Handle { shared, actor }), limit: None }
    }

    /// Queues a prompt, and returns its turn at once. Prompts are answered one after another, in order.
    ///
    /// If the future is dropped before it returns, the prompt is taken back, or its turn is
    /// [cancelled](Turn::cancel). The turn that is returned goes on when it is dropped, unless you ask for
    /// [`cancel_on_drop`](Turn::cancel_on_drop).
    ///
    /// # Errors
    /// [`AtCapacity`](crate::ErrorKind::AtCapacity) if too many prompts wait; [`Stopped`](crate::ErrorKind::Stopped) or
    /// [`SessionFailed`](crate::ErrorKind::SessionFailed) if the session has ended. The prompt is not sent then.
    pub async fn prompt(&self, prompt: impl Into<Prompt>) -> Result<Turn> {
        let prompt = prompt.into();
        let cancel_on_drop = true;
        let turn: Result<Turn> = self
            .ask_conversation(|reply| ConversationMessage::Prompt {
                prompt,
                cancel_on_drop,
                reply: reply.into(),
            })
            .await?;
        turn.map(Turn::go_on_when_dropped)
    }

    /// Sends a message into the running turn at once: the model reads the message with its next request, for example
    /// after the result of the running tool. A message that comes too late becomes a turn of its own, before all queued
    /// prompts. The [`Steering`] tells which.
    ///
    /// The message is an ordinary [`prompt`](Session::prompt), with its turn at hand, if no turn runs or the turn is being
    /// [cancelled](Turn::cancel), if the CLI does not tell the lifecycle of prompts (`command_lifecycle`), or if the
    /// message asks nothing ([`Prompt::queries`]).
    /// It counts towards [`Limits::prompts_queued`](crate::options::Limits::prompts_queued) until its outcome is known.
    /// With [`PromptPriority::Now`](crate::session::PromptPriority::Now) it cuts the running turn off; with `Later` it
    /// waits for the turn's end.
    ///
    /// When the CLI dies, a message that the CLI cannot have taken is sent to the next CLI, once, as a prompt of its
    /// own. A message that the CLI may have taken is [`Unknown`](crate::session::Steered::Unknown) and not sent again.
    /// After an interrupt the CLI makes a turn of the message; `interrupt_cancel_queued` gives it back. A stop waits
    /// for the message as for a turn.
    ///
    /// Not cancel-safe: if the future is dropped, the message may still be sent.
    ///
    /// # Errors
    /// The errors of [`prompt`](Session::prompt).
    pub async fn steer(&self, message: impl Into<Prompt>) -> Result<Steering> {
        let message = message.into();
        self.ask_conversation(|reply| ConversationMessage::Steer { prompt: message, reply: reply.into() })
            .await?
    }

    /// A handle to a tool server, to change its tools while it runs; `None` if the session has no server of this name.
    pub fn server(&self, name: &str) -> Option<ServerHandle> {
        let shared = &self.inner.shared;
        let roster = shared.roster();
        let spec = &roster.server(name)?.spec;
        Some(ServerHandle::new(spec.clone(), shared.ending.gone.clone()))
    }

    /// Subscribes to the supervision events from now on.
    pub fn events(&self) -> Events {
        self.inner.shared.subscribe()
    }

    /// Subscribes to all messages from now on, including messages that belong to no turn. Messages of the start, such as
    /// `SessionStart` hooks and warnings about settings, need [`SessionBuilder::messages`](crate::SessionBuilder::messages).
    pub fn messages(&self) -> Messages {
        Messages::of(self.inner.shared.messages.subscribe(), self.inner.shared.ending.gone.clone())
    }

    /// Opens the turns that the CLI begins by itself from now on, in place of a reader that was opened before. Turns of the start, such
    /// as one that goes on with what was interrupted, need
    /// [`SessionBuilder::cli_turns`](crate::SessionBuilder::cli_turns).
    pub fn cli_turns(&self) -> CliTurns {
        self.inner.shared.cli_turns.subscribe(self.inner.shared.ending.gone.clone())
    }

    /// Reports the state of the session: its actors, calls in flight, queues and counters. Takes at most
    /// [`Timeouts::child_stop`](crate::options::Timeouts::child_stop); a part that does not answer in time is left out.
    ///
    /// # Errors
    /// [`Stopped`](crate::ErrorKind::Stopped) or [`SessionFailed`](crate::ErrorKind::SessionFailed) if the session has
    /// ended.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        self.ask(|reply| SessionMessage::Snapshot(reply.into())).await?
    }

    /// The id of the conversation, for [`Options::resume`](crate::Options::resume). `None` until the CLI names it in
    /// the first turn, unless [`Options::conversation`](crate::Options::conversation) names it.
    pub fn session_id(&self) -> Option<String> {
        self.inner.shared.facts.borrow().session_id.clone()
    }

    /// The process of the current CLI, for a service that writes it down and, after it was killed and started again,
    /// waits until the CLI is [gone](ProcessIdentity::gone). `None` while no CLI runs, and if the transport has no real
    /// process.
    ///
    /// Each restart of the CLI makes a new process, which [`Event::CliStarted`](crate::Event::CliStarted) tells, also
    /// for the first one ([`SessionBuilder::events`](crate::SessionBuilder::events)). There is a moment between the
    /// start of a process and its record: a service that is killed in it relies on the guardian alone.
    ///
    /// ```no_run
    /// use greenroom::transport::ProcessIdentity;
    ///
    /// # async fn example(session: greenroom::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// if let Some(process) = session.process() {
    ///     std::fs::write("cli.json", serde_json::to_vec(&process)?)?;
    /// }
    /// // The next run of the service:
    /// let old: ProcessIdentity = serde_json::from_slice(&std::fs::read("cli.json")?)?;
    /// old.gone(std::time::Duration::from_millis(50)).await;
    /// # Ok(()) }
    /// ```
    pub fn process(&self) -> Option<ProcessIdentity> {
        self.inner.shared.cli.process()
    }

    /// Waits until the run is over: no turn, no queued prompt and no background work of the CLI. Also returns when the
    /// session ends.
    pub async fn wait_idle(&self) {
        let mut facts = self.inner.shared.facts.subscribe();
        tokio::select! {
            // Cannot fail: this handle holds the sender.
            _ = facts.wait_for(|facts| facts.run_ended) => {}
            () = self.inner.shared.ending.gone.cancelled() => {}
        }
    }

    /// Whether background agents or workflows of the CLI run: their end may begin [a turn](Session::cli_turns). Shells and monitors do
    /// not count, because they may never end.
    pub fn works_in_background(&self) -> bool {
        self.inner.shared.facts.borrow().background
    }

    /// Stops the session, and returns when no process and no task of it is left, within
    /// [`shutdown_bound`](Session::shutdown_bound).
    ///
    /// New prompts are refused, and waiting prompts come back at once. Then `stop` waits for the running turn, at most
    /// [`Timeouts::drain`](crate::options::Timeouts::drain); to end the turn at once, [`cancel`](Turn::cancel) it first.
    /// Then the CLI's stdin is closed; a CLI that does not exit gets SIGTERM, and then SIGKILL. Code that blocks its
    /// thread past its time, in a handler or in the drop of a server's state, cannot be ended and is left on the
    /// runtime's blocking pool.
    ///
    /// May be called more than once. If the future is dropped, the session still stops.
    ///
    /// # Errors
    /// The reason why the session failed, if it failed. Else [`ProcessesLeft`](crate::ErrorKind::ProcessesLeft) if processes
    /// of its CLIs were killed and still run, or if this is not known; the session has stopped all the same. Each call looks at
    /// the processes again.
    pub async fn stop(&self) -> Result<()> {
        // Before the supervisor hears of the stop: a prompt that follows is refused.
        self.inner.shared.ending.refuse_prompts();
        let stopped = self.ask(|reply| SessionMessage::Stop(reply.into())).await;
        self.wait().await;
        // A session that has ended does not answer.
        let failed = stopped.map_or_else(|_| self.inner.shared.ending.failed().cloned(), Result::err);
        // Asked here, because a transport is code of the application.
        let error = match failed {
            Some(error) => Some(error),
            None => {
                self.inner.shared.ending.left.error(self.inner.shared.options().timeouts.child_stop).await
            }
        };
        error.map_or(Ok(()), Err)
    }

    /// Kills the session, and returns when no process and no task of it is left, within
    /// [`Timeouts::kill_bound`](crate::options::Timeouts::kill_bound). For an owner that must not act any more, such as
    /// one that has lost its lease on the conversation; to end a session in order, [`stop`](Session::stop) it.
    ///
    /// From the first poll on, prompts are refused, and neither the CLI nor the session's store gets anything more.
    /// Then the CLI and everything that it has started get SIGKILL, without a drain and without the end of stdin. The
    /// running turn ends as [`Interrupted`](crate::Outcome::Interrupted) by
    /// [`Stop`](crate::report::InterruptedBy::Stop), also if its result has arrived and waits for the store; waiting
    /// prompts come back as [`NotStarted`](crate::Outcome::NotStarted). Handlers of tools and callbacks are aborted
    /// without a grace time.
    ///
    /// An append to the store that runs is aborted and not tried again; entries that the store has not taken are told
    /// as [`MirrorFailed`](crate::Event::MirrorFailed). An append that blocks its thread cannot be aborted: a store
    /// that several owners share should check which of them writes.
    ///
    /// Works in every state: while the CLI is restarted, and during a [`stop`](Session::stop), which then returns early.
    /// [`SessionBuilder::kill_switch`](crate::SessionBuilder::kill_switch) also works during the first start. May be called more than once. If the future is dropped after its first poll, the session still
    /// ends. A process that the system cannot end within [`Timeouts::reap`](crate::options::Timeouts::reap) is left
    /// behind, and told as [`LeftoversRemain`](crate::Event::LeftoversRemain).
    ///
    /// ```
    /// use greenroom_testkit::{Script, ScriptedCli};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let cli = ScriptedCli::play(Script::new());
    /// let session = greenroom::Session::builder().transport(cli.transport()).start().await?;
    /// session.kill().await;
    /// assert!(session.prompt("Hello?").await.is_err());
    /// # greenroom::Result::<()>::Ok(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn kill(&self) {
        self.inner.shared.kill();
        // A session that has ended does not answer.
        self.ask(|reply| SessionMessage::Kill(reply.into())).await.ok();
        self.wait().await;
    }

    /// Waits until the session has ended, for any reason.
    pub async fn wait(&self) {
        // Without a limit the wait cannot fail.
        self.inner.actor.wait(None).await.ok();
    }

    /// Whether the session has ended, for any reason: [`wait`](Session::wait) would return at once.
    pub fn has_ended(&self) -> bool {
        self.inner.actor.get_status() == ractor::ActorStatus::Stopped
    }

    /// The error with which the session failed; `None` if it has not failed.
    pub fn failure(&self) -> Option<Error> {
        self.inner.shared.ending.failed().cloned()
    }

    /// The session's actor, for actor programs: see [`greenroom::actor`](crate::actor).
    pub fn actor(&self) -> &ActorRef<SessionMessage> {
        &self.inner.actor
    }

    /// Breaks a part of the session on purpose, to test that the rest survives.
    #[cfg(feature = "testing")]
    pub fn inject(&self, fault: crate::actor::messages::fault::Fault) {
        self.inner.shared.tell(Internal::Inject(fault));
    }

    pub(crate) async fn started(&self) -> Result<()> {
        self.ask(|reply| SessionMessage::Internal(Internal::AwaitStart(reply))).await?
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.inner.shared
    }

    /// Asks the session's actor.
    pub(super) async fn ask<T>(
        &self,
        message: impl FnOnce(oneshot::Sender<T>) -> SessionMessage,
    ) -> Result<T> {
        ask(Some(&self.inner.actor), message).await.ok_or_else(|| self.inner.shared.ending.error())
    }

    /// Asks the conversation, which lives as long as the session.
    pub(super) async fn ask_conversation<T>(
        &self,
        message: impl FnOnce(oneshot::Sender<T>) -> ConversationMessage,
    ) -> Result<T> {
        ask(self.inner.shared.conversation.get(), message)
            .await
            .ok_or_else(|| self.inner.shared.ending.error())
    }

    /// The longest time that [`stop`](Session::stop) takes.
    pub fn shutdown_bound(&self) -> Duration {
        let options = self.inner.shared.options();
        let store = match self.inner.shared.mirror() {
            Some(_) => options.store.stop.saturating_add(options.timeouts.child_stop),
            None => Duration::ZERO,
        };
        options.timeouts.shutdown_bound().saturating_add(store)
    }
}

/// Asks an actor; `None` if the actor has ended.
async fn ask<M: Message, T>(
    actor: Option<&ActorRef<M>>,
    message: impl FnOnce(oneshot::Sender<T>) -> M,
) -> Option<T> {
    let (reply, answer) = oneshot::channel();
    actor?.cast(message(reply)).ok()?;
    answer.await.ok()
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("session_id", &self.session_id()).finish_non_exhaustive()
    }
}
