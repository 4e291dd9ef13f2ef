//! The messages of the children that serve one thing each: a tool server, the callbacks, the port of the CLI.

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::actor::actor_message;
use crate::actor::callbacks::kind::HandlerFault;
use crate::actor::request::answer::Answer;
use crate::actor::request::handlers::HandlerEnd;
use crate::report::{CallbacksSnapshot, ExitCause, ServerSnapshot};
use crate::tool::run::erased::{AnyState, CallFailure};
use crate::wire::envelope::CallbackRequest;

/// The messages of a server's actor.
pub(crate) enum ServerMessage {
    /// The server's queue has requests.
    RequestsQueued,
    /// Making the state has ended.
    StateMade(Result<Vec<AnyState>, String>),
    /// Makes the state again.
    Make,
    /// The supervisor gives the server up: calls are refused until there is a state.
    GiveUp(String),
    /// Another CLI is ready.
    CliReady {
        epoch: u64,
    },
    /// The registry has changed. At most one of these messages waits.
    Changed,
    /// The task of a handler ended with a fault, or was aborted.
    HandlerEnded(HandlerEnd<CallFailure>),
    /// A limit may have passed.
    Tick,
    /// Ends the handlers, and then the actor.
    Stop,
    Snapshot(oneshot::Sender<ServerSnapshot>),
    #[cfg(feature = "testing")]
    Panic,
}

actor_message!(ServerMessage);

/// The messages of the callbacks actor.
pub(crate) enum CallbacksMessage {
    Request {
        answer: Answer,
        body: CallbackRequest,
        /// Released when the actor takes the message.
        permit: OwnedSemaphorePermit,
    },
    /// The task of a handler ended with a fault, or was aborted.
    HandlerEnded(HandlerEnd<HandlerFault>),
    Tick,
    Stop,
    Snapshot(oneshot::Sender<CallbacksSnapshot>),
    #[cfg(feature = "testing")]
    Panic,
}

actor_message!(CallbacksMessage);

/// The messages of the port.
pub(crate) enum PortMessage {
    /// The incarnation has ended, and its end was told to the supervisor. Nothing of it is left.
    Ended,
    #[cfg(feature = "testing")]
    Panic,
}

actor_message!(PortMessage);

/// The end of an incarnation.
#[derive(Clone, Debug)]
pub(crate) enum PortEnd {
    /// The end was asked for.
    Asked,
    /// The CLI ended by itself, or was ended because it did not do what it was told.
    Died(ExitCause),
    /// The CLI exited with a failure code right after the error result that announced it: on purpose, not a crash.
    AfterErrorResult(ExitCause),
    /// The CLI ignored a part of `initialize`. The next incarnation is told by arguments.
    Reregister,
}
