//! Answers and wake-ups whose receiver may be gone.

use ractor::{ActorRef, Message, RpcReplyPort};

/// Answers a caller, who may have stopped waiting.
pub(crate) fn respond<T>(reply: impl Into<RpcReplyPort<T>>, answer: T) {
    reply.into().send(answer).ok();
}

/// A function that sends the actor a message. An actor that has ended needs no message.
pub(crate) fn telling<M: Message, F: Fn() -> M + Send + Sync + 'static>(
    actor: &ActorRef<M>,
    message: F,
) -> impl Fn() + Send + Sync + use<M, F> {
    let actor = actor.clone();
    move || drop(actor.cast(message()))
}
