//! Content of a transcript: its entries, the conversation that they form, its messages, and forks of it.

#[cfg(feature = "sessions")]
pub(crate) mod chain;
mod entry;
#[cfg(feature = "sessions")]
mod fork;
#[cfg(feature = "sessions")]
mod link;
#[cfg(feature = "sessions")]
mod message;
#[cfg(feature = "sessions")]
pub(super) mod summary;

pub use entry::TranscriptEntry;
#[cfg(feature = "sessions")]
pub use message::{SessionMessages, TranscriptMessage};
#[cfg(feature = "sessions")]
pub(crate) use {
    fork::{Fork, derived_title},
    link::EntryLink,
};
