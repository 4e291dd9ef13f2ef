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
//! - [`cancel`]: whether anybody still waits for the answer
//! - [`resource`] with [`uri_template`], [`prompt`], [`completion`]: what else a server may offer; [`about`]: what it says
//!   of that
//! - [`result`]: what a handler may return
//! - [`validate`]: checks of arguments and results by a schema
//! - [`registry`]: what a server offers at this moment; [`handle`]: how that is changed
//! - [`instance`]: a definition with its state, on which a call can be run
//! - [`dispatch`]: which JSON-RPC message asks for what
//! - [`isolated`]: a server without a session

mod about;
pub(crate) mod cancel;
mod completion;
pub(crate) mod context;
pub(crate) mod def;
pub(crate) mod dispatch;
pub(crate) mod handle;
pub(crate) mod handler;
pub(crate) mod instance;
mod isolated;
pub(crate) mod peer;
pub(crate) mod policy;
mod prompt;
pub(crate) mod registry;
mod resource;
pub(crate) mod result;
pub(crate) mod server;
mod uri_template;
mod validate;

use crate::options::schema;

pub use about::{Annotations, Icon, Role};
pub use completion::{Completion, CompletionRequest, IntoCompletion};
pub use context::{LogLevel, ToolContext};
pub use def::{Tool, ToolAnnotations, ToolDef};
pub use handle::ServerHandle;
pub use handler::{NoArgs, ToolHandler};
pub use peer::RequestError;
pub use policy::ToolPolicy;
pub use prompt::{GetPromptResult, IntoPrompt, PromptArgument, PromptDef, PromptMessage};
pub use resource::{IntoResourceContents, ReadResource, ResourceDef, ResourceTemplateDef};
pub use result::{IntoToolResult, Json};
pub use server::ToolServer;
