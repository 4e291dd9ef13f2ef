//! Requests of tool servers to the CLI that wait for an answer.
//!
//! The CLI acknowledges such a request as a control request, and answers it with a message of its own to the same
//! server. The ids are texts that begin with [`ID_PREFIX`], so that no id equals one of the CLI's, which are numbers.
//!
//! A waiter is settled by the answer, the refusal of the control request, the limit, or the end of its call,
//! incarnation or server, whichever comes first. Settling removes its entry.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::actor::outbound::Outbound;
use crate::lock::lock;
use crate::tool::RequestError;
use crate::wire::RpcError;
use crate::wire::outgoing::{OutMcp, OutRequest};
use crate::wire::rpc::RpcNotification;

const ID_PREFIX: &str = "greenroom_";

/// The answer to a server's request.
pub(crate) type RequestAnswer = Result<Box<RawValue>, RequestError>;

/// The waiting requests of one session, by number.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    waiters: Mutex<HashMap<u64, Waiter>>,
    next: AtomicU64,
}

#[derive(Debug)]
struct Waiter {
    server: String,
    generation: u32,
    answer: oneshot::Sender<RequestAnswer>,
}

/// A waiting request. Dropped unanswered, it is cancelled at the CLI.
pub(crate) struct SentRequest<'a> {
    outgoing: &'a Outgoing,
    outbound: &'a Outbound,
    server: &'a str,
    number: u64,
    /// Whether the CLI may have seen the request.
    pub(crate) sent: bool,
    pub(crate) answer: oneshot::Receiver<RequestAnswer>,
}

impl Outgoing {
    /// Registers a request, unless `most` requests of this server wait already.
    pub(crate) fn open<'a>(
        &'a self,
        server: &'a str,
        generation: u32,
        outbound: &'a Outbound,
        most: usize,
    ) -> Result<SentRequest<'a>, RequestError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        let mut waiters = lock(&self.waiters);
        if waiters.values().filter(|waiter| waiter.server == server).count() >= most {
            return Err(RequestError::AtCapacity(most));
        }
        waiters.insert(number, Waiter { server: server.to_owned(), generation, answer: sender });
        Ok(SentRequest { outgoing: self, outbound, server, number, sent: false, answer })
    }

    /// Settles the request with this JSON-RPC id; false if there is none.
    pub(crate) fn answered(
        &self,
        server: &str,
        id: &RawValue,
        outcome: Result<Box<RawValue>, RpcError>,
    ) -> bool {
        let id = serde_json::from_str::<String>(id.get()).unwrap_or_default();
        let number = id.strip_prefix(ID_PREFIX).and_then(|number| number.parse().ok());
        self.settle(number, |waiter| waiter.server == server, outcome.map_err(RequestError::Refused))
    }

    /// Settles the request whose control request the CLI refused; false if there is none.
    pub(crate) fn not_taken(&self, request_id: &str, reason: &str) -> bool {
        let number = request_id.strip_prefix(PUSH_PREFIX).and_then(|number| number.parse().ok());
        self.settle(number, |_| true, Err(RequestError::NotTaken(reason.to_owned())))
    }

    /// Settles all requests of an ended server.
    pub(crate) fn end(&self, server: &str, generation: u32) {
        let ended = |_: &u64, waiter: &mut Waiter| waiter.server == server && waiter.generation <= generation;
        let ended: Vec<_> = lock(&self.waiters).extract_if(ended).collect();
        for (_, waiter) in ended {
            // Fails if the receiver was dropped.
            waiter.answer.send(Err(RequestError::ServerEnded)).ok();
        }
    }

    /// Number of waiting requests of a server.
    pub(crate) fn of(&self, server: &str) -> usize {
        lock(&self.waiters).values().filter(|waiter| waiter.server == server).count()
    }

    fn settle(&self, number: Option<u64>, fits: impl FnOnce(&Waiter) -> bool, answer: RequestAnswer) -> bool {
        let Some(number) = number else { return false };
        let waiter = {
            let mut waiters = lock(&self.waiters);
            if !waiters.get(&number).is_some_and(fits) {
                return false;
            }
            waiters.remove(&number)
        };
        waiter.is_some_and(|waiter| waiter.answer.send(answer).is_ok())
    }
}

impl SentRequest<'_> {
    /// The JSON-RPC id.
    pub(crate) fn id(&self) -> String {
        format!("{ID_PREFIX}{}", self.number)
    }

    /// The id of the control request.
    pub(crate) fn request_id(&self) -> String {
        format!("{PUSH_PREFIX}{}", self.number)
    }
}

impl Drop for SentRequest<'_> {
    fn drop(&mut self) {
        let unanswered = lock(&self.outgoing.waiters).remove(&self.number).is_some();
        if unanswered && self.sent {
            let params = serde_json::json!({ "requestId": self.id() });
            let body =
                OutMcp::new(self.server, RpcNotification::new("notifications/cancelled", Some(params)));
            let request_id = format!("{}_cancel", self.request_id());
            if let Ok(json) = serde_json::to_vec(&OutRequest::new(&request_id, body)) {
                // Fails if the incarnation has ended, and the request with it.
                self.outbound.send(json).ok();
            }
        }
    }
}

/// Prefix of the ids of pushed notifications, whose acknowledgement by the CLI is ignored.
pub(crate) const PUSH_PREFIX: &str = "push_";
