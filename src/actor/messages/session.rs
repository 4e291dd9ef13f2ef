//! The messages of a session's actor.

use ractor::RpcReplyPort;
use tokio::sync::{OwnedMutexGuard, oneshot};

use crate::actor::actor_message;
use crate::actor::servers::roster::ServerChange;
use crate::actor::turn::Turn;
use crate::actor::turn::steering::Steering;
use crate::error::{Error, Result};
use crate::report::{McpSetServersResult, Snapshot};

/// The messages of a session's actor, for programs that are made of `ractor` actors. Other programs call the methods of
/// [`Session`](crate::Session), which do the same.
///
/// ```
/// use greenroom::actor::SessionMessage;
/// use ractor::{ActorRef, call_t};
///
/// async fn ask(session: ActorRef<SessionMessage>) -> Result<(), ractor::RactorErr<SessionMessage>> {
///     let turn = call_t!(session, SessionMessage::Prompt, 1000, "What is 5 + 3?".into())?;
///     let outcome = match turn {
///         Ok(mut turn) => turn.outcome().await,
///         Err(error) => Err(error),
///     };
///     tracing::info!(?outcome, "answered");
///     Ok(())
/// }
/// # let _ = ask;
/// ```
#[non_exhaustive]
pub enum SessionMessage {
    /// Queues a prompt. Answers with its turn, or with the reason why the prompt was not accepted.
    Prompt(crate::Prompt, RpcReplyPort<Result<Turn>>),
    /// Sends a message into the running turn. Answers with its handle, or with the reason why the message was not
    /// accepted.
    Steer(crate::Prompt, RpcReplyPort<Result<Steering>>),
    /// Interrupts the running turn. Answers when the CLI has acknowledged.
    Interrupt(RpcReplyPort<Result<()>>),
    /// Reports the state of the session.
    Snapshot(RpcReplyPort<Result<Snapshot>>),
    /// Subscribes to the events.
    Events(RpcReplyPort<crate::report::Events>),
    /// Stops the session in order. Answers when nothing of it is left. Send this instead of stopping the actor: `stop`
    /// on the actor ends the CLI at once.
    Stop(RpcReplyPort<Result<()>>),
    /// Kills the session. Answers when nothing of it is left, like [`Stop`](SessionMessage::Stop).
    Kill(RpcReplyPort<Result<()>>),
    #[doc(hidden)]
    Internal(Internal),
}

actor_message!(SessionMessage);

/// Messages of the session's other actors, its timers and its handles to the supervisor.
#[doc(hidden)]
#[allow(private_interfaces)]
#[allow(unnameable_types, reason = "only the session itself sends these messages")]
pub enum Internal {
    /// The incarnation has answered `initialize`.
    CliReady { epoch: u64 },
    /// Answers when the session has started.
    AwaitStart(oneshot::Sender<Result<()>>),
    /// A tool server has its state.
    ServerServes { server: String, generation: u32 },
    /// The state of a tool server could not be made.
    StateFailed { server: String, generation: u32, cause: String },
    /// Changes the MCP servers.
    Change(Box<ChangeRequest>),
    /// The CLI has answered the change.
    Changed(ChangeOutcome),
    /// The backoff of the CLI has passed.
    RestartCli,
    /// The backoff of the tool server has passed.
    RestartServer(String),
    /// The backoff of the router or the callbacks has passed.
    RestartControl(ControlName),
    /// The CLI has named the conversation.
    Captured,
    /// The store has taken what was left for it.
    MirrorEnded,
    /// No turn runs, and none will begin.
    Drained,
    /// The session was idle for `timeouts.idle`, and accepts no more prompts.
    Idle,
    /// The CLI does not do what it was told: ends it, and starts the next.
    GiveUpCli { epoch: u64, reason: String },
    /// The conversation has deferred a question: the CLI ends at once, and the session in order.
    Deferred { epoch: u64 },
    /// The limit of the stop step with this number has passed.
    StopLimit(u32),
    /// The last handle was dropped.
    Abandoned,
    #[cfg(feature = "testing")]
    Inject(crate::actor::messages::fault::Fault),
    /// The session cannot go on.
    Fatal(Error),
}

/// Names a child under `Restarts::control`.
#[derive(Clone, Copy)]
pub(crate) enum ControlName {
    Router,
    Callbacks,
}

/// Asks the supervisor for a change of the MCP servers.
pub(crate) struct ChangeRequest {
    pub(crate) change: ServerChange,
    pub(crate) reply: oneshot::Sender<Result<McpSetServersResult>>,
    /// Keeps other changes from beginning.
    pub(crate) turn: OwnedMutexGuard<()>,
}

/// The CLI's answer to a change.
pub(crate) struct ChangeOutcome {
    pub(crate) number: u64,
    /// With the names of new servers that the CLI could not take.
    pub(crate) outcome: Result<(McpSetServersResult, Vec<String>)>,
}

impl std::fmt::Debug for SessionMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SessionMessage::Prompt(..) => "Prompt",
            SessionMessage::Steer(..) => "Steer",
            SessionMessage::Interrupt(_) => "Interrupt",
            SessionMessage::Snapshot(_) => "Snapshot",
            SessionMessage::Events(_) => "Events",
            SessionMessage::Stop(_) => "Stop",
            SessionMessage::Kill(_) => "Kill",
            SessionMessage::Internal(_) => "Internal",
        })
    }
}
