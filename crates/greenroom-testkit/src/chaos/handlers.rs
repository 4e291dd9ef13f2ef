//! The planned faults of calls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use greenroom::testing::CallFault;

use crate::base::lock;

/// The planned faults of calls, by request id.
#[derive(Clone, Default)]
pub(super) struct HandlerFaults(Arc<Mutex<HashMap<String, CallFault>>>);

impl HandlerFaults {
    pub(super) fn plan(&self, request_id: &str, fault: CallFault) {
        lock(&self.0).insert(request_id.to_owned(), fault);
    }

    /// Takes the fault of a call, once.
    pub(super) fn take(&self, request_id: &str) -> Option<CallFault> {
        lock(&self.0).remove(request_id)
    }

    /// Forgets the faults of finished calls.
    pub(super) fn forget_all(&self) {
        lock(&self.0).clear();
    }
}
