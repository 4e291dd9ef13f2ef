//! The protocol of the pipe, as types: serde only, no IO, no tokio.
//!
//! - [`lenient`]: reads JSON that may be of another version
//! - [`objects`], [`words`]: declare structs that keep unknown fields, and enums that keep unknown words
//! - [`brief`]: texts that stay short
//! - [`line`]: splits bytes into lines, and makes lines of JSON texts
//! - [`envelope`]: tells lines apart, and reads control frames
//! - [`outgoing`]: writes control frames
//! - [`rpc`]: the JSON-RPC messages inside `mcp_message`
//! - [`fast`]: the same work for a tool call, in one pass each
//! - [`content`]: the result of a tool call
//! - [`message`]: the messages of the conversation

pub(crate) mod brief;
pub(crate) mod content;
pub(crate) mod envelope;
pub(crate) mod fast;
pub(crate) mod lenient;
pub(crate) mod line;
pub mod message;
pub(crate) mod objects;
pub(crate) mod outgoing;
pub(crate) mod rpc;
pub(crate) mod words;

pub use content::{CallToolResult, Content, ResourceContents};
pub(crate) use message::{Message, ResultMessage, SessionState, TaskEvent};
pub use rpc::RpcError;
