//! Content of a transcript: its entries, the conversation that they form, its messages, and forks of it.

pub(crate) mod chain;
mod entry;
mod fork;
mod message;
pub(super) mod summary;

pub(crate) use entry::EntryLink;
pub use entry::TranscriptEntry;
pub(crate) use fork::{Fork, derived_title};
pub use message::{SessionMessages, TranscriptMessage};
