//! The messages of the router.

use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::actor::actor_message;
use crate::error::Result;
use crate::report::RouterSnapshot;
use crate::wire::envelope::ControlReply;

/// The messages of the router.
pub(crate) enum RouterMessage {
    /// An incarnation has ended, and will answer no more.
    Ended,
    /// The CLI answers. The permit bounds the answers in the mailbox.
    Reply(ControlReply, Option<OwnedSemaphorePermit>),
    /// Send a request to the CLI.
    Send(OutboundRequest),
    /// The future of a request to the CLI was dropped.
    Withdraw {
        request_id: String,
    },
    /// A deadline may have passed.
    Tick,
    Snapshot(oneshot::Sender<RouterSnapshot>),
    #[cfg(feature = "testing")]
    Panic,
}

actor_message!(RouterMessage);

/// A request to the CLI.
pub(crate) struct OutboundRequest {
    pub(crate) request_id: String,
    /// The body, with `subtype`.
    pub(crate) body: Value,
    pub(crate) limit: Duration,
    /// The incarnation whose handshake the request belongs to, and which alone may read it. The handshake asks before
    /// the application may, and repeats earlier settings.
    pub(crate) handshake: Option<u64>,
    pub(crate) reply: oneshot::Sender<Result<Box<RawValue>>>,
}
