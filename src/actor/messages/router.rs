//! The messages of the router, and the link by which others reach the router.

use std::sync::Arc;
use std::time::Duration;

use ractor::ActorRef;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::sync::watch;

use crate::actor::actor_message;
use crate::actor::messages::callbacks::CallbacksMessage;
use crate::actor::messages::inbound::InboundBody;
use crate::actor::messages::permits::MailboxPermit;
use crate::actor::request::answer::Answer;
use crate::actor::request::ledger::Ledger;
use crate::actor::router::routes::{Known, RoutedGuard, Routes};
use crate::error::Result;
use crate::report::RouterSnapshot;
use crate::wire::envelope::ControlReply;

/// The messages of the router.
pub(crate) enum RouterMessage {
    /// An incarnation has ended: its requests, and those of all before it, cannot be answered any more.
    Ended {
        epoch: u64,
    },
    /// An admitted request that has no route, or is behind one that has none.
    Request {
        answer: Answer,
        body: InboundBody,
        permit: MailboxPermit,
        /// For a message to a tool server.
        routed: Option<RoutedGuard>,
    },
    /// The CLI answers.
    Reply(ControlReply, MailboxPermit),
    /// Enough requests were settled for a sweep of the ledger.
    Sweep,
    /// Send a request to the CLI.
    Send(OutboundRequest),
    /// The future of a request to the CLI was dropped.
    Withdraw {
        request_id: String,
    },
    /// A deadline may have passed.
    Tick,
    /// The state of a tool server has changed; `None` if the server was removed from the session.
    Server(String, Option<Known>),
    /// The callbacks were restarted.
    CallbacksUp(ActorRef<CallbacksMessage>),
    /// Cancel all open requests.
    CancelAll,
    Snapshot(oneshot::Sender<RouterSnapshot>),
    #[cfg(feature = "testing")]
    Panic,
}

actor_message!(RouterMessage);

/// A router, its ledger, and the routes that it publishes.
#[derive(Clone, Debug)]
pub(crate) struct RouterLink {
    pub(crate) actor: ActorRef<RouterMessage>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) routes: watch::Receiver<Arc<Routes>>,
}

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
