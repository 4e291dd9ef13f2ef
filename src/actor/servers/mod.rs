//! The tool servers of a session: which there are, and the requests that wait for each.

pub(crate) mod queue;
pub(crate) mod roster;
