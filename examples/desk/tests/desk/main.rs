//! The desk through its router, and as a process.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in the helpers of tests, too")]

mod ends;
#[path = "../../../../tests/support/postgres.rs"]
mod postgres;
mod process;
mod prompts;
mod real_cli;
mod refusals;
mod size;
mod support;
mod tenants;
#[path = "../../../../tests/support/wait.rs"]
mod wait;
