//! The whole control surface on the real `claude` CLI: what it can ask and be asked, subject by subject.
//!
//! As in `real_cli`, `GREENROOM_CLI` names the executable; nothing but a scripted model on loopback is talked to.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in the helpers of tests, too")]

mod callbacks;
mod mcp;
mod messages;
mod options;
#[path = "../support/real_cli.rs"]
mod real;
mod requests;
mod servers;
#[path = "../support/stage.rs"]
mod stage;
mod store;
