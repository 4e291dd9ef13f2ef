//! The face: build a session, prompt it, watch it, stop it.
//!
//! - [`builder`]: what a session is made from
//! - [`handle`]: the session, in methods
//! - [`requests`]: what the CLI can be asked, in methods
//! - [`prompt`]: what is said to it
//! - [`deltas`]: a turn as it is written
//! - [`messages`]: all messages, also those outside of turns
//! - [`query`](mod@query): one prompt and nothing else

mod builder;
mod deltas;
mod handle;
mod messages;
mod prompt;
mod query;
mod requests;
mod servers;

pub use builder::SessionBuilder;
pub use deltas::Deltas;
pub use handle::Session;
pub use messages::{Messages, Received};
pub use prompt::{Prompt, PromptPriority};
pub use query::query;
pub use servers::McpServerSet;
