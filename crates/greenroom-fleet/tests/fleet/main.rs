//! Tests of the public face.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in the helpers of tests, too")]
#![allow(clippy::disallowed_methods, reason = "the runtime of a test ends with its tasks")]

mod admin;
mod backends;
mod clis;
mod disk;
mod faults;
mod guide;
mod local;
mod moving;
mod nodes;
mod parked;
#[path = "../support/parking.rs"]
mod parking;
mod people;
#[path = "../support/memory.rs"]
mod remembering;
#[path = "../../../../tests/support/root.rs"]
mod root;
mod scenes;
mod sockets;
#[path = "../support/moving.rs"]
mod tenants;
#[path = "../../../../tests/support/timeline.rs"]
mod timeline;
mod transcripts;
mod users;
#[path = "../../../../tests/support/wait.rs"]
mod wait;
mod walls;
