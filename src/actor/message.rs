//! What a session's actor understands.

use std::time::Duration;

use ractor::RpcReplyPort;
use tokio::sync::oneshot;

use super::actor_message;
use super::lane::Lane;
use super::supervisor::changing::{ChangeRequest, Told};
use super::turn::Turn;
use crate::error::{Error, Result};
use crate::report::{Event, Snapshot};
use crate::requests::{InterruptReceipt, Reply};

/// What a session's actor understands. For programs that are made of `ractor` actors; everybody else calls the
/// methods of [`Session`](crate::Session), which do the same.
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
    /// Queue a prompt. Answers with its turn, or with the reason why it was not accepted.
    Prompt(crate::Prompt, RpcReplyPort<Result<Turn>>),
    /// Interrupt the running turn. Answers when the CLI has taken note.
    Interrupt(RpcReplyPort<Result<()>>),
    /// Say how things stand.
    Snapshot(RpcReplyPort<Result<Snapshot>>),
    /// Hand over a new subscription to the events.
    Events(RpcReplyPort<crate::Events>),
    /// Stop in order. Answers when nothing is left. Also what a `stop` of the actor should be replaced with: that
    /// one would end the CLI at once.
    Stop(RpcReplyPort<Result<()>>),
    #[doc(hidden)]
    Internal(Internal),
}

actor_message!(SessionMessage);

/// What the parts of the tree tell the supervisor.
#[doc(hidden)]
#[allow(private_interfaces)]
pub enum Internal {
    /// An incarnation can be written to.
    LaneOpened(Lane),
    /// It has answered `initialize`.
    CliReady {
        lane: Lane,
    },
    /// Somebody waits for the first incarnation.
    AwaitStart(oneshot::Sender<Result<()>>),
    /// A tool server has its state.
    ServerServes(String),
    /// Change the MCP servers.
    Change(Box<ChangeRequest>),
    /// The CLI has said what it makes of it.
    Changed(Told),
    /// The wait before a restart is over.
    RestartCli,
    RestartServer(String),
    RestartRouter,
    RestartCallbacks,
    /// The store was given what there was.
    MirrorEnded,
    /// The turn in flight has ended, and none is left.
    Drained,
    /// The CLI does not do what it was told; end it, and start the next.
    GiveUpCli {
        epoch: u64,
        reason: String,
    },
    /// A step of stopping took too long.
    StopLimit(u32),
    /// The last handle was dropped.
    Abandoned,
    /// Stop in order.
    Stop(oneshot::Sender<Result<()>>),
    Snapshot(oneshot::Sender<Result<Snapshot>>),
    /// Interrupt whatever the CLI does.
    Interrupt {
        cancel_queued: bool,
        limit: Duration,
        reply: oneshot::Sender<Result<Reply<InterruptReceipt>>>,
    },
    /// Take a prompt back that waits; answers whether there was one.
    TakeBack {
        uuid: String,
        reply: oneshot::Sender<bool>,
    },
    /// Break something on purpose.
    #[cfg(feature = "testkit")]
    Inject(crate::testkit::Fault),
    /// Somebody has to know of this.
    Emit(Event),
    /// The session cannot go on.
    Fatal(Error),
}

impl std::fmt::Debug for SessionMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SessionMessage::Prompt(..) => "Prompt",
            SessionMessage::Interrupt(_) => "Interrupt",
            SessionMessage::Snapshot(_) => "Snapshot",
            SessionMessage::Events(_) => "Events",
            SessionMessage::Stop(_) => "Stop",
            SessionMessage::Internal(_) => "Internal",
        })
    }
}
