//! What a session tells about itself, as plain data that serialises.
//!
//! - [`event`]: what happened, as it happens
//! - [`snapshot`]: how things stand
//! - [`outcome`]: how a turn ended
//! - [`structured`]: its result as a value of a type
//! - [`cause`]: why a CLI is gone

pub(crate) mod cause;
pub(crate) mod counters;
pub(crate) mod event;
pub(crate) mod feed;
pub(crate) mod mcp;
pub(crate) mod outcome;
pub(crate) mod snapshot;
mod structured;
pub(crate) mod subscription;

pub use cause::ExitCause;
pub use counters::Counters;
pub use event::{Event, Events};
pub use mcp::McpSetServersResult;
pub use outcome::{InterruptedBy, Outcome};
pub use snapshot::{
    CallSnapshot, CallbacksSnapshot, CliSnapshot, ConversationSnapshot, Phase, RequestSnapshot,
    RouterSnapshot, ServerSnapshot, ServerStatus, Snapshot,
};
