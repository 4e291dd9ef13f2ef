//! The queue of requests to one tool server. It outlives the server's actor, which takes the requests: requests that arrive
//! during a restart wait here, in order.
//!
//! ```text
//!                ┌────────────────── the actor starts ─────────────────┐
//!                ▼                                                     │
//!              Open ── the actor ends ──► Suspended ── given up ──► Failed   (also from Open)
//!   a request    │ wakes the actor           │ waits, at most            │ is refused
//!                │                           │ Timeouts::server_restart  │
//!                └────────────┬──────────────┴───────────────────────────┘
//!                             ▼ the server is removed, or the session stops
//!                           Closed: a request is refused
//! ```
//!
//! A queue begins as `Suspended`. An actor that has ended leaves its queue `Open` until the supervisor knows: requests wait
//! then too.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::actor::request::answer::Answer;
use crate::actor::request::waiting::WaitingRequests;
use crate::lock::lock;
use crate::wire::rpc::{Rpc, RpcError};

/// A message to a tool server.
pub(crate) enum McpMessage {
    /// A tool call read in one pass: its arguments. The [`RequestIds`](crate::wire::fast::request_ids::RequestIds) hold
    /// the rest. Only for servers with tools of their own.
    Call(Option<Box<RawValue>>),
    /// Any message, parsed as JSON-RPC.
    Rpc(Rpc),
}

/// The queue of one tool server.
pub(crate) struct ServerQueue {
    name: String,
    /// Most messages in the queue.
    capacity: usize,
    /// Nothing may panic under this lock, and no code of the application runs under it.
    queue: Mutex<Queue>,
}

struct Queue {
    stage: QueueStage,
    waiting: WaitingRequests<McpMessage>,
}

enum QueueStage {
    /// The actor runs. Wakes it; called when the queue was empty.
    Open(Arc<dyn Fn() + Send + Sync>),
    /// The server has not started, or restarts.
    Suspended,
    /// Given up, for this cause.
    Failed(String),
    Closed,
}

/// Room for notifications and cancelled requests, above the requests that a server may have in flight.
const EXTRA: usize = 1024;

impl ServerQueue {
    /// A queue for a server that has not started. `in_flight`: most requests in flight. `limit`: how long requests wait
    /// while the server restarts.
    pub(crate) fn new(name: String, in_flight: usize, limit: Duration) -> Self {
        let waiting = WaitingRequests::new(limit);
        let queue = Queue { stage: QueueStage::Suspended, waiting };
        Self { name, capacity: in_flight.saturating_add(EXTRA), queue: Mutex::new(queue) }
    }

    /// Adds a request. Refuses the request if the queue is full, failed or closed.
    pub(crate) fn push(self: &Arc<Self>, answer: Answer, message: McpMessage) {
        let mut queue = lock(&self.queue);
        if queue.waiting.len() >= self.capacity {
            queue.waiting.drop_settled();
        }
        let error = match &queue.stage {
            QueueStage::Failed(cause) => self.has_failed(cause),
            QueueStage::Closed => RpcError::unknown_server(&self.name),
            QueueStage::Open(_) | QueueStage::Suspended if queue.waiting.len() >= self.capacity => {
                let text =
                    format!("at capacity: {} messages to MCP server '{}' wait", self.capacity, self.name);
                RpcError::internal(text)
            }
            QueueStage::Open(wake) => {
                // Called after the lock is released. An actor that was started meanwhile looks itself.
                let wake = (queue.waiting.len() == 0).then(|| wake.clone());
                queue.waiting.push(answer, message);
                drop(queue);
                return wake.into_iter().for_each(|wake| wake());
            }
            QueueStage::Suspended => {
                queue.waiting.push(answer, message);
                return self.arm(&mut queue);
            }
        };
        drop(queue);
        answer.pending().refuse(&error);
    }

    /// Takes all requests, oldest first. For the server's actor.
    pub(crate) fn take(&self) -> VecDeque<(Answer, McpMessage)> {
        lock(&self.queue).waiting.take()
    }

    /// The server's actor has started: `wake` tells it that there are requests.
    pub(crate) fn open(&self, wake: impl Fn() + Send + Sync + 'static) {
        let wake = Arc::new(wake);
        let has_requests = {
            let mut queue = lock(&self.queue);
            queue.stage = QueueStage::Open(wake.clone());
            queue.waiting.stop_timer();
            queue.waiting.len() > 0
        };
        if has_requests {
            wake();
        }
    }

    /// The server's actor has ended, and will be started again.
    pub(crate) fn suspend(self: &Arc<Self>) {
        let mut queue = lock(&self.queue);
        queue.stage = QueueStage::Suspended;
        self.arm(&mut queue);
    }

    /// The server's actor has ended, and the server is given up.
    pub(crate) fn fail(&self, cause: &str) {
        self.refuse_all(QueueStage::Failed(cause.to_owned()), &self.has_failed(cause));
    }

    /// The server was removed, or stopped with the session.
    pub(crate) fn close(&self) {
        self.refuse_all(QueueStage::Closed, &RpcError::unknown_server(&self.name));
    }

    fn refuse_all(&self, stage: QueueStage, error: &RpcError) {
        let (waiting, before) = {
            let mut queue = lock(&self.queue);
            (queue.waiting.take(), std::mem::replace(&mut queue.stage, stage))
        };
        drop(before);
        let open = waiting.iter().filter(|(answer, _)| answer.pending().is_open());
        open.for_each(|(answer, _)| answer.pending().refuse(error));
    }

    fn has_failed(&self, cause: &str) -> RpcError {
        RpcError::internal(format!("MCP server '{}' has failed: {cause}", self.name))
    }

    /// Sets the timer for the oldest request.
    fn arm(self: &Arc<Self>, queue: &mut Queue) {
        let this = Arc::downgrade(self);
        queue.waiting.arm(move || {
            if let Some(this) = this.upgrade() {
                this.refuse_expired(Instant::now());
            }
        });
    }

    /// Refuses the requests that have waited too long for a restart.
    fn refuse_expired(self: &Arc<Self>, now: Instant) {
        let (late, limit) = {
            let mut queue = lock(&self.queue);
            if !matches!(queue.stage, QueueStage::Suspended) {
                return;
            }
            let late = queue.waiting.take_expired(now);
            self.arm(&mut queue);
            (late, queue.waiting.limit())
        };
        let name = &self.name;
        let text = format!("MCP server '{name}' was restarting and did not come back within {limit:?}");
        let error = RpcError::internal(text);
        let open = late.iter().filter(|answer| answer.pending().is_open());
        open.for_each(|answer| answer.pending().refuse(&error));
    }
}

// Guards: answered-once
#[cfg(test)]
mod tests;
