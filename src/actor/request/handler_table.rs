//! The handlers of one actor that run, and their deadlines.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::time::Instant;

use super::is_roomy;
use super::pending::PendingRequest;
use crate::actor::base::deadlines::Deadlines;
use crate::lock::lock;
use crate::wire::rpc::RpcError;

/// Numbers the handlers of one actor. Request ids do not: the CLI may use the id of a settled request again while the
/// handler of the first request still has its grace time.
pub(crate) type HandlerId = u64;

/// Entry of a handler in the table of its actor.
#[derive(Clone)]
pub(crate) struct RunningHandler<L> {
    pub(crate) pending: Arc<PendingRequest>,
    /// Kept for the actor.
    pub(crate) label: L,
    /// Time limit, counted from the arrival of the request.
    pub(crate) limit: Option<Duration>,
    pub(super) deadline: Option<Instant>,
}

/// The running handlers. Nothing may panic under this lock, and no code of the application runs under it.
pub(crate) struct HandlerTable<L>(Mutex<HandlerEntries<L>>);

struct HandlerEntries<L> {
    handlers: HashMap<HandlerId, RunningHandler<L>, RandomState>,
    deadlines: Deadlines<HandlerId>,
}

impl<L> Default for HandlerEntries<L> {
    fn default() -> Self {
        Self { handlers: HashMap::default(), deadlines: Deadlines::new() }
    }
}

impl<L> HandlerTable<L> {
    pub(super) fn new() -> Self {
        Self(Mutex::default())
    }

    pub(super) fn insert(&self, id: HandlerId, handler: RunningHandler<L>) {
        let mut running = lock(&self.0);
        if let Some(deadline) = handler.deadline {
            running.deadlines.insert(deadline, id);
        }
        running.handlers.insert(id, handler);
    }

    /// Removes a handler that has ended.
    pub(crate) fn remove(&self, id: HandlerId) -> Option<RunningHandler<L>> {
        let mut running = lock(&self.0);
        let handler = running.handlers.remove(&id)?;
        if let Some(deadline) = handler.deadline {
            running.deadlines.remove(deadline, id);
        }
        let (capacity, len) = (running.handlers.capacity(), running.handlers.len());
        if is_roomy(capacity, len) {
            running.handlers.shrink_to(2 * len);
        }
        Some(handler)
    }

    fn pending(&self) -> Vec<Arc<PendingRequest>> {
        lock(&self.0).handlers.values().map(|handler| handler.pending.clone()).collect()
    }

    /// Answers all requests with an error, and cancels their handlers.
    pub(super) fn refuse_all(&self, text: &str) {
        let all = self.pending();
        for pending in all.iter().filter(|pending| pending.is_open()) {
            pending.refuse(&RpcError::internal(text));
        }
        for pending in all {
            pending.cancel.cancel();
        }
    }

    /// Aborts all handlers.
    pub(super) fn abort_all(&self) {
        for pending in self.pending() {
            pending.cancel.abort();
        }
    }

    /// Forgets all handlers.
    pub(super) fn clear(&self) {
        let handlers = std::mem::take(&mut *lock(&self.0));
        drop(handlers);
    }
}

impl<L: Clone> HandlerTable<L> {
    /// The handlers that run, in any order.
    pub(crate) fn running(&self) -> Vec<RunningHandler<L>> {
        lock(&self.0).handlers.values().cloned().collect()
    }

    /// The newest handler that works at a request with this JSON-RPC id, from the handler `first` on. Visits all
    /// handlers: few calls are cancelled.
    pub(crate) fn find(&self, first: HandlerId, rpc_id: &str) -> Option<RunningHandler<L>> {
        let running = lock(&self.0);
        let meant = |(id, handler): &(&HandlerId, &RunningHandler<L>)| {
            **id >= first && handler.pending.ids().rpc_id() == Some(rpc_id)
        };
        running.handlers.iter().filter(meant).max_by_key(|(id, _)| **id).map(|(_, handler)| handler.clone())
    }

    /// Arranges that `wake` is called at the next deadline: see [`Deadlines::arm`].
    pub(crate) fn arm(&self, wake: impl FnOnce() + Send + 'static) {
        lock(&self.0).deadlines.arm(wake);
    }

    /// The handlers that have not answered within their limit; each is returned once. They still run: the caller answers
    /// their requests and cancels their tokens.
    pub(crate) fn expired(&self, now: Instant) -> Vec<RunningHandler<L>> {
        let mut running = lock(&self.0);
        let HandlerEntries { handlers, deadlines } = &mut *running;
        let expired = deadlines.expired(now).into_iter().filter_map(|id| {
            let handler = handlers.get_mut(&id)?;
            handler.deadline = None;
            handler.pending.is_open().then(|| handler.clone())
        });
        expired.collect()
    }
}
