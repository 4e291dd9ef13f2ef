//! Tests of how much heap is held and how often it is asked: this binary counts every allocation.
//!
//! Each test takes [`alone`] first, because most read the counters of the whole process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "in the helpers of tests, too"
)]

#[path = "../support/bare.rs"]
mod bare;
#[path = "../support/common.rs"]
mod common;
#[path = "../support/timeline.rs"]
mod timeline;
#[path = "../support/wait.rs"]
mod wait;

mod allocations;
mod count;
mod floods;
mod footprint;
mod memory;

use tokio::sync::{Mutex, MutexGuard};

/// Makes the other tests wait until the guard is dropped.
async fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::const_new(());
    ALONE.lock().await
}
