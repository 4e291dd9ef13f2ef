//! The seam between a server's actor and what answers for the server: a [`ToolServer`](crate::ToolServer)'s own MCP
//! session, or a mounted server.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;

use super::erased::StartHandler;
use crate::tool::registry::Lists;
use crate::wire::CallToolResult;
use crate::wire::brief::Short;
use crate::wire::rpc::{CallMeta, CallParams, CancelledParams, INVALID_REQUEST, Rpc, RpcError};

/// The MCP session of one server. The server's actor calls it with the CLI's messages in order; it lives as long as the
/// actor. It runs no code of the application: handlers come back as [`ServiceStep::Call`] or [`ServiceStep::Run`], and
/// run as tasks under the promises of a tool call.
pub(crate) trait Service: Send {
    /// Decides what to do with a request.
    fn request(&mut self, id: Box<RawValue>, method: String, params: Option<Box<RawValue>>) -> ServiceStep;

    /// Decides what to do with a notification.
    fn notification(&mut self, method: &str, params: Option<Box<RawValue>>) -> ServiceStep;

    /// Number of `initialize` requests so far. Each starts a new MCP session, in which request ids begin again.
    fn sessions(&self) -> u64;

    /// The lists that the server offers now.
    fn lists(&self) -> &Arc<Lists>;

    /// Another CLI is ready, or the server's actor was restarted. The CLI knows the lists it was last told.
    fn opened(&mut self);

    /// The registry may have changed: takes the new lists, and returns the notifications that the CLI has to get.
    fn refresh(&mut self) -> Vec<&'static str>;

    /// Decides what to do with a message.
    fn step(&mut self, rpc: Rpc) -> ServiceStep {
        match rpc {
            Rpc::Request { id, method, params } => self.request(id, method, params),
            Rpc::Notification { method, params } => self.notification(&method, params),
            Rpc::Response => ServiceStep::Unasked,
            Rpc::Malformed => ServiceStep::Reply {
                id: RawValue::NULL.to_owned(),
                outcome: Err(RpcError::new(INVALID_REQUEST, "not a JSON-RPC message")),
            },
        }
    }
}

/// The actor's next step for a message.
pub(crate) enum ServiceStep {
    /// Answer with this result.
    Reply { id: Box<RawValue>, outcome: Result<Value, RpcError> },
    /// Call a tool.
    Call { id: Box<RawValue>, params: CallParams },
    /// Run a handler that is not a tool's.
    Run { id: Box<RawValue>, run: HandlerRun },
    /// Cancel the request with this id in the newest MCP session.
    Cancelled(CancelledParams),
    /// Count an answer to a request that the server has not sent, and acknowledge it.
    Unasked,
    /// Nothing; over the control protocol the message is acknowledged.
    Ack,
}

/// A handler to run for a request that is not a tool call.
pub(crate) struct HandlerRun {
    pub(crate) method: &'static str,
    /// A URI or a name.
    pub(crate) subject: String,
    pub(crate) meta: CallMeta,
    /// Index of the server's state that the handler gets.
    pub(crate) state: Option<usize>,
    /// Overrides the session's limit.
    pub(crate) timeout: Option<Duration>,
    pub(crate) start: StartHandler,
}

impl HandlerRun {
    /// Whether the request calls a tool: a mounted server runs its tools itself.
    pub(crate) fn is_tool(&self) -> bool {
        self.method == "tools/call"
    }

    /// For events and errors: the tool's name, or the method and the subject.
    pub(crate) fn label(&self) -> String {
        match (self.is_tool(), &*self.subject) {
            (true, tool) => Short(tool).to_string(),
            (false, "") => self.method.to_owned(),
            (false, subject) => format!("{} {}", self.method, Short(subject)),
        }
    }
}

/// The result of a tool call whose handler exceeded its limit.
pub(crate) fn late_result(tool: &str, limit: Duration) -> CallToolResult {
    CallToolResult::error(format!("tool {}", late(tool, limit)))
}

/// The answer to another request whose handler exceeded its limit.
pub(crate) fn late_error(label: &str, limit: Duration) -> RpcError {
    RpcError::internal(late(label, limit))
}

fn late(label: &str, limit: Duration) -> String {
    format!("'{label}' did not finish within its limit of {limit:?}")
}
