//! Tests of the public face.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in the helpers of tests, too")]

mod backends;
mod faults;
mod local;
