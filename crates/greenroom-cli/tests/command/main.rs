//! The command as an operator uses it: in pipes and in a terminal, over the socket of a service in this process and over PostgreSQL.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "tests")]

mod fleet;
mod history;
mod lists;
mod pipes;
mod postgres;
#[path = "../../../../tests/support/root.rs"]
mod root;
mod stage;
mod terminal;
mod unreachable;
#[path = "../../../../tests/support/wait.rs"]
mod wait;
