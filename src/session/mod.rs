//! What a [`Session`] gives besides its turns: subscriptions, partial text, steering, rare requests.
//!
//! | from | comes |
//! |---|---|
//! | [`Session::messages`] | [`Messages`]: every message of the session, also those outside of turns |
//! | [`Turn::deltas`](crate::Turn::deltas) | [`Deltas`]: a turn while it is written |
//! | [`Session::steer`] | [`Steering`]: a message into the running turn |
//! | [`Session::requests`] | [`Requests`]: control requests that few programs need |
//! | [`Session::set_mcp_servers`] | takes an [`McpServerSet`]: the MCP servers from now on |
//!
//! A [`TestSession`] stands in for a session in unit tests of handlers.

pub(crate) mod builder;
mod data;
mod deltas;
pub(crate) mod handle;
mod messages;
#[cfg(feature = "otel")]
mod otel;
pub(crate) mod query;
mod requests;
mod servers;
mod start;

pub use crate::actor::turn::steering::{Steered, Steering};
pub use crate::identity::TestSession;
pub use crate::prompt::PromptPriority;
pub(crate) use builder::SessionBuilder;
pub use deltas::Deltas;
pub(crate) use handle::Session;
pub use messages::{MessageOrGap, Messages};
pub use requests::Requests;
pub use servers::McpServerSet;
