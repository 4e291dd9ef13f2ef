//! Options that are passed on to the CLI.

pub(super) mod agent;
pub(super) mod mcp;
pub(super) mod model;
pub(super) mod output;
pub(crate) mod permission;
pub(super) mod prompt;
pub(super) mod sandbox;
pub(super) mod settings;
