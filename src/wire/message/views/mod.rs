//! Views over many messages: assembled deltas, usage.

pub(super) mod assemble;
pub(super) mod tracker;
