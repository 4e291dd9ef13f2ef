//! Asks the CLI through the current router.

use std::time::Duration;

use ractor::ActorRef;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::outbound_requests::not_ready;
use crate::actor::context::Shared;
use crate::actor::messages::router::{OutboundRequest, RouterMessage};
use crate::error::{Error, ErrorKind, Result};

/// Asks the CLI. Dropping the future withdraws the request.
pub(crate) async fn ask(shared: &Shared, body: Value, limit: Duration) -> Result<Box<RawValue>> {
    ask_in(shared, body, limit, None).await
}

/// Asks the CLI; with an epoch, during the handshake of that incarnation: what the request sets is not noted as a new
/// setting.
pub(crate) async fn ask_in(
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
    let request_id = shared.next_request_id();
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
