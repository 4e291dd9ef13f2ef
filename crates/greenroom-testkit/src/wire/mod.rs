//! The wire as data, and its recorder.

pub(super) mod record;
pub(super) mod transcript;
