//! A fleet as a service of its own, with CLIs that are processes: both are killed at random moments. Nothing here is
//! scripted in memory; `program/` is the service and its CLIs.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in the helpers of tests, too")]
#![allow(clippy::print_stdout, reason = "the counts, and where the files of a failed storm are")]
#![cfg(target_os = "linux")]

mod checks;
mod journal;
mod life;
mod moment;
mod outlived;
mod prompts;
#[path = "program/protocol.rs"]
#[allow(dead_code, reason = "the program uses the rest")]
mod protocol;
mod storm;
#[path = "../../../../tests/support/timeline.rs"]
mod timeline;
#[path = "../../../../tests/support/wait.rs"]
mod wait;

use std::time::{Duration, SystemTime};

use storm::Storm;
use wait::in_time;

/// The length of the storm in seconds: `GREENROOM_FLEET_STORM_SECONDS`, or 20.
fn length() -> Duration {
    let set = std::env::var("GREENROOM_FLEET_STORM_SECONDS").ok();
    Duration::from_secs(set.map_or(20, |seconds| seconds.parse().expect("a number of seconds")))
}

/// `GREENROOM_SEED`, or another one at each run.
fn seed() -> u64 {
    let set = std::env::var("GREENROOM_SEED").ok();
    set.map_or_else(
        || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().subsec_nanos().into(),
        |seed| seed.parse().expect("GREENROOM_SEED is a number"),
    )
}

#[tokio::test]
async fn a_fleet_keeps_its_promises_while_clis_and_the_service_are_killed() {
    let (seed, length) = (seed(), length());
    timeline::seed(&format!("GREENROOM_FLEET_STORM_SECONDS={} GREENROOM_SEED", length.as_secs()), seed);
    let mut storm = Storm::new(seed, length);
    storm.rage().await;
    in_time("the end of every prompt after the storm", storm.calm()).await;
    storm.clear().await;
    storm.check();
}
