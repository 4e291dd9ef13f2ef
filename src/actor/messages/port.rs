//! The messages of the port, the actor of one incarnation.

use tokio::sync::oneshot;

use crate::actor::actor_message;
use crate::actor::incarnation::feeder::FeederHandle;
use crate::actor::outbound::Outbound;
use crate::report::{CliSnapshot, ExitCause};
use crate::transport::ContainedBy;

/// The messages of the port.
pub(crate) enum PortMessage {
    /// The CLI was started.
    Opened(OpenCli),
    /// The CLI has answered `initialize`.
    Ready { version: Option<String> },
    /// The incarnation has ended, and its end was told to the supervisor. Nothing of it is left.
    Ended,
    /// End the CLI in order.
    Shutdown,
    /// End the CLI at once: it does not do what it was told.
    GiveUp(String),
    /// Report the incarnation's state. The asker waits for the messages of the flush before it asks the conversation.
    Snapshot(oneshot::Sender<(CliSnapshot, Option<FeederHandle>)>),
    #[cfg(feature = "testing")]
    Panic,
}

actor_message!(PortMessage);

/// A CLI that was started.
pub(crate) struct OpenCli {
    pub(crate) outbound: Outbound,
    pub(crate) pid: Option<u32>,
    pub(crate) contained_by: Option<ContainedBy>,
    pub(crate) messages: FeederHandle,
}

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
