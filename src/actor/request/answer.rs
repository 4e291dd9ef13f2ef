//! The duty to answer one request.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::time::Instant;

use super::pending::{PendingRequest, RequestKind, RequestOrigin};
use crate::actor::base::gate::Gate;
use crate::wire::fast::request_ids::RequestIds;
use crate::wire::rpc::RpcError;

/// The duty to answer one request. Dropped before the request is settled, it answers with an error: so a request that
/// is lost in the mailbox of an actor that ended, or in an aborted task, is answered too.
#[derive(Debug)]
pub(crate) struct Answer(Option<Arc<PendingRequest>>);

impl Answer {
    /// Opens a request: counts it, and enters its gates.
    pub(crate) fn open(
        origin: &Arc<RequestOrigin>,
        ids: RequestIds,
        kind: RequestKind,
        received: Instant,
        server_gate: Option<Arc<Gate>>,
        span: tracing::Span,
    ) -> Self {
        Self(Some(Arc::new(PendingRequest::open(origin, ids, kind, received, server_gate, span))))
    }

    pub(crate) fn pending(&self) -> &Arc<PendingRequest> {
        match &self.0 {
            Some(pending) => pending,
            // Only methods that consume `self` take the value.
            None => unreachable!("an answer is used after it was given"),
        }
    }

    /// Settles the request without an answer: another one has its id, or the CLI wants none.
    pub(crate) fn without_answer(self) {
        self.hand_over().orphan();
    }

    /// Gives the duty to the caller, who has to settle the request.
    pub(crate) fn hand_over(mut self) -> Arc<PendingRequest> {
        match self.0.take() {
            Some(pending) => pending,
            None => unreachable!("an answer is handed over once"),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(pending) = &self.0
            && pending.is_open()
        {
            pending.refuse(&RpcError::internal(
                "the request was lost before it was answered: what should have answered it has ended",
            ));
            pending.cancel.cancel();
        }
    }
}

/// Drops settled requests from a full list before it grows. A cancelled request leaves its gates at once and stays in
/// such a list, so the gates do not bound the list. Runs only when the list has reached twice its length after the last
/// run.
pub(crate) fn drop_settled<T>(list: &mut VecDeque<T>, is_open: impl FnMut(&T) -> bool) {
    const LEAST: usize = 16;
    if list.len() == list.capacity() {
        list.retain(is_open);
        list.reserve_exact(list.len().max(LEAST));
    }
}
