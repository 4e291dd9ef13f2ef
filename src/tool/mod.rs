//! Tools, and the in-process MCP servers that offer them.
//!
//! A [`ToolServer`] is a definition: a name, tools, and how to make the state that its handlers share. It runs
//! nothing by itself. A session makes an actor of it; [`ToolServer::handle`] and [`ToolServer::call`] drive it
//! alone, in a unit test.
//!
//! - [`server`]: the definition
//! - [`def`], [`handler`]: one tool, and what can be its handler
//! - [`policy`]: whether the CLI asks before it calls a tool
//! - [`context`]: what a handler gets beside its arguments; [`peer`]: whom it speaks to
//! - [`result`]: what a handler may return
//! - [`registry`]: what a server offers at this moment; [`handle`]: how that is changed
//! - [`instance`]: a definition with its state, on which a call can be run
//! - [`dispatch`]: which JSON-RPC message asks for what
//! - [`isolated`]: a server without a session

pub(crate) mod context;
pub(crate) mod def;
pub(crate) mod dispatch;
pub(crate) mod handle;
pub(crate) mod handler;
pub(crate) mod instance;
mod isolated;
pub(crate) mod peer;
pub(crate) mod policy;
pub(crate) mod registry;
pub(crate) mod result;
pub(crate) mod server;

use crate::options::schema;

pub use context::{LogLevel, ToolContext};
pub use def::{Tool, ToolAnnotations, ToolDef};
pub use handle::ServerHandle;
pub use handler::{NoArgs, ToolHandler};
pub use peer::RequestError;
pub use policy::ToolPolicy;
pub use result::{IntoToolResult, Json};
pub use server::ToolServer;
