//! Forwards the CLI's answers to the session's router, across its restarts.

use std::sync::Arc;

use ractor::{ActorRef, MessagingErr};
use tokio::sync::{Semaphore, watch};

use crate::actor::context::Shared;
use crate::actor::messages::router::RouterMessage;
use crate::wire::envelope::ControlReply;

/// Most answers in the router's mailbox.
const REPLIES: usize = 16;

/// Sends the answers of the CLI to the current router.
pub(super) struct ReplyForwarder {
    shared: Arc<Shared>,
    routers: watch::Receiver<Option<ActorRef<RouterMessage>>>,
    /// `None` if the last one has ended, and no other has started in time.
    router: Option<ActorRef<RouterMessage>>,
    room: Arc<Semaphore>,
}

impl ReplyForwarder {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let mut routers = shared.router.subscribe();
        let router = routers.borrow_and_update().clone();
        Self { shared, routers, router, room: Arc::new(Semaphore::new(REPLIES)) }
    }

    /// Sends an answer. Waits for room in the router's mailbox, and for the next router if the current one has ended.
    pub(super) async fn send(&mut self, reply: ControlReply) {
        if self.routers.has_changed().unwrap_or(false) {
            self.router = self.routers.borrow_and_update().clone();
        }
        // The semaphore is never closed.
        let mut message = RouterMessage::Reply(reply, self.room.clone().acquire_owned().await.ok());
        while let Some(router) = &self.router {
            let Err(MessagingErr::SendErr(back)) = router.cast(message) else { return };
            message = back;
            self.follow().await;
        }
        // The caller that asked has an error already: its router has ended.
    }

    /// Waits up to `timeouts.child_stop` for the router that follows the current one, which has ended.
    async fn follow(&mut self) {
        let ended = self.router.take().map(|router| router.get_id());
        let limit = self.shared.options().timeouts.child_stop;
        let is_next = |router: &Option<ActorRef<RouterMessage>>| {
            router.as_ref().is_some_and(|router| Some(router.get_id()) != ended)
        };
        if let Ok(Ok(next)) = tokio::time::timeout(limit, self.routers.wait_for(is_next)).await {
            self.router = next.clone();
        }
    }
}
