//! From a launch to a running child.

mod exec;
pub(super) mod spawn;
pub(super) mod spawner;
