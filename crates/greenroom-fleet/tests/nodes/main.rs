//! Nodes of a fleet as processes of their own, on one database of PostgreSQL. They are killed, stopped, cut off from the database
//! and drained at random moments, and so is the server. The service and its CLIs are those of `tests/storm`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in the helpers of tests, too")]
#![allow(clippy::print_stdout, reason = "the counts, and where the files of a failed storm are")]
#![cfg(target_os = "linux")]

mod deploy;
mod disturb;
mod driver;
mod end;
#[path = "../storm/journal.rs"]
#[allow(dead_code, reason = "the storm of one service uses the rest")]
mod journal;
mod node;
#[path = "../storm/prompts.rs"]
#[allow(dead_code, reason = "the storm of one service uses the rest")]
mod prompts;
#[path = "../storm/program/protocol.rs"]
#[allow(dead_code, reason = "the program uses the rest")]
mod protocol;
mod proxy;
mod scene;
#[path = "../postgres/server.rs"]
#[allow(dead_code, reason = "the tests of the backend use the rest")]
mod server;
mod stopped;
#[path = "../../../../tests/support/timeline.rs"]
mod timeline;
#[path = "../../../../tests/support/wait.rs"]
mod wait;

use std::time::{Duration, SystemTime};

use driver::Driver;
use server::Server;
use wait::in_time;

/// The length of the storm in seconds: `GREENROOM_FLEET_NODES_SECONDS`, or 30.
fn length() -> Duration {
    let set = std::env::var("GREENROOM_FLEET_NODES_SECONDS").ok();
    Duration::from_secs(set.map_or(30, |seconds| seconds.parse().expect("a number of seconds")))
}

/// `GREENROOM_SEED`, or another one at each run.
fn seed() -> u64 {
    let set = std::env::var("GREENROOM_SEED").ok();
    set.map_or_else(
        || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().subsec_nanos().into(),
        |seed| seed.parse().expect("GREENROOM_SEED is a number"),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_keep_the_promises_while_they_and_the_server_are_disturbed() {
    let Some(server) = Server::of_its_own() else { return };
    let (seed, length) = (seed(), length());
    timeline::seed(&format!("GREENROOM_FLEET_NODES_SECONDS={} GREENROOM_SEED", length.as_secs()), seed);
    let mut driver = Driver::new(seed, length, server);
    driver.rage().await;
    in_time("the end of every prompt after the storm", driver.calm()).await;
    in_time("the end of all processes", driver.end()).await;
    driver.check();
}
