//! Lists, usage and the feed.

pub(super) mod feeds;
pub(super) mod lists;
pub(super) mod queries;
