//! The messages of the conversation.

use std::sync::Arc;
use std::time::Duration;

use ractor::RpcReplyPort;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::actor::actor_message;
use crate::actor::request::pending::PendingRequest;
use crate::actor::turn::steering::Steering;
use crate::actor::turn::{Turn, TurnKey};
use crate::error::{Error, Result};
use crate::message::SaidUsage;
use crate::prompt::Prompt;
use crate::report::{ConversationSnapshot, DeferredCall, ExitCause};
use crate::requests::{InterruptReceipt, Reply};
use crate::wire::Message;
use crate::wire::message::SessionUsage;

/// Permit for the bytes of messages of one read on their way to the conversation (`Limits::message_lane_bytes`).
/// Released when the conversation has taken all of them, or ends.
pub(crate) type LanePermit = Arc<OwnedSemaphorePermit>;

/// An event of the CLI. Events are handled in order.
pub(crate) enum CliEvent {
    Message {
        epoch: u64,
        message: Message,
    },
    /// A line could not be read. The line may have been a message.
    LineLost {
        epoch: u64,
        reason: String,
    },
    /// Entries for the session's store that name the tokens of messages.
    Spent(Vec<SaidUsage>),
    /// The incarnation takes prompts.
    Ready {
        epoch: u64,
    },
    /// The incarnation has ended; with the cause if nobody asked for the end.
    Ended {
        epoch: u64,
        cause: Option<ExitCause>,
    },
}

/// The CLI's answer to a cancel.
pub(crate) enum CancelAnswer {
    /// The CLI had not begun with the prompt, and has dropped it.
    TakenBack,
    Interrupted,
    Failed(Error),
}

/// A question that is to stay open while no CLI runs.
pub(crate) struct Deferral {
    pub(crate) question: Arc<PendingRequest>,
    pub(crate) call: DeferredCall,
    /// As the CLI has reported it.
    pub(crate) usage: Option<Box<SessionUsage>>,
}

/// The messages of the conversation.
pub(crate) enum ConversationMessage {
    /// Queues a prompt. The turn cancels itself on drop if `cancel_on_drop`, so it ends if the reply reaches nobody.
    Prompt {
        prompt: Prompt,
        cancel_on_drop: bool,
        reply: RpcReplyPort<Result<Turn>>,
    },
    /// Sends a message into the running turn.
    Steer {
        prompt: Prompt,
        reply: RpcReplyPort<Result<Steering>>,
    },
    /// Messages of the CLI, in order.
    Messages {
        epoch: u64,
        messages: Vec<Message>,
        permit: Option<LanePermit>,
    },
    /// An event of the CLI, in order with its messages.
    Cli(CliEvent),
    /// A message of greenroom's own. Never waits for the store.
    Told(Message),
    /// The store has taken everything before the event that waits under this number.
    Mirrored {
        number: u64,
    },
    /// Interrupts the CLI, and gives queued prompts back if `cancel_queued`.
    Interrupt {
        cancel_queued: bool,
        limit: Duration,
        reply: oneshot::Sender<Result<Reply<InterruptReceipt>>>,
    },
    /// The CLI did not acknowledge an interrupt.
    NotInterrupted,
    /// Ends one turn. The sender is dropped when the turn has ended.
    Cancel {
        turn: TurnKey,
        ended: oneshot::Sender<()>,
    },
    /// The CLI has answered the requests of a cancel.
    CancelAnswered {
        number: u64,
        answer: CancelAnswer,
    },
    /// Takes a queued prompt back. Answers whether the prompt was in the queue.
    TakeBack {
        uuid: String,
        reply: oneshot::Sender<bool>,
    },
    /// Accepts nothing new, and tells the session when no turn runs any more.
    Drain,
    /// Ends every turn and gives every prompt back, then ends the actor.
    Stop {
        failed: Option<Error>,
    },
    /// Ends the running turn, and leaves a question of it open.
    Defer {
        deferral: Box<Deferral>,
        reply: oneshot::Sender<Result<()>>,
    },
    /// Answers with the turn that goes on with a deferred call: once, and only in a session that resumes one.
    ResumedTurn(oneshot::Sender<Option<Turn>>),
    /// The CLI is ready, and has not begun with the deferred call in time.
    NotResumed,
    /// A limit may have passed.
    LimitTick,
    Snapshot(oneshot::Sender<ConversationSnapshot>),
    #[cfg(feature = "testing")]
    Panic,
}

actor_message!(ConversationMessage);
