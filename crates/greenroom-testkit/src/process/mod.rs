//! Stand-ins that are processes of the operating system, and a check of what processes left behind.

pub(super) mod fake_cli;
pub(super) mod leak;
