//! The messages of the router.

use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::actor::actor_message;
use crate::error::{Error, ErrorKind, Result};
use crate::wire::envelope::ControlReply;

/// The messages of the router.
pub(crate) enum RouterMessage {
    /// An incarnation has ended, and will answer no more.
    Ended,
    /// The CLI answers.
    Reply {
        reply: ControlReply,
        /// The answer is to a setting, and the reader has noted it.
        was_setting: bool,
        /// Bounds the answers in the mailbox.
        permit: Option<OwnedSemaphorePermit>,
    },
    /// Send a request to the CLI.
    Send(OutboundRequest),
    /// The future of a request to the CLI was dropped.
    Withdraw { request_id: String },
    /// A deadline may have passed.
    Tick,
    /// Answers with the number of requests to the CLI that wait for an answer.
    Snapshot(oneshot::Sender<usize>),
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

/// The error of a request that no incarnation can be asked now.
pub(crate) fn not_ready() -> Error {
    Error::new(ErrorKind::NotReady, "the session has no CLI to talk to at this moment")
}
