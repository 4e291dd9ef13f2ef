//! Finds calls by their JSON-RPC id, for the CLI to cancel them.
//!
//! Few calls are cancelled, so the index is built on demand, and only of the calls since the last look-up. The ids of
//! one MCP session mean nothing in the next.

use std::collections::HashMap;
use std::sync::Arc;

use super::ServerCall;
use crate::actor::request::handlers::{HandlerId, HandlerTasks};

#[derive(Debug, Default)]
pub(super) struct RpcIndex {
    handlers: HashMap<String, HandlerId>,
    /// Handlers before this one are in the index, or belong to an older MCP session.
    upto: HandlerId,
}

impl RpcIndex {
    /// Starts a new MCP session with the handler `next`.
    pub(super) fn begin(&mut self, next: HandlerId) {
        self.handlers.clear();
        self.upto = next;
    }

    /// The newest call with this id.
    pub(super) fn find(
        &mut self,
        rpc_id: &str,
        handlers: &HandlerTasks<Arc<ServerCall>>,
    ) -> Option<HandlerId> {
        for (id, handler) in handlers.since(self.upto) {
            if let Some(rpc_id) = handler.pending.ids().rpc_id() {
                let newest = self.handlers.entry(rpc_id.to_owned()).or_insert(id);
                *newest = id.max(*newest);
            }
        }
        self.upto = handlers.next_id();
        self.handlers.get(rpc_id).copied()
    }

    /// Removes a call whose handler has ended.
    pub(super) fn forget(&mut self, id: HandlerId, rpc_id: Option<&str>) {
        if id < self.upto
            && let Some(rpc_id) = rpc_id
            && self.handlers.get(rpc_id) == Some(&id)
        {
            self.handlers.remove(rpc_id);
        }
        if self.handlers.is_empty() {
            // Frees the memory of a large index.
            self.handlers = HashMap::new();
        }
    }
}
