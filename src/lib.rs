//! Run agents in the `claude` CLI, with tools that you write in Rust, in sessions that survive panics, hangs and
//! crashes.
//!
//! Define tools, start a session, and send prompts. The session runs the `claude` CLI as a child process, and the CLI
//! calls your tools over the same pipe. If a handler panics or hangs, its call is answered with an error. If the CLI
//! crashes, the session restarts it and resumes the conversation. Every request is answered exactly once, and no process
//! is left behind.
//!
//! You need the CLI (`npm install -g @anthropic-ai/claude-code`), its login, and a tokio runtime. Panics can only be
//! caught in programs that unwind: with `panic = "abort"` a panicking tool ends the program.
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
//! # Start here
//!
//! | to | use |
//! |---|---|
//! | start a session, send prompts, stop it | [`Session`], [`SessionBuilder`] |
//! | send one prompt and nothing else | [`query()`] |
//! | read the answer to a prompt | [`Turn`], a stream of [`Message`]s that ends with an [`Outcome`] |
//! | prompt with images or a priority | [`Prompt`] |
//! | choose the model, limits, timeouts, plugins | [`Options`] |
//! | define tools | [`ToolServer`], [`ToolDef`] |
//! | use state, progress and cancellation in a handler | [`ToolContext`] |
//! | take no arguments, return JSON, return a type of yours | [`NoArgs`], [`Json`], [`IntoToolResult`] |
//! | approve or deny tool calls | [`PermissionRequest`], [`PermissionDecision`], [`PermissionMode`] |
//! | run code at points of the CLI's loop | [`Hook`] |
//! | watch a session | [`Event`], [`Snapshot`] |
//! | handle errors | [`Error`], [`ErrorKind`], [`Result`] |
//!
//! Every other name is in the module of its subject, and has one path.
//!
//! # Modules
//!
//! | module | holds |
//! |---|---|
//! | [`session`] | subscriptions to all messages, partial text, messages into a running turn, changes of MCP servers |
//! | [`options`] | the parts of [`Options`]: timeouts, limits, restarts, system prompt, sandbox, external MCP servers |
//! | [`message`](mod@message) | each type of [`Message`], content blocks, tool calls with their results, cost |
//! | [`report`] | the stream of [`Event`]s, the parts of a [`Snapshot`], counters, why a CLI exited |
//! | [`requests`] | parameters and answers of requests to the CLI; [`Session::requests`] sends those that few programs need |
//! | [`tool`] | results, annotations, policies; a [`ServerHandle`](tool::ServerHandle) changes a server while it runs |
//! | [`mcp`] | resources, which a tool server may offer as well |
//! | [`permission`] | questions of the model, rules, changes of rules |
//! | [`hook`] | the 33 hook events with their inputs and outputs |
//! | [`callback`] | what all handlers but tools get and return; elicitations and dialogs |
//! | [`sessions`] | conversations that CLIs have written to disk: listed, read, renamed, forked, deleted |
//! | [`store`] | mirrors conversations to a store, and resumes them on another machine |
//! | `rmcp` (feature `rmcp`) | mounts servers made with the crate `rmcp` |
//! | [`transport`] | how a session reaches the CLI: child process, in-memory pipe, one of yours |
//! | [`actor`] | sessions as actors in your own `ractor` supervision tree |
//! | [`telemetry`] | names of tracing spans and their fields |
//! | [`testing`] (feature `testing`) | faults of a running session, and what a session would tell its CLI |
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `sessions` (default) | [`sessions::LocalSessions`], [`store::StoredSessions`], [`store::MemoryStore`]. Without it, sessions still run and resume, and are mirrored to a [`store::SessionStore`] of yours |
//! | `testing` | [`testing`], `Session::inject`. The crate `greenroom-testkit` turns it on |
//! | `rmcp` | the module `rmcp` |
//! | `schema` | arguments and results are checked against the rules of their JSON Schemas |
//! | `otel` | the OpenTelemetry span in which a session is started reaches the CLI |
//! | `metrics` | durations, tokens, money, restarts and panics, by the global meter of OpenTelemetry |
//! | `cluster`, `async-trait` | enable them when a crate of your program enables `ractor`'s feature of that name |
//!
//! # Guides
//!
//! | guide | to |
//! |---|---|
//! | [Tools](https://docs.rs/crate/greenroom/latest/source/docs/tools.md) | make a tool from a type; return errors; limit calls; keep state |
//! | [Permissions](https://docs.rs/crate/greenroom/latest/source/docs/permissions.md) | allow and deny tool calls; ask a person; run unattended |
//! | [Hooks](https://docs.rs/crate/greenroom/latest/source/docs/hooks.md) | deny, change and add at 33 events of the CLI's loop |
//! | [Sessions and resume](https://docs.rs/crate/greenroom/latest/source/docs/sessions-and-resume.md) | read turns; survive crashes; resume and fork conversations; count the cost |
//! | [Embedding](https://docs.rs/crate/greenroom/latest/source/docs/embedding.md) | bound, watch and stop sessions; run them under actors of yours |
//! | [Run it in a service](https://docs.rs/crate/greenroom/latest/source/docs/service.md) | serve many users; deploy |
//! | [Testing](https://docs.rs/crate/greenroom/latest/source/docs/testing.md) | test tools and agents without a CLI; cancel, kill and crash on purpose |
//! | [Versions of the CLI](https://docs.rs/crate/greenroom/latest/source/docs/cli-versions.md) | choose the version of `claude` to install |
//! | [Troubleshooting](https://docs.rs/crate/greenroom/latest/source/docs/troubleshooting.md) | find the text of an error, its cause, and what to do |
//! | [Coming from the SDKs](https://docs.rs/crate/greenroom/latest/source/docs/coming-from-the-sdks.md) | find the name of the Python and TypeScript SDKs here |

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod actor;
mod blocking;
mod control;
mod error;
mod files;
mod identity;
#[cfg(feature = "__internals")]
#[doc(hidden)]
pub mod internals;
mod lock;
pub mod mcp;
pub mod options;
mod plain;
mod prompt;
pub mod report;
pub mod requests;
#[cfg(feature = "rmcp")]
pub mod rmcp;
pub mod session;
pub mod sessions;
pub mod store;
pub mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tool;
pub mod transport;
#[cfg(test)]
#[path = "../tests/support/wait.rs"]
mod wait;
mod wire;

