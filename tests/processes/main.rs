//! Tests with real child processes or sockets, in real time: pipes, signals, exit codes, process groups, umask, locked
//! files.
//!
//! The CLI is a stand-in, `greenroom-fake-cli` (`tests/support/fake_cli`). A test waits for events; where it needs a limit,
//! the limit is far more than a busy machine takes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "in the helpers of tests, too"
)]

#[path = "../support/common.rs"]
mod common;
#[path = "../support/host.rs"]
mod host;
#[path = "../support/snapshot.rs"]
mod snapshot;
#[path = "../support/timeline.rs"]
mod timeline;
#[path = "../support/wait.rs"]
mod wait;

mod hostile;
mod in_use;
mod mistakes;
mod model;
mod orphans;
mod private_files;
#[path = "../support/root.rs"]
mod root;
mod sessions;
mod told;
mod watchdog;

/// A folder for lock files: the tests leave nothing in the configuration folder of the user who runs them.
fn locks() -> Option<std::path::PathBuf> {
    Some(std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("locks"))
}
