//! Finds and ends everything that a CLI has started, by a control group and a mark.

pub(super) mod cgroup;
pub(super) mod containment;
#[cfg(target_os = "linux")]
pub(super) mod ending;
pub(super) mod mark;
#[cfg(target_os = "linux")]
pub(super) mod sweep;
