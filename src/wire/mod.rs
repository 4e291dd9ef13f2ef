//! What passes over the pipe, as types: serde only, no IO, no tokio.
//!
//! - [`line`]: bytes into lines, whole or not at all
//! - [`envelope`]: what a line is (a control frame or a message), and the control frames we write
//! - [`rpc`]: the JSON-RPC messages inside `mcp_message`
//! - [`content`]: what a tool returns
//! - [`message`]: what the conversation consists of

pub(crate) mod content;
pub(crate) mod envelope;
pub(crate) mod line;
pub mod message;
pub(crate) mod rpc;

pub use content::{CallToolResult, Content, Resource};
pub use message::{
    ApiMessage, AssistantMessage, ContentBlock, InitMcpServer, InitMessage, InitPlugin, Message, ModelUsage,
    OtherMessage, PermissionDenial, ResultMessage, SessionState, StreamEvent, SystemMessage, TaskEvent,
    TaskStatus, ToolResultContent, ToolResultRef, ToolUseRef, Usage, UserMessage,
};
pub use rpc::RpcError;
