//! Finds and ends everything that a child has started, by a control group and a [`mark`](crate::mark), and what a user of the system
//! runs. The limits of control groups say how much memory is left for children.

pub(super) mod cgroup;
pub(super) mod containment;
#[cfg(target_os = "linux")]
pub(super) mod ending;
pub(super) mod memory;
#[cfg(target_os = "linux")]
pub(super) mod sweep;
pub(super) mod user;
