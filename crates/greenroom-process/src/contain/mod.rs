//! Finds and ends everything that a child has started, by a control group and a [`mark`](crate::mark).

pub(super) mod cgroup;
pub(super) mod containment;
#[cfg(target_os = "linux")]
pub(super) mod ending;
#[cfg(target_os = "linux")]
pub(super) mod sweep;
