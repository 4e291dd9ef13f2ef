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

mod answers;
mod backpressure;
mod bursts;
mod callbacks;
mod cancellation;
mod chaos;
mod cli_version;
mod control;
mod define;
mod delivery;
mod direct_calls;
mod drops;
mod environment;
mod failures;
mod hook_failures;
mod identity;
mod in_use;
mod inquiries;
mod isolation;
mod lifecycle;
mod mcp;
mod memory_transport;
mod messages;
mod mirror;
mod mistakes;
mod options;
mod outbound;
mod panics;
mod plain;
mod prompt;
mod recovery;
mod requests;
mod requests_limits;
mod results;
mod resume;
mod rmcp;
mod scripted_cli;
mod scripts;
mod server_states;
mod servers;
mod sessions;
mod settings;
mod start_or_resume;
mod steering;
mod store;
mod testkit;
mod tools;
mod turn_cancel;
mod waits;
