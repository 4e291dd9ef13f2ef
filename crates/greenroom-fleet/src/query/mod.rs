//! Queries of applications: lists of names and prompts, and the feed of what happened.

pub(crate) mod feed;
pub(crate) mod lists;
