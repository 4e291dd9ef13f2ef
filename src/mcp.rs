//! Offer resources in an in-process MCP server.
//!
//! Add resources to a [`ToolServer`](crate::ToolServer) like tools, or to a running server with a
//! [`ServerHandle`](crate::tool::ServerHandle). Their handlers share the server's state and have the promises of a tool
//! call.
//!
//! CLI 2.1.328 was seen to use them as follows. The model lists resources with `ListMcpResourcesTool` and reads them
//! with `ReadMcpResourceTool`; it can also read the URI of a template, although templates are not listed. Bytes are
//! saved to a file whose path the model reads.
//!
//! A `ToolServer` has no prompts, completion or subscriptions of MCP, because the CLI asks in-process servers for none
//! of them. With the feature `rmcp` you can mount a handler of the crate `rmcp`, which may offer all of MCP.
//!
//! ```
//! use greenroom::mcp::{ReadResource, ResourceDef, ResourceTemplateDef};
//! use greenroom::{ToolContext, ToolServer};
//! use serde_json::json;
//!
//! let server: ToolServer = ToolServer::new("code", "1.0.0")
//!     .resource(ResourceDef::text("code://style", "style", "Four spaces.").mime_type("text/plain"))
//!     .resource_template(ResourceTemplateDef::new("code://file/{+path}", "file", async |read: ReadResource, _: ToolContext| {
//!         format!("the contents of {}", read.variable("path").unwrap_or_default())
//!     }));
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let read = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "code://file/src/lib.rs"}});
//! let answer = server.handle(read).await.unwrap_or_default();
//! assert_eq!(answer["result"]["contents"][0]["text"], "the contents of src/lib.rs");
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

pub use crate::tool::define::resource::{IntoResourceContents, ReadResource, ResourceDef};
pub use crate::tool::define::template::ResourceTemplateDef;
pub use crate::wire::{ResourceContents, RpcError};
