//! The parts for services with axum: who a request is from, what it reaches, and how errors are answered.

#![allow(clippy::unwrap_used, reason = "in the helpers of tests, too")]

mod requests;
mod statuses;
#[path = "../../../../tests/support/wait.rs"]
mod wait;
