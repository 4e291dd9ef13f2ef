//! From a launch to a running child.

pub(super) mod spawn;
pub(super) mod spawner;
