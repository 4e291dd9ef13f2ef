//! The chat as a person uses it: keys go into a pseudo-terminal, and a terminal emulator shows the window.
#![cfg(unix)]

mod answers;
mod person;
mod real_cli;
mod typing;
#[path = "../../../../tests/support/wait.rs"]
mod wait;
