//! The messages of a tool server's actor.

use tokio::sync::oneshot;

use crate::actor::actor_message;
use crate::actor::request::handlers::HandlerEnd;
use crate::report::ServerSnapshot;
use crate::tool::run::erased::AnyState;

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
    /// The task of a handler panicked or was aborted.
    HandlerEnded(HandlerEnd<String>),
    /// A limit may have passed.
    Tick,
    /// Ends the handlers, and then the actor.
    Stop,
    Snapshot(oneshot::Sender<ServerSnapshot>),
    #[cfg(feature = "testing")]
    Panic,
}

actor_message!(ServerMessage);
