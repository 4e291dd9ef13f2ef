//! Stand-ins for the CLI and for the model, to test tools and agents offline and at no cost.
//!
//! - [`ScriptedCli`] plays a [`Script`] over an in-memory transport: no CLI, no process, no network, and it runs on
//!   tokio's paused clock. [`ScriptedCli::by_hand`] gives the CLI's end of the pipe to the test itself.
//! - [`ScriptedModel`] plays the same script as a Messages API on loopback, to the real `claude` CLI.
//! - [`Fault`] breaks a part of a running session on purpose.

mod cli;
mod fault;
mod hand;
mod model;
mod play;
mod script;

pub use cli::ScriptedCli;
pub use fault::Fault;
pub use hand::{CliEnd, ScriptedListener};
pub use model::{MAX_REQUEST_BYTES, ModelRequest, ScriptedModel, ToolResultSeen};
pub use script::{Item, ModelError, ModelTurn, Script};
