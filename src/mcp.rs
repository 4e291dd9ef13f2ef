//! What an in-process MCP server offers besides tools: resources, prompts, and completion of their arguments.
//!
//! A [`ToolServer`](crate::ToolServer) takes them as it takes tools, their handlers share its state, and they run under the
//! same promises. [`ServerHandle`](crate::ServerHandle) adds and removes them while a session runs.
//!
//! What CLI 2.1.328 was seen to make of them: the model lists resources with `ListMcpResourcesTool` and reads them with
//! `ReadMcpResourceTool`, which takes a URI of a template, too, though templates are not listed; bytes are saved to a file,
//! whose path the model is told. It subscribes to nothing, completes nothing, and takes no prompts from in-process servers.
//!
//! ```
//! use greenroom::{PromptDef, ResourceDef, ResourceTemplateDef, ToolContext, ToolServer};
//! use greenroom::mcp::ReadResource;
//! use serde_json::json;
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Review { file: String }
//!
//! let server: ToolServer = ToolServer::new("code", "1.0.0")
//!     .resource(ResourceDef::text("code://style", "style", "Four spaces.").mime_type("text/plain"))
//!     .resource_template(ResourceTemplateDef::new("code://file/{+path}", "file", async |read: ReadResource, _: ToolContext| {
//!         format!("the contents of {}", read.variable("path").unwrap_or_default())
//!     }))
//!     .prompt(PromptDef::new("review", "Review a file", async |args: Review, _: ToolContext| {
//!         format!("Review {} by the style guide.", args.file)
//!     }));
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let read = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "code://file/src/lib.rs"}});
//! let answer = server.handle(read).await.unwrap_or_default();
//! assert_eq!(answer["result"]["contents"][0]["text"], "the contents of src/lib.rs");
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

pub use crate::tool::{
    Annotations, Completion, CompletionRequest, GetPromptResult, Icon, IntoCompletion, IntoPrompt,
    IntoResourceContents, PromptArgument, PromptMessage, ReadResource, Role,
};
/// The contents of a resource: the same type as inside a [`Content`](crate::Content).
pub use crate::wire::Resource as ResourceContents;
