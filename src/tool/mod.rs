//! Tools, and the in-process MCP servers that offer them.
//!
//! A [`ToolServer`](crate::ToolServer) is a definition: a name, tools, and how to make the state that their handlers share.
//! A session runs it as an actor; [`ToolServer::call`](crate::ToolServer::call) and
//! [`ToolServer::handle`](crate::ToolServer::handle) run it without a session, in a unit test. Resources are in
//! [`mcp`](crate::mcp).
//!
//! | type | use it to |
//! |---|---|
//! | [`CallToolResult`], [`Content`] | return images, errors, several blocks |
//! | [`Result`], [`ToolError`] | tell the model one text of a failure, and the log another |
//! | [`ToolHandler`] | take any async function |
//! | [`ToolAnnotations`], [`ToolPolicy`] | tell the CLI what a tool does, and whether to ask before a call |
//! | [`LogLevel`] | log to the CLI from a handler |
//! | [`ServerHandle`] | add, remove and disable tools while a session runs |
//! | [`StateContext`] | make a server's state for the session that it belongs to |

// Top down:
// - `handle`: changes a running server; `server`: builds a server
// - `run`: finds and runs the handler of a request: `run::dispatch` (requests), `run::instance` (tool calls)
// - `spec`: a server as a session runs it; `state`: how its state is made; `registry` and `list`: what it offers now;
//   `policy`: permissions
// - `define`: definitions of tools and resources; `error`: the error of a handler
// - `run::context`, `run::peer`, `run::erased`: what handlers get, and handlers without their types

pub(crate) mod define;
mod error;
pub(crate) mod handle;
pub(crate) mod list;
pub(crate) mod policy;
pub(crate) mod registry;
pub(crate) mod run;
pub(crate) mod server;
pub(crate) mod spec;
pub(crate) mod state;

pub use crate::wire::{CallToolResult, Content};
pub use define::definition::ToolAnnotations;
pub use define::handler::{ArgumentsSchema, ReadArguments, ToolHandler};
pub use error::{Result, ToolError};
pub use handle::ServerHandle;
pub use policy::ToolPolicy;
pub use run::log_level::LogLevel;
pub use server::CompleteServer;
pub use state::StateContext;
