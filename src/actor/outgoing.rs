//! The requests of tool servers to the CLI that wait for an answer.
//!
//! The CLI acknowledges such a request as a control request, and answers it with a message of its own to the same server.
//! The ids are texts that begin with [`ID_PREFIX`], so that even a peer that told answers by their id alone could not take
//! one for an id of the CLI, which are numbers.
//!
//! A waiter is settled by whatever comes first: the answer, the refusal of the control request, the limit, the end of the
//! call that asked, of its incarnation, or of its server. Its entry goes with it: nothing is left in the list.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::lane::Lane;
use super::router::PUSH_PREFIX;
use crate::tool::RequestError;
use crate::wire::RpcError;
use crate::wire::envelope::{OutMcp, OutRequest};
use crate::wire::rpc::Notification;

const ID_PREFIX: &str = "greenroom_";

pub(crate) type Answered = Result<Box<RawValue>, RequestError>;

/// The waiters of one session, by the number of their request.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    waiters: Mutex<HashMap<u64, Waiter>>,
    next: AtomicU64,
}

#[derive(Debug)]
struct Waiter {
    server: String,
    generation: u32,
    answer: oneshot::Sender<Answered>,
}

/// One request that waits. When it is dropped unanswered, the CLI is told that nobody waits any more.
pub(crate) struct Waiting<'a> {
    outgoing: &'a Outgoing,
    lane: &'a Lane,
    server: &'a str,
    number: u64,
    /// Whether the CLI may have seen it.
    pub(crate) sent: bool,
    pub(crate) answer: oneshot::Receiver<Answered>,
}

impl Outgoing {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Waiter>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to wait, unless `most` requests of this server wait already.
    pub(crate) fn open<'a>(
        &'a self,
        server: &'a str,
        generation: u32,
        lane: &'a Lane,
        most: usize,
    ) -> Result<Waiting<'a>, RequestError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        let mut waiters = self.lock();
        if waiters.values().filter(|waiter| waiter.server == server).count() >= most {
            return Err(RequestError::AtCapacity(most));
        }
        waiters.insert(number, Waiter { server: server.to_owned(), generation, answer: sender });
        Ok(Waiting { outgoing: self, lane, server, number, sent: false, answer })
    }

    /// The CLI has answered a server under this JSON-RPC id; false if nobody waits for that.
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

    /// The CLI has answered the control request with this id with an error; false if nobody waits for that.
    pub(crate) fn not_taken(&self, request_id: &str, reason: &str) -> bool {
        let number = request_id.strip_prefix(PUSH_PREFIX).and_then(|number| number.parse().ok());
        self.settle(number, |_| true, Err(RequestError::NotTaken(reason.to_owned())))
    }

    /// A server has ended, and with it what it has asked.
    pub(crate) fn end(&self, server: &str, generation: u32) {
        let ended = |_: &u64, waiter: &mut Waiter| waiter.server == server && waiter.generation <= generation;
        let ended: Vec<_> = self.lock().extract_if(ended).collect();
        for (_, waiter) in ended {
            // Whoever asked may have stopped waiting.
            waiter.answer.send(Err(RequestError::ServerEnded)).ok();
        }
    }

    /// How many of a server wait.
    pub(crate) fn of(&self, server: &str) -> usize {
        self.lock().values().filter(|waiter| waiter.server == server).count()
    }

    fn settle(&self, number: Option<u64>, fits: impl FnOnce(&Waiter) -> bool, answer: Answered) -> bool {
        let Some(number) = number else { return false };
        let waiter = {
            let mut waiters = self.lock();
            if !waiters.get(&number).is_some_and(fits) {
                return false;
            }
            waiters.remove(&number)
        };
        waiter.is_some_and(|waiter| waiter.answer.send(answer).is_ok())
    }
}

impl Waiting<'_> {
    /// The JSON-RPC id.
    pub(crate) fn id(&self) -> String {
        format!("{ID_PREFIX}{}", self.number)
    }

    /// The id of the control request.
    pub(crate) fn request_id(&self) -> String {
        format!("{PUSH_PREFIX}{}", self.number)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let unanswered = self.outgoing.lock().remove(&self.number).is_some();
        if unanswered && self.sent {
            let params = serde_json::json!({ "requestId": self.id() });
            let body = OutMcp::new(self.server, Notification::new("notifications/cancelled", Some(params)));
            let request_id = format!("{}_cancel", self.request_id());
            if let Ok(json) = serde_json::to_vec(&OutRequest::new(&request_id, body)) {
                // An incarnation that has ended works at nothing.
                self.lane.send(json).ok();
            }
        }
    }
}
