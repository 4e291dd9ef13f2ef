//! Agent sessions in the `claude` CLI, as supervision trees.
//!
//! An application defines tools and starts a session. The session runs the `claude` CLI as a child process, and
//! the CLI calls the tools back over the same pipe. Handlers may panic, hang or be cancelled, and the CLI may
//! crash: the session stays up, every request is answered exactly once, and nothing is left behind.
//!
//! ```no_run
//! use greenroom::{Session, ToolServer};
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Add { a: f64, b: f64 }
//!
//! # async fn example() -> greenroom::Result<()> {
//! let calc = ToolServer::new("calc", "1.0.0").tool("add", "Add two numbers", async |args: Add| args.a + args.b);
//!
//! let session = Session::builder().mcp_server(calc).allow_server_tools("calc").start().await?;
//! let mut turn = session.prompt("What is 5 + 3?").await?;
//! while let Some(message) = turn.next().await {
//!     if let Some(text) = message.text() {
//!         println!("{text}");
//!     }
//! }
//! println!("{:?}", turn.outcome().await?);
//! session.stop().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What is left to you
//!
//! The CLI itself (`npm install -g @anthropic-ai/claude-code`), its login, and a tokio runtime. Panics can only be
//! caught in programs that unwind: with `panic = "abort"` a panicking tool ends the program.
//!
//! # The map
//!
//! - [`Session`], [`SessionBuilder`], [`Turn`], [`query()`]: the face
//! - [`Options`], [`Timeouts`], [`Limits`], [`Restarts`]: every setting, as plain data; [`options`] has its parts
//! - [`ToolServer`], [`ToolDef`], [`ToolContext`]: tools, which run in this process
//! - [`mcp`], [`ResourceDef`], [`PromptDef`], [`ServerHandle`]: what a server offers besides tools, and how that changes
//! - [`Message`], [`Outcome`], [`Event`], [`Snapshot`]: what a session tells
//! - [`message`](mod@message): every message of the CLI, typed; calls with their results, deltas, cost
//! - [`requests`]: what the CLI can be asked, and its answers
//! - [`PermissionRequest`] and [`permission`], [`Hook`] and [`hook`], [`ElicitationRequest`], [`DialogRequest`]: what the
//!   CLI asks
//! - [`sessions`]: what the CLI has written down, listed, read and changed
//! - [`store`]: sessions that are mirrored to a store, and resumed from it on another machine
//! - `rmcp` (feature `rmcp`): servers that are made with the crate of this name
//! - [`transport`]: how the CLI is reached
//! - [`actor`]: for programs that are made of `ractor` actors
//! - [`telemetry`]: the names of spans and their fields
//! - [`testkit`] (feature `testkit`): stand-ins for the CLI and the model, faults from a seed, records of the wire

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod actor;
mod control;
mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "__internals")]
#[doc(hidden)]
pub mod internals;
pub mod mcp;
pub mod options;
mod report;
pub mod requests;
#[cfg(feature = "rmcp")]
pub mod rmcp;
mod session;
pub mod sessions;
pub mod store;
pub mod telemetry;
#[cfg(feature = "testkit")]
pub mod testkit;
mod tool;
pub mod transport;
mod wire;

pub use actor::turn::Turn;
pub use control::{
    CallbackContext, DialogAnswer, DialogRequest, ElicitationAnswer, ElicitationMode, ElicitationRequest,
    Hook, HookEvent, HookInput, HookOutput, IntoReply, OnFailure, PermissionDecision, PermissionRequest,
    hook, permission,
};
pub use error::{Error, ErrorKind, Result};
pub use options::{
    AgentDefinition, Effort, EnvPolicy, ExternalServer, Limits, McpRegistration, Options, OutputFormat,
    PermissionMode, Plugin, Restart, Restarts, ResumeLadder, Sandbox, SettingSource, Skills, StoreFlush,
    StoreOptions, SystemPrompt, Thinking, Timeouts, TurnRecovery, UnreadPartials,
};
pub use report::*;
pub use requests::{Reply, ServerInfo};
pub use session::{
    Deltas, McpServerSet, Messages, Prompt, PromptPriority, Received, Session, SessionBuilder, query,
};
pub use tool::{
    IntoToolResult, Json, LogLevel, NoArgs, PromptDef, RequestError, ResourceDef, ResourceTemplateDef,
    ServerHandle, Tool, ToolAnnotations, ToolContext, ToolDef, ToolHandler, ToolPolicy, ToolServer,
};
pub use wire::*;

/// The examples of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Those of the guide to fault injection, too.
#[cfg(all(doctest, feature = "testkit"))]
#[doc = include_str!("../docs/fault-injection.md")]
struct FaultInjection;

/// Those of the guide for users of the official SDKs, too.
#[cfg(doctest)]
#[doc = include_str!("../docs/coming-from-the-sdks.md")]
struct ComingFromTheSdks;

/// Those of the guide to tools, too.
#[cfg(all(doctest, feature = "testkit"))]
#[doc = include_str!("../docs/tools.md")]
struct ToolsGuide;

/// Those of the guide to permissions, too.
#[cfg(all(doctest, feature = "testkit"))]
#[doc = include_str!("../docs/permissions.md")]
struct PermissionsGuide;

/// Those of the guide to hooks, too.
#[cfg(all(doctest, feature = "testkit"))]
#[doc = include_str!("../docs/hooks.md")]
struct HooksGuide;

/// Those of the guide to sessions and resume, too.
#[cfg(all(doctest, feature = "testkit"))]
#[doc = include_str!("../docs/sessions-and-resume.md")]
struct SessionsGuide;

/// Those of the guide to embedding, too.
#[cfg(all(doctest, feature = "testkit"))]
#[doc = include_str!("../docs/embedding.md")]
struct EmbeddingGuide;

/// Those of the guide to testing, too.
#[cfg(all(doctest, feature = "testkit"))]
#[doc = include_str!("../docs/testing.md")]
struct TestingGuide;
