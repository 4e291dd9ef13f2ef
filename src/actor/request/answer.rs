//! The duty to answer one request.

use std::sync::Arc;

use super::pending::PendingRequest;
use crate::wire::rpc::RpcError;

/// The duty to answer one request. Dropped before the request is settled, it answers with an error: so a request that
/// is lost in the mailbox of an actor that ended, or in an aborted task, is answered too.
pub(crate) struct Answer(Arc<PendingRequest>);

impl Answer {
    pub(crate) fn new(pending: PendingRequest) -> Self {
        Self(Arc::new(pending))
    }

    pub(crate) fn pending(&self) -> &Arc<PendingRequest> {
        &self.0
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if self.0.is_open() {
            self.0.refuse(&RpcError::internal(
                "the request was lost before it was answered: what should have answered it has ended",
            ));
            self.0.cancel.cancel();
        }
    }
}
