//! The messages of the callbacks' actor.

use tokio::sync::oneshot;

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
    },
    /// The task of a handler ended with a fault, was aborted, or a sweep is due.
    HandlerEnded(HandlerEnd<HandlerFault>),
    Tick,
    Stop,
    Snapshot(oneshot::Sender<CallbacksSnapshot>),
    #[cfg(feature = "testing")]
    Panic,
}

actor_message!(CallbacksMessage);
