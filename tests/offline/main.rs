//! Tests of sessions whose CLI is played in memory: no process, no network, no account.
//!
//! A test belongs here if it needs nothing of the machine but its clock and a folder for temporary files. Where
//! time matters the clock is tokio's paused one (`start_paused = true`), so that no test sleeps.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in the helpers of tests, too")]

#[path = "../support/bare.rs"]
mod bare;
#[path = "../support/common.rs"]
mod common;
#[path = "../support/requests.rs"]
mod samples;
#[path = "../support/snapshot.rs"]
mod snapshot;
#[path = "../support/timeline.rs"]
mod timeline;
#[path = "../support/wait.rs"]
mod wait;

mod actor;
mod control;
mod options;
mod report;
mod rmcp;
mod session;
mod sessions;
mod store;
mod testkit;
mod tool;
mod transport;
mod wire;
