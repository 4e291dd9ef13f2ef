//! Watch a session: events as they happen, a snapshot of its state, counters, outcomes of turns.
//!
//! All of these but [`ErrorReport`] are plain data, and serialise to JSON.
//!
//! | to learn | call | type |
//! |---|---|---|
//! | what happens | [`Session::events`](crate::Session::events) | [`Event`], [`Events`] |
//! | the state at this moment | [`Session::snapshot`](crate::Session::snapshot) | [`Snapshot`] and its parts |
//! | how often something happened | [`Snapshot::counters`] | [`Counters`] |
//! | how a turn ended | [`Turn::outcome`](crate::Turn::outcome) | [`Outcome`], [`InterruptedBy`] |
//! | why a CLI exited | [`Event::CliExited`] | [`ExitCause`] |
//! | an error with all its causes, as a text | `to_string` | [`ErrorReport`] |

pub(crate) mod cause;
pub(crate) mod counters;
pub(crate) mod event;
pub(crate) mod failure;
pub(crate) mod feed;
pub(crate) mod mcp;
pub(crate) mod outcome;
pub(crate) mod snapshot;
mod structured;
mod subscription;

pub use cause::ExitCause;
pub use counters::Counters;
pub(crate) use event::Event;
pub use event::Events;
pub use mcp::McpSetServersResult;
pub(crate) use outcome::Outcome;
pub use outcome::{DeferredCall, InterruptedBy};
pub(crate) use snapshot::Snapshot;
pub use snapshot::{
    CallSnapshot, CallbacksSnapshot, CliSnapshot, ConversationSnapshot, Phase, RequestSnapshot,
    RouterSnapshot, ServerSnapshot, ServerStatus,
};
pub use subscription::Subscription;

// Declared in the lowest crate, whose errors print it as well.
pub use greenroom_process::ErrorReport;
