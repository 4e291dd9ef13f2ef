//! The face of a fleet: its builder, its handles, and what they report.

pub(crate) mod builder;
pub(crate) mod feed;
pub(crate) mod fleet;
pub(crate) mod lists;
pub(crate) mod metrics;
pub(crate) mod operator;
pub(crate) mod prompt;
pub(crate) mod questions;
pub(crate) mod scope;
pub(crate) mod session;
pub(crate) mod snapshot;
pub(crate) mod tenant;
pub(crate) mod turn;
