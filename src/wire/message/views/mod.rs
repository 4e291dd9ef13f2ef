//! Views over many messages: calls with their results, assembled deltas, usage.

pub(super) mod assemble;
pub(super) mod calls;
pub(super) mod tracker;
pub(super) mod transcript;
