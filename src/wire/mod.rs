//! What passes over the pipe, as types: serde only, no IO, no tokio.
//!
//! - [`line`]: bytes into lines, whole or not at all
//! - [`answer`]: the answer to a tool call, written in one go
//! - [`call`]: a tool call in one pass, where a line is plainly one
//! - [`envelope`]: what a line is (a control frame or a message), and the control frames we write
//! - [`head`]: what a request is called by
//! - [`rpc`]: the JSON-RPC messages inside `mcp_message`
//! - [`content`]: what a tool returns
//! - [`message`]: what the conversation consists of

pub(crate) mod answer;
pub(crate) mod call;
pub(crate) mod content;
pub(crate) mod envelope;
pub(crate) mod head;
pub(crate) mod line;
pub mod message;
pub(crate) mod rpc;
mod scan;

pub use content::{CallToolResult, Content, Resource};
pub use message::{
    ApiMessage, AssistantMessage, ContentBlock, InitMcpServer, InitMessage, InitPlugin, Message, ModelUsage,
    OtherMessage, PermissionDenial, ResultMessage, SessionState, StreamEvent, SystemMessage, TaskEvent,
    TaskStatus, ToolResultContent, ToolResultRef, ToolUseRef, Usage, UserMessage,
};
pub use rpc::RpcError;