pub use actor::turn::Turn;
pub use control::hook::definition::Hook;
pub use control::permission::decision::PermissionDecision;
pub use control::permission::request::PermissionRequest;
pub use control::{callback, hook, permission};
pub use error::{Error, ErrorKind, Result};
pub use options::cli::permission::PermissionMode;
pub use options::definition::Options;
pub use prompt::Prompt;
pub use report::event::Event;
pub use report::outcome::Outcome;
pub use report::snapshot::Snapshot;
pub use session::builder::SessionBuilder;
pub use session::handle::Session;

/// The children are the CLIs: give a [`Watchdog`](guardian::Watchdog) to a session with [`SessionBuilder::watchdog`]. Call
/// `greenroom::guardian::init()`. The errors convert into an [`Error`].
pub use greenroom_process::guardian;
pub use session::query::query;
pub use sessions::find::key::conversation_id;
pub use tool::define::def::ToolDef;
pub use tool::define::handler::{IntoToolResult, Json, NoArgs};
pub use tool::run::context::ToolContext;
pub use tool::server::ToolServer;
pub use wire::message;
pub use wire::message::definition::Message;

/// The programs of the README and of the guides are doc tests.
macro_rules! doc_tests {
    ($($(#[$needs:meta])? $name:ident: $file:literal;)+) => {$(
        #[cfg(doctest)]
        $(#[$needs])?
        #[doc = include_str!($file)]
        struct $name;
    )+};
}

doc_tests! {
    Readme: "../README.md";
    ComingFromTheSdks: "../docs/coming-from-the-sdks.md";
    ToolsGuide: "../docs/tools.md";
    PermissionsGuide: "../docs/permissions.md";
    HooksGuide: "../docs/hooks.md";
    SessionsGuide: "../docs/sessions-and-resume.md";
    EmbeddingGuide: "../docs/embedding.md";
    TestingGuide: "../docs/testing.md";
    Troubleshooting: "../docs/troubleshooting.md";
}
