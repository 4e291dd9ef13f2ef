//! Choose the model, prompts, permissions, limits and timeouts of a session: the parts of [`Options`].
//!
//! [`Options`] lists all of them by subject. Options are validated before a process starts, and they serialise, so they can come from a config file. Every limit
//! of the library is an option. JSON names are the names of the fields, except where the CLI has JSON of its own
//! (agents, MCP servers, plugins, the sandbox): that form is kept, so you can copy it from the CLI's settings.

pub(crate) mod check;
pub(crate) mod cli;
mod debug;
pub(crate) mod definition;
mod runtime;
pub(crate) mod schema;
mod validate;

pub use cli::agent::{AgentDefinition, AgentEffort, AgentMemory, AgentServer};
pub use cli::mcp::ExternalServer;
pub use cli::model::{Effort, Thinking, ThinkingDisplay};
pub use cli::output::OutputFormat;
pub(crate) use cli::permission::PermissionMode;
pub use cli::permission::{BuiltInTools, PermissionPrompts, QuestionPreview, SettingSource, Skills};
pub use cli::prompt::{Plugin, SystemPrompt};
pub use cli::sandbox::{Sandbox, SandboxFilesystem, SandboxNetwork};
pub(crate) use cli::settings::{Merged, merged};
pub(crate) use definition::Options;
pub use runtime::limits::Limits;
pub use runtime::process::{Containment, Delivery, EnvPolicy, OLDEST_CLI, OsUser};
pub(crate) use runtime::process::{NOT_INHERITED, is_too_old};
pub use runtime::recovery::{ResumeLadder, TurnRecovery, UnreadPartials};
pub use runtime::restart::{Restart, Restarts};
pub(crate) use runtime::setting::{FOREVER, Setting, serialize as millis_serialize};
pub use runtime::store::{StoreFlush, StoreOptions};
pub use runtime::timeouts::Timeouts;
pub use runtime::trace::{GenAiSpans, TraceContext, TraceOptions};
pub(crate) use validate::CHOOSES_CONVERSATION;
