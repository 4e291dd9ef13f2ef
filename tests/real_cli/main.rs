//! Tests with the real `claude` CLI, which talks to a scripted model on loopback: no network, no account.
//!
//! A CLI sees nothing of the machine but `PATH`: each test gives it an empty home and an empty working directory.
//!
//! `GREENROOM_CLI` names the executable. Without it no test is run, all pass, and one line on stderr says so; with
//! `GREENROOM_REQUIRE_CLI=1` each test fails without a CLI. `.ci/run` sets both.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "in the helpers of tests, too"
)]

#[path = "../support/host.rs"]
mod host;
#[path = "../support/real_cli.rs"]
mod real;
#[path = "../support/snapshot.rs"]
mod snapshot;
#[path = "../support/stage.rs"]
mod stage;
#[path = "../support/timeline.rs"]
mod timeline;
#[path = "../support/wait.rs"]
mod wait;

mod basics;
mod kills;
mod orphans;
mod steering;
mod surface;
mod wakes;
