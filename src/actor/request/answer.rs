//! The duty to answer one request.

use std::sync::Arc;

use super::pending::{Full, PendingRequest, RequestKind, RequestOrigin};
use crate::actor::base::gate::Gate;
use crate::wire::fast::request_ids::RequestIds;
use crate::wire::rpc::RpcError;

/// The duty to answer one request. Dropped before the request is settled, it answers with an error: so a request that
/// is lost in the mailbox of an actor that ended, or in an aborted task, is answered too.
#[derive(Debug)]
pub(crate) struct Answer(Option<Arc<PendingRequest>>);

impl Answer {
    /// Opens a request: counts it, and enters its gates. Returns also the limit that is reached, if any.
    pub(crate) fn open(
        origin: &Arc<RequestOrigin>,
        ids: RequestIds,
        kind: RequestKind,
        server_gate: Option<Arc<Gate>>,
        span: tracing::Span,
    ) -> (Self, Option<Full>) {
        let (pending, full) = PendingRequest::open(origin, ids, kind, server_gate, span);
        (Self(Some(Arc::new(pending))), full)
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
