//! The messages of the port, the actor of one incarnation.

use crate::actor::actor_message;
use crate::report::ExitCause;

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
