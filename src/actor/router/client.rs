//! Asks the CLI through the current router.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ractor::ActorRef;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::actor::context::Shared;
use crate::actor::messages::router::{OutboundRequest, RouterMessage, not_ready};
use crate::error::{Error, ErrorKind, Result};

/// Asks the CLI. Dropping the future withdraws the request.
pub(crate) async fn ask(shared: &Shared, body: Value, limit: Duration) -> Result<Box<RawValue>> {
    ask_in(shared, body, limit, None).await
}

/// Asks this incarnation and no other, also before it is ready; what the request sets is not noted as a new setting. When
/// the router ends before the CLI has answered, asks through the next router.
pub(crate) async fn ask_through(
    shared: &Shared,
    epoch: u64,
    body: Value,
    deadline: Instant,
) -> Result<Box<RawValue>> {
    let mut routers = shared.router.subscribe();
    loop {
        routers.mark_unchanged();
        let left = deadline.saturating_duration_since(Instant::now());
        match ask_in(shared, body.clone(), left, Some(epoch)).await {
            Err(error)
                if error.kind() == ErrorKind::NotReady
                    && Instant::now() < deadline
                    && shared.cli.outbound_of(epoch).is_some() =>
            {
                // Waits for the next router, or until the deadline.
                tokio::time::timeout_at(deadline, routers.changed()).await.ok();
            }
            answer => return answer,
        }
    }
}

async fn ask_in(
    shared: &Shared,
    body: Value,
    limit: Duration,
    handshake: Option<u64>,
) -> Result<Box<RawValue>> {
    let (reply, answer) = oneshot::channel();
    if shared.ending.gone.is_cancelled() {
        return Err(shared.ending.error());
    }
    let router = shared.router.borrow().clone();
    let router = router.ok_or_else(not_ready)?;
    let request_id = format!("req_{}", shared.asked.fetch_add(1, Ordering::Relaxed));
    let request = OutboundRequest { request_id: request_id.clone(), body, limit, handshake, reply };
    router.cast(RouterMessage::Send(request)).map_err(|_| not_ready())?;
    let mut withdraw = WithdrawOnDrop { router: Some(router), request_id };
    let answer = answer.await;
    withdraw.router = None;
    answer.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::NotReady, "the control router ended before the CLI answered"))
    })
}

struct WithdrawOnDrop {
    /// `None` once the answer came.
    router: Option<ActorRef<RouterMessage>>,
    request_id: String,
}

impl Drop for WithdrawOnDrop {
    fn drop(&mut self) {
        if let Some(router) = self.router.take() {
            let request_id = std::mem::take(&mut self.request_id);
            // A router that has ended has failed its requests.
            router.cast(RouterMessage::Withdraw { request_id }).ok();
        }
    }
}
