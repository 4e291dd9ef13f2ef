//! Watch and steer a running session: all its messages, text while the model writes it, messages into the running turn,
//! changes of MCP servers.
//!
//! [`Session`] and [`SessionBuilder`] are at the crate's root; this module has the types of their
//! rarer methods.
//!
//! | to | call | type |
//! |---|---|---|
//! | read every message, also between turns | [`Session::messages`] | [`Messages`] |
//! | read turns that the CLI begins by itself | [`Session::cli_turns`] | [`CliTurns`] |
//! | show text while the model writes it | [`Turn::deltas`](crate::Turn::deltas) | [`Deltas`] |
//! | send a message into the running turn | [`Session::steer`] | [`Steering`] |
//! | send a request that few programs need | [`Session::requests`] | [`Requests`] |
//! | end a session at once, also while it starts | [`SessionBuilder::kill_switch`](crate::SessionBuilder::kill_switch) | [`KillSwitch`] |
//! | change the MCP servers | [`Session::set_mcp_servers`] | [`McpServerSet`] |
//!
//! A [`TestSession`] stands in for a session in unit tests of handlers.

pub(crate) mod builder;
mod deferral;
mod deltas;
pub(crate) mod handle;
mod handlers;
mod known_servers;
mod messages;
#[cfg(feature = "otel")]
mod otel;
pub(crate) mod query;
mod requests;
mod servers;
mod start;

pub use crate::actor::supervisor::killing::KillSwitch;
pub use crate::actor::turn::cli_turns::CliTurns;
pub use crate::actor::turn::steering::{Steered, Steering};
pub use crate::identity::TestSession;
pub use crate::prompt::PromptPriority;
pub(crate) use builder::SessionBuilder;
pub use deltas::Deltas;
pub(crate) use handle::Session;
pub use messages::{MessageOrGap, Messages};
pub use requests::Requests;
pub use servers::McpServerSet;
