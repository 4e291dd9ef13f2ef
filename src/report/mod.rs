//! What a session reports about itself, as plain data that serialises.
//!
//! | type | answers |
//! |---|---|
//! | [`Event`], [`Events`] | what happened, as it happens |
//! | [`Snapshot`] and its parts | how the session stands now |
//! | [`Counters`] | how often something happened since the start |
//! | [`Outcome`], [`InterruptedBy`] | how a turn ended |
//! | [`ExitCause`] | why a CLI exited |

pub(crate) mod cause;
pub(crate) mod counters;
pub(crate) mod event;
pub(crate) mod failure;
pub(crate) mod feed;
pub(crate) mod mcp;
pub(crate) mod outcome;
pub(crate) mod snapshot;
mod structured;
pub(crate) mod subscription;

pub use cause::ExitCause;
pub use counters::Counters;
pub(crate) use event::Event;
pub use event::Events;
pub use mcp::McpSetServersResult;
pub use outcome::InterruptedBy;
pub(crate) use outcome::Outcome;
pub(crate) use snapshot::Snapshot;
pub use snapshot::{
    CallSnapshot, CallbacksSnapshot, CliSnapshot, ConversationSnapshot, Phase, RequestSnapshot,
    RouterSnapshot, ServerSnapshot, ServerStatus,
};
