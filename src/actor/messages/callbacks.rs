//! The messages of the callbacks' actor.

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::actor::actor_message;
use crate::actor::callbacks::kind::HandlerFault;
use crate::actor::request::answer::Answer;
use crate::actor::request::handlers::HandlerEnd;
use crate::report::CallbacksSnapshot;
use crate::wire::envelope::CallbackRequest;

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
