//! Calls by their JSON-RPC id, for the CLI to cancel them.
//!
//! Few calls are cancelled, so the index is made when it is asked for, and only of what has come since it was asked last.
//! The ids of one MCP session mean nothing in the next.

use std::collections::HashMap;

use super::CallJob;
use crate::actor::work::{JobId, Work};

#[derive(Debug, Default)]
pub(super) struct RpcIndex {
    jobs: HashMap<String, JobId>,
    /// Calls before this one are in the index, or of an older MCP session.
    upto: JobId,
}

impl RpcIndex {
    /// A new MCP session begins with this call.
    pub(super) fn begin(&mut self, next: JobId) {
        self.jobs.clear();
        self.upto = next;
    }

    /// The call with this id; of several, the newest.
    pub(super) fn find(&mut self, rpc_id: &str, work: &Work<CallJob>) -> Option<JobId> {
        for (id, job) in work.since(self.upto) {
            if let Some(rpc_id) = job.owed.head().rpc_id() {
                let newest = self.jobs.entry(rpc_id.to_owned()).or_insert(id);
                *newest = id.max(*newest);
            }
        }
        self.upto = work.next_id();
        self.jobs.get(rpc_id).copied()
    }

    /// A call is off the books.
    pub(super) fn forget(&mut self, id: JobId, rpc_id: Option<&str>) {
        if id < self.upto
            && let Some(rpc_id) = rpc_id
            && self.jobs.get(rpc_id) == Some(&id)
        {
            self.jobs.remove(rpc_id);
        }
        if self.jobs.is_empty() {
            // It may have been large.
            self.jobs = HashMap::new();
        }
    }
}
