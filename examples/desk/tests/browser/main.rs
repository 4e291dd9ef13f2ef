//! The page of the desk in Chromium.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in the helpers of tests, too")]

#[path = "../../../../tests/support/browser.rs"]
mod browser;
mod missing;
mod nodes;
mod page;
mod person;
#[path = "../../../../tests/support/postgres.rs"]
mod postgres;
mod questions;
mod sites;
#[path = "../desk/support.rs"]
mod support;
#[path = "../../../../tests/support/wait.rs"]
mod wait;
